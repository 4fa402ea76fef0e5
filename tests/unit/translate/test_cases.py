"""Problems that users of the two frameworks met, with the answer that was checked against the frameworks."""

from __future__ import annotations

from typing import Any

import pytest

from autorecipe.api.check import CheckRequest, check_run
from autorecipe.api.translate import to_mlm
from autorecipe.config.overrides import render_override
from autorecipe.schema.finding import Severity
from autorecipe.schema.translation import Status, Translation

CASES: list[tuple[str, str, dict[str, Any]]] = [
    (
        "a preset string cannot be combined with its fields",
        "--bf16 --fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather",
        {"mixed_precision": "bf16_with_mxfp8_mixed"},
    ),
    (
        "position table equal to the sequence has no field",
        "--seq-length 4096 --max-position-embeddings 4096",
        {"model.seq_length": 4096, "dataset.seq_length": 4096},
    ),
    ("mask in the data loader", "--no-create-attention-mask-in-dataloader", {"dataset.create_attention_mask": False}),
    (
        "a group count without its gate is ignored",
        "--num-attention-heads 32 --num-query-groups 8",
        {"model.num_attention_heads": 32, "model.num_query_groups": 32},
    ),
    ("the gate alone means one group", "--num-attention-heads 32 --group-query-attention", {"model.num_query_groups": 1}),
    (
        "both together",
        "--num-attention-heads 32 --group-query-attention --num-query-groups 8",
        {"model.num_query_groups": 8},
    ),
    ("legacy rotary flag", "--use-rotary-position-embeddings --rotary-percent 1.0", {"model.position_embedding_type": "rope"}),
    (
        "weight decay acts through the scheduler",
        "--weight-decay 0.1",
        {"scheduler.start_weight_decay": 0.1, "scheduler.end_weight_decay": 0.1, "optimizer.weight_decay": 0.1},
    ),
    (
        "training by samples clears iterations",
        "--train-samples 320000 --lr-warmup-samples 3200",
        {
            "train.train_samples": 320000,
            "train.train_iters": None,
            "scheduler.lr_warmup_samples": 3200,
            "scheduler.lr_warmup_iters": 0,
        },
    ),
    (
        "a layer pattern is evaluated",
        "--num-layers 61 --num-experts 256 --moe-layer-freq '([0]*3+[1]*58)'",
        {"model.moe_layer_freq": [0] * 3 + [1] * 58},
    ),
    ("one seed is two", "--seed 42", {"rng.seed": 42, "dataset.random_seed": 42}),
    (
        "token dropping arrives",
        "--num-experts 64 --moe-expert-capacity-factor 1.25 --moe-token-drop-policy position",
        {"model.moe_expert_capacity_factor": 1.25, "model.moe_token_drop_policy": "position"},
    ),
    (
        "an explicit padded vocabulary",
        "--padded-vocab-size 128256 --vocab-size 128000",
        {"model.vocab_size": 128256, "tokenizer.use_tokenizer_vocab_size": False},
    ),
    ("recompute shorthand", "--recompute-activations", {"model.recompute_granularity": "selective"}),
    (
        "no distributed optimizer unless asked for",
        "",
        {"ddp.use_distributed_optimizer": False, "optimizer.use_distributed_optimizer": False},
    ),
    ("local layers are not lost", "--transformer-impl local", {"model.transformer_impl": "local"}),
    (
        "FSDP shards",
        "--use-megatron-fsdp --ckpt-format fsdp_dtensor",
        {
            "ddp.use_megatron_fsdp": True,
            "ddp.data_parallel_sharding_strategy": "optim_grads_params",
            "checkpoint.ckpt_format": "fsdp_dtensor",
        },
    ),
    ("gated SiLU", "--swiglu", {"model.gated_linear_unit": True, "model.activation_func": "torch.nn.functional:silu"}),
    ("its default width", "--swiglu --hidden-size 4096", {"model.ffn_hidden_size": 10880}),
    (
        "expert tensor parallel size follows TP",
        "--num-experts 8 --expert-model-parallel-size 2 --tensor-model-parallel-size 4 --sequence-parallel",
        {"model.expert_tensor_parallel_size": 4},
    ),
    ("data without a split", "--data-path 0.3 a 0.7 b", {"dataset.data_path": "0.3 a 0.7 b", "dataset.split": "969,30,1"}),
    (
        "virtual stages from layers",
        "--num-layers 16 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2",
        {"model.virtual_pipeline_model_parallel_size": 2},
    ),
    ("tied unless untied", "--untie-embeddings-and-output-weights", {"model.share_embeddings_and_output_weights": False}),
    ("flash", "--use-flash-attn", {"model.attention_backend": "AttnBackend.flash"}),
    (
        "both halves of the NaN check",
        "--no-check-for-nan-in-loss-and-grad",
        {"ddp.check_for_nan_in_grad": False, "rerun_state_machine.check_for_nan_in_loss": False},
    ),
    (
        "CUDA graphs take the generator tracker that Bridge only asserts",
        "--cuda-graph-impl transformer_engine --cuda-graph-modules attn",
        {
            "model.cuda_graph_impl": "transformer_engine",
            "model.cuda_graph_modules": ["attn"],
            "model.use_te_rng_tracker": True,
            "rng.te_rng_tracker": True,
        },
    ),
    ("asynchronous saving is off without its worker", "--async-save", {"checkpoint.async_save": False}),
    ("sequence parallelism is cleared at TP 1", "--sequence-parallel", {"model.sequence_parallel": False}),
    ("no experts", "--num-experts 0", {"model.num_moe_experts": None}),
    (
        "blends for each split",
        "--train-data-path a --valid-data-path 0.5 b 0.5 c",
        {"dataset.blend_per_split": [[["a"], None], [["b", "c"], [0.5, 0.5]], None]},
    ),
    (
        "fp8 with current scaling is a preset",
        "--bf16 --fp8-format hybrid --fp8-recipe tensorwise --fp8-param-gather --first-last-layers-bf16",
        {"mixed_precision": "bf16_with_fp8_current_scaling_mixed"},
    ),
    ("fp16 has another preset name", "--fp16", {"mixed_precision": "fp16_mixed"}),
    (
        "warmup by fraction",
        "--train-iters 100 --lr-warmup-fraction 0.01",
        {"scheduler.lr_warmup_fraction": 0.01, "scheduler.lr_warmup_iters": 0},
    ),
    ("decay takes the whole run", "--train-iters 100", {"scheduler.lr_decay_iters": 100}),
    (
        "start and end values of weight decay act, the plain one does not",
        "--weight-decay 0.1 --start-weight-decay 0.01 --end-weight-decay 0.2 --weight-decay-incr-style linear",
        {"scheduler.start_weight_decay": 0.01, "scheduler.end_weight_decay": 0.2, "optimizer.weight_decay": "not written"},
    ),
    ("no positions at all", "--position-embedding-type none", {"model.position_embedding_type": "none"}),
    (
        "the deprecated condition is a switch of the optimizer",
        "--no-weight-decay-cond-type apply_wd_to_qk_layernorm",
        {"optimizer.apply_wd_to_qk_layernorm": True},
    ),
    (
        "one profiler of two",
        "--profile --use-pytorch-profiler",
        {"profiling.use_nsys_profiler": False, "profiling.use_pytorch_profiler": True},
    ),
    ("the choice of a profiler starts none", "--use-pytorch-profiler", {"profiling.use_pytorch_profiler": "not written"}),
    (
        "the checkpoint's schedule is not overridden too",
        "--use-checkpoint-opt_param-scheduler",
        {"scheduler.use_checkpoint_opt_param_scheduler": True, "scheduler.override_opt_param_scheduler": False},
    ),
    ("Bridge has no local graphs of layers", "--enable-cuda-graph", {"model.cuda_graph_impl": "not written"}),
    (
        "local graphs of the iteration",
        "--cuda-graph-impl local --cuda-graph-modules full_iteration",
        {"model.cuda_graph_impl": "local", "model.cuda_graph_modules": ["full_iteration"]},
    ),
    ("an expert's option needs experts", "--moe-expert-capacity-factor 2", {"model.moe_expert_capacity_factor": "not written"}),
]


