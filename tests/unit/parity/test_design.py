from __future__ import annotations

import json
from pathlib import Path

import pytest

from autorecipe.api.parity_design import design_parity
from autorecipe.cli.main import execute
from autorecipe.errors import UsageError
from autorecipe.parity.design import CHECKLIST
from autorecipe.parity.sides import parse_side
from autorecipe.schema.parity import SideKind

MLM = (
    "--num-layers 2 --hidden-size 256 --num-attention-heads 4 --ffn-hidden-size 1024 --seq-length 512"
    " --max-position-embeddings 512 --micro-batch-size 4 --global-batch-size 32 --train-iters 10 --eval-iters 2"
    " --eval-interval 10 --mock-data --bf16 --use-mcore-models --tokenizer-type NullTokenizer --vocab-size 32000"
    " --lr 3e-4 --min-lr 3e-5 --seed 1234 --log-interval 1"
)
BRIDGE = (
    "vanilla_gpt_pretrain_config model.num_layers=2 model.hidden_size=256 model.num_attention_heads=4"
    " model.ffn_hidden_size=1024 model.seq_length=512 dataset.seq_length=512 train.train_iters=10"
    " train.global_batch_size=32 train.micro_batch_size=4 validation.eval_interval=10 validation.eval_iters=2"
    " optimizer.lr=3e-4 optimizer.min_lr=3e-5 scheduler.lr_warmup_iters=1 scheduler.lr_decay_iters=10 rng.seed=1234"
    " logger.log_interval=1"
)
MATCHING = (
    "scheduler.lr_decay_style=linear",
    "scheduler.lr_warmup_iters=0",
    "optimizer.adam_beta2=0.999",
    "scheduler.start_weight_decay=0.01",
    "scheduler.end_weight_decay=0.01",
    "optimizer.weight_decay=0.01",
)


def test_the_documented_pair_leaves_five_fields_unmatched() -> None:
    design = design_parity(MLM, BRIDGE)
    assert {change.path: (change.before, change.after) for change in design.unmatched} == {
        "scheduler.lr_decay_style": ("linear", "cosine"),
        "scheduler.lr_warmup_iters": (0, 1),
        "optimizer.adam_beta2": (0.999, 0.95),
        "scheduler.start_weight_decay": (0.01, 0.033),
        "scheduler.end_weight_decay": (0.01, 0.033),
    }
    assert design.fixes == MATCHING
    assert design.comparable


def test_the_fixes_are_those_of_the_run_that_matched(golden: Path) -> None:
    header = (golden / "gpt_2l256h_bf16__bridge_matched.log").read_text().splitlines()[1]
    assert set(MATCHING) <= set(header.split())


def test_the_corrected_pair_is_matched() -> None:
    corrected = " ".join(design_parity(MLM, BRIDGE).sides[1].corrected)
    again = design_parity(MLM, f"vanilla_gpt_pretrain_config {corrected}")
    assert (again.unmatched, again.fixes) == ((), ())


def test_megatron_lm_is_corrected_where_it_is_the_second_side() -> None:
    design = design_parity(BRIDGE, MLM)
    words = " ".join(design.sides[1].corrected)
    for text in (
        "--lr-decay-style cosine",
        "--lr-warmup-iters 1",
        "--adam-beta2 0.95",
        "--weight-decay 0.033",
        "--train-iters 10",
    ):
        assert text in words
    assert design_parity(BRIDGE, words).unmatched == ()


def test_commands_have_launcher_path_and_clean_up() -> None:
    mlm, bridge = (side.command for side in design_parity(MLM, BRIDGE).sides)
    assert mlm.startswith(
        "PYTHONPATH=3rdparty/Megatron-LM:$PYTHONPATH \\\nuv run python -m torch.distributed.run --nproc_per_node=1"
    )
    assert "3rdparty/Megatron-LM/pretrain_gpt.py" in mlm
    assert bridge.startswith("rm -rf nemo_experiments && \\\nuv run python -m torch.distributed.run --nproc_per_node=1")
    assert "scripts/training/run_recipe.py" in bridge
    assert "--recipe vanilla_gpt_pretrain_config --dataset mock" in bridge