def written(translation: Translation) -> dict[str, Any]:
    return {setting.name: setting.value for setting in translation.settings}


@pytest.mark.parametrize(("arguments", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_options_become_the_checked_overrides(translate: Any, arguments: str, expected: dict[str, Any]) -> None:
    found = written(translate(arguments))
    assert {path: found.get(path, "not written") for path in expected} == expected


@pytest.mark.parametrize(
    ("arguments", "code", "who"),
    [
        ("--profile --profile-step-start 9 --profile-step-end 3", "LOG002", "Bridge"),
        ("--overlap-param-gather", "OVL005", "Megatron-LM"),
        ("--use-checkpoint-args", "CKP026", "Megatron-LM"),
    ],
)
def test_what_one_framework_alone_refuses_is_no_translation(translate: Any, arguments: str, code: str, who: str) -> None:
    found = {problem.code: problem.message for problem in translate(arguments).problems}
    assert found[code].startswith(f"{who} refuses")


def test_training_by_samples_holds_up(translate: Any) -> None:
    arguments = "--train-samples 320000 --lr-warmup-samples 3200 --lr-decay-samples 300000 --global-batch-size 32 --mock-data"
    translation = translate(arguments)
    assert not translation.problems
    overrides = [render_override(setting.name, setting.value) for setting in translation.settings]
    report = check_run(CheckRequest(target=translation.recipe, overrides=overrides))
    assert [finding.rule for finding in report.findings if finding.severity is Severity.ERROR] == []


def test_options_act_where_the_recipe_keeps_an_object_that_writes_over_them(translate: Any) -> None:
    arguments = "--bf16 --fp8-format e4m3 --fp8-recipe blockwise --overlap-grad-reduce --use-distributed-optimizer"
    translation = translate(arguments, recipe="deepseek_v3_pretrain_config")
    assert not translation.lost
    assert "does-not-act" not in [problem.code for problem in translation.problems]
    found = written(translation)
    assert found["comm_overlap"] is None
    assert found["mixed_precision"]["fp8_recipe"] == "blockwise"
    assert found["ddp.overlap_param_gather"] is False


def test_what_both_frameworks_refuse_is_said(translate: Any) -> None:
    translation = translate("--dataloader-fast-cache-load")
    assert not translation.problems
    assert any("both frameworks refuse DAT010" in note for note in translation.notes)


def test_a_recipe_that_predicts_further_tokens_does_so_no_more(translate: Any) -> None:
    found = written(translate("--num-layers 61", recipe="deepseek_v3_pretrain_config"))
    assert not found.get("model.mtp_num_layers", "not written")


def test_fp32_reduction_needs_nothing(translate: Any) -> None:
    translation = translate("--bf16 --accumulate-allreduce-grads-in-fp32")
    outcome = translation.outcomes[1]
    assert (outcome.status, outcome.targets) == (Status.DERIVED, ())
    assert "already reduces" in outcome.note
    assert not any("grad_reduce" in path for path in written(translation))
    assert not translation.lost


def test_bf16_reduction_needs_the_whole_precision_object(translate: Any) -> None:
    value = written(translate("--bf16 --grad-reduce-in-bf16"))["mixed_precision"]
    assert (value["bf16"], value["grad_reduce_in_fp32"]) == (True, False)
    assert not translate("--bf16 --grad-reduce-in-bf16").problems


def test_an_illegal_virtual_pipeline_is_refused_not_floored(translate: Any) -> None:
    arguments = "--num-layers 10 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 1"
    (problem,) = translate(arguments).problems
    assert problem.code == "MLM-PP-04"
    assert "10 % 4 != 0" in problem.message


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("--train-iters 10 --lr-warmup-iters 10", "MLM-SCHED-05"),
        ("--lr 1e-4 --min-lr 1e-3", "MLM-SCHED-04"),
        ("--hidden-size 100 --num-attention-heads 3", "MLM-SIZE-04"),
        ("--seq-length 4096 --max-position-embeddings 2048", "MLM-SIZE-05"),
        ("--expert-model-parallel-size 2", "MLM-MOE-01"),
        ("--num-experts 6 --expert-model-parallel-size 4", "MLM-MOE-02"),
        ("--batch-size 4", "MLM-DEP-01"),
        ("--mock-data --data-path a", "MLM-DATA-04"),
        ("--num-layers 5 --pipeline-model-parallel-size 2", "MLM-PP-06"),
        ("--num-layers 4 --num-experts 2 --moe-layer-freq '[1,0]'", "MC-MOEFREQ-01"),
        ("--weight-decay 0.1 --start-weight-decay 0.1", "MLM-WD-01"),
    ],
)
def test_what_megatron_lm_refuses_is_refused(translate: Any, arguments: str, code: str) -> None:
    assert code in [problem.code for problem in translate(arguments).problems]


def test_implicit_defaults_are_written_and_explained(translate: Any) -> None:
    translation = translate("--bf16 --train-iters 10", recipe="llama3_8b_pretrain_config")
    implicit = {setting.name: setting for setting in translation.settings if setting.reason.value != "given"}
    expected = {
        "scheduler.lr_decay_style": "linear",
        "optimizer.adam_beta2": 0.999,
        "scheduler.lr_warmup_iters": 0,
        "scheduler.start_weight_decay": 0.01,
        "model.normalization": "LayerNorm",
        "model.attention_dropout": 0.1,
        "model.hidden_dropout": 0.1,
        "model.gated_linear_unit": False,
        "model.position_embedding_type": "learned_absolute",
        "model.share_embeddings_and_output_weights": True,
        "model.add_bias_linear": True,
        "model.context_parallel_size": 1,
    }
    assert {path: implicit[path].value for path in expected} == expected
    assert all(implicit[path].replaces is not None or implicit[path].why for path in expected)


def test_golden_argument_lists_translate_without_loss(translate: Any) -> None:
    from pathlib import Path

    for path in sorted((Path(__file__).parents[2] / "golden" / "parity").glob("*mlm*.log")):
        line = next(row for row in path.read_text().splitlines() if row.startswith("# args: "))
        translation = translate(line.removeprefix("# args: "))
        assert translation.lost == ()
        assert translation.problems == (), path.name