def test_the_checklist_has_every_item_of_a_first_answer() -> None:
    text = "\n".join(CHECKLIST)
    for item in (
        "vanilla_gpt_pretrain_config",
        "scripts/training/run_recipe.py",
        "3rdparty/Megatron-LM/pretrain_gpt.py",
        "uv run python -m torch.distributed.run",
        "nemo_experiments",
        "PYTHONPATH=3rdparty/Megatron-LM:$PYTHONPATH",
        "BF16",
        "never change a file below 3rdparty/Megatron-LM/",
    ):
        assert item in text


def test_the_two_process_pair_starts_two_processes() -> None:
    mlm = "--tensor-model-parallel-size 2 --sequence-parallel " + MLM
    design = design_parity(mlm, BRIDGE + " model.tensor_model_parallel_size=2 model.sequence_parallel=true")
    assert {side.processes for side in design.sides} == {2}
    assert not any("tensor_model_parallel" in change.path for change in design.execution)


def test_logs_of_runs_are_sides(golden: Path) -> None:
    design = design_parity(
        str(golden / "gpt_2l256h_bf16__mlm_documented.log"), str(golden / "gpt_2l256h_bf16__bridge_documented.log")
    )
    assert len(design.unmatched) == 5
    matched = design_parity(
        str(golden / "gpt_2l256h_bf16__mlm_documented.log"), str(golden / "gpt_2l256h_bf16__bridge_matched.log")
    )
    assert matched.unmatched == ()


def test_what_cannot_be_expressed_makes_a_pair_not_comparable() -> None:
    design = design_parity(MLM + " --enable-mhc-connections", BRIDGE)
    assert not design.comparable
    assert any("--enable-mhc-connections" in text for text in design.lost)


@pytest.mark.parametrize(
    ("text", "kind", "recipe", "words"),
    [
        ("--num-layers 2", SideKind.MEGATRON_LM, "", ("--num-layers", "2")),
        ("python pretrain_gpt.py --num-layers 2", SideKind.MEGATRON_LM, "", ("python", "pretrain_gpt.py", "--num-layers", "2")),
        ("llama3_8b_pretrain_config train.train_iters=5", SideKind.BRIDGE, "llama3_8b_pretrain_config", ("train.train_iters=5",)),
        ("train.train_iters=5", SideKind.BRIDGE, "default", ("train.train_iters=5",)),
        (
            "python -m torch.distributed.run --nproc_per_node=2 scripts/training/run_recipe.py --recipe R --dataset mock a.b=1",
            SideKind.BRIDGE,
            "R",
            ("a.b=1",),
        ),
    ],
)
def test_sides_are_recognised(text: str, kind: SideKind, recipe: str, words: tuple[str, ...]) -> None:
    side = parse_side(text, default_recipe="default")
    assert (side.kind, side.recipe, side.words) == (kind, recipe, words)


def test_a_script_is_a_side(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"python -m torch.distributed.run --nproc_per_node=1 pretrain_gpt.py {MLM}\n")
    assert design_parity(str(script), BRIDGE).fixes == MATCHING


def test_what_is_no_side_is_refused() -> None:
    with pytest.raises(UsageError, match="neither"):
        parse_side("?!", default_recipe="x")


def test_the_command_prints_fields_fixes_and_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["parity", "design", MLM, BRIDGE]) == 0
    text = capsys.readouterr().out
    assert "not matched: 5 fields" in text
    assert " ".join(MATCHING) in text
    assert execute(["parity", "design", MLM, BRIDGE, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["fixes"] == list(MATCHING)
    assert execute(["parity", "design", MLM]) == 2


@pytest.mark.parametrize(
    ("text", "words", "own"),
    [
        ("engine.modules=own model.num_layers=2", ("model.num_layers=2",), ("engine.modules=own",)),
        ("vanilla_gpt_pretrain_config model.num_layers=2 engine.modules=own", ("model.num_layers=2",), ("engine.modules=own",)),
        ("--num-layers 2 engine.fused_loss=false", ("--num-layers", "2"), ("engine.fused_loss=false",)),
    ],
)
def test_options_of_this_engine_are_kept_apart_from_the_configuration(
    text: str, words: tuple[str, ...], own: tuple[str, ...]
) -> None:
    spec = parse_side(text, default_recipe="vanilla_gpt_pretrain_config")
    assert (spec.words, spec.engine_options) == (words, own)