def codes_of(translation: Translation) -> set[str]:
    return {problem.code for problem in translation.problems}


@pytest.mark.parametrize(
    ("recipe", "overrides", "codes"),
    [
        ("qwen35_vl_2b_sft_config", (), {"MDL032"}),
        ("gpt_oss_20b_pretrain_64gpu_b300_nvfp4_config", (), {"MLM-SCHED-05"}),
        ("deepseek_v3_pretrain_64gpu_h100_bf16_config", (), {"OVL006"}),
        ("deepseek_v3_pretrain_64gpu_h100_bf16_config", ("ddp.overlap_grad_reduce=true", "comm_overlap=null"), set()),
    ],
)
def test_a_recipe_whose_options_megatron_lm_alone_refuses_is_no_translation(
    recipe: str, overrides: tuple[str, ...], codes: set[str]
) -> None:
    assert codes_of(to_mlm(recipe, overrides)) == codes


@pytest.mark.parametrize(
    ("recipe", "overrides", "rule"),
    [
        ("glm45_355b_pretrain_128gpu_h100_bf16_config", (), "PIP001"),
        ("nemotron_nano_12b_v2_sft_config", (), "SCH015"),
        ("vanilla_gpt_pretrain_config", ("dataset.fast_cache_load=true",), "DAT010"),
    ],
)
def test_what_a_recipe_breaks_in_both_frameworks_is_said_and_refuses_nothing(
    recipe: str, overrides: tuple[str, ...], rule: str
) -> None:
    there = to_mlm(recipe, overrides)
    assert not there.problems
    assert any(text.startswith(f"both frameworks refuse {rule}: ") for text in there.notes)
