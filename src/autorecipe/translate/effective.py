"""What a Megatron-LM command line means: given options, defaults, and what `validate_args` makes of both.

Every derivation is a function of its own with its source. Problems are what Megatron-LM itself would refuse. Start reading at
`derive_effective`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from autorecipe.errors import Problem
from autorecipe.record import dataclass, field
from autorecipe.schema.translation import Status
from autorecipe.schema.value import FieldValue
from autorecipe.translate.arguments import OptionTable, ParsedArguments
from autorecipe.translate.values import enum_member

REQUIRED = ("num_layers", "hidden_size", "num_attention_heads", "seq_length", "max_position_embeddings", "micro_batch_size", "lr")
"""Options without a usable default: what is not given is not known."""


@dataclass
class MlmConfig:
    """Effective Megatron-LM configuration.

    Attributes:
        values: destination -> value, after derivations.
        given: destinations that the command line gives.
        derived: destination -> how it was derived.
        world_size: GPUs, or None.
        problems: what Megatron-LM would refuse.
        remarks: destination -> what becomes of it here and why, set while rules are applied.
        presets: mixed-precision presets of the Bridge release, by name.
    """

    values: dict[str, FieldValue]
    given: frozenset[str]
    derived: dict[str, str] = field(default_factory=dict)
    world_size: int | None = None
    problems: list[Problem] = field(default_factory=list)
    remarks: dict[str, tuple[Status, str]] = field(default_factory=dict)
    presets: Mapping[str, Mapping[str, FieldValue]] = field(default_factory=dict)

    def remark(self, dest: str, status: Status, note: str) -> None:
        """Say what becomes of an option in this configuration, where that depends on the others."""
        self.remarks[dest] = (status, note)

    def get(self, dest: str, default: FieldValue = None) -> FieldValue:
        """Return an effective value."""
        return self.values.get(dest, default)

    def on(self, dest: str) -> bool:
        """Return whether an effective value is set and true."""
        return bool(self.values.get(dest))

    def size(self, dest: str) -> int:
        """Return an effective size; 1 where it is not set."""
        value = self.values.get(dest)
        return value if isinstance(value, int) and value > 0 else 1

    def number(self, dest: str) -> int | None:
        """Return an effective whole number, or None."""
        value = self.values.get(dest)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def derive(self, dest: str, value: FieldValue, how: str) -> None:
        """Set a derived value and say how."""
        self.values[dest] = value
        self.derived[dest] = how

    def refuse(self, code: str, message: str, *, path: str = "", hint: str = "") -> None:
        """Record what Megatron-LM would refuse."""
        self.problems.append(Problem(code=code, message=message, path=path, hint=hint))


def derive_effective(parsed: ParsedArguments, table: OptionTable, *, world_size: int | None = None) -> MlmConfig:
    """Return the effective configuration of a command line.

    Args:
        parsed: parsed options; what could not be parsed does not count.
        table: options of the release.
        world_size: GPUs; None takes what the launcher words say.
    """
    counted = {
        item.option.dest: item.value
        for item in parsed.given
        if item.option is not None and not item.overridden and not item.problem and not item.is_unresolved
    }
    return effective_of(counted, table, world_size=world_size if world_size is not None else parsed.world_size)


def effective_of(given: Mapping[str, FieldValue], table: OptionTable, *, world_size: int | None = None) -> MlmConfig:
    """Return the effective configuration of given values by destination."""
    values = {dest: _default(option.default, option.type) for dest, option in table.by_dest.items()}
    values |= {dest: enum_member(value) if dest in _ENUMS else value for dest, value in given.items()}
    config = MlmConfig(values=values, given=frozenset(given), world_size=world_size, presets=table.presets)
    for derive in DERIVATIONS:
        derive(config)
    return config


_ENUMS = {"attention_backend", "exit_signal", "inference_cuda_graph_scope"}


def _default(value: FieldValue, kind: str) -> FieldValue:
    return enum_member(value) if kind == "enum_type_handler" else value


def _deprecated(config: MlmConfig) -> None:
    """Source: megatron/training/arguments.py:591 @ core 0.19.2."""
    replaced = {
        "batch_size": "--micro-batch-size",
        "warmup": "--lr-warmup-fraction",
        "model_parallel_size": "--tensor-model-parallel-size",
        "checkpoint_activations": "--recompute-activations",
    }
    for dest, better in replaced.items():
        if config.on(dest):
            flag = "--" + dest.replace("_", "-")
            config.refuse("MLM-DEP-01", "is no longer accepted by Megatron-LM", path=flag, hint=f"use {better}")
    if config.on("recompute_activations"):
        config.derive("recompute_granularity", "selective", "--recompute-activations stands for it")
    for dest, implementation in (("enable_cuda_graph", "local"), ("external_cuda_graph", "transformer_engine")):
        if config.on(dest):
            config.derive("cuda_graph_impl", implementation, f"--{dest.replace('_', '-')} stands for it")
    if config.on("moe_router_padding_for_fp8"):
        config.derive("moe_router_padding_for_quantization", True, "--moe-router-padding-for-fp8 stands for it")
    if config.get("no_weight_decay_cond_type") == "apply_wd_to_qk_layernorm":
        config.derive("apply_wd_to_qk_layernorm", True, "--no-weight-decay-cond-type stands for it")
    if config.get("hybrid_override_pattern") is not None:
        config.derive("hybrid_layer_pattern", config.get("hybrid_override_pattern"), "--hybrid-override-pattern stands for it")
    if config.get("encoder_seq_length") is not None and config.get("seq_length") is None:
        config.derive("seq_length", config.get("encoder_seq_length"), "--encoder-seq-length stands for it")
    if config.get("encoder_num_layers") is not None and config.get("num_layers") is None:
        config.derive("num_layers", config.get("encoder_num_layers"), "--encoder-num-layers stands for it")


def _world(config: MlmConfig) -> None:
    """Source: megatron/training/arguments.py:433 @ core 0.19.2."""
    tp, pp, cp = (config.size(f"{name}_parallel_size") for name in ("tensor_model", "pipeline_model", "context"))
    product = tp * pp * cp
    if config.world_size is None:
        return
    if config.world_size % product:
        config.refuse(
            "MLM-WORLD-01",
            f"{config.world_size} GPUs are not a multiple of TP x PP x CP = {tp} x {pp} x {cp} = {product}",
            hint=f"use a multiple of {product} GPUs",
        )
        return
    config.values["data_parallel_size"] = config.world_size // product


def _parallel(config: MlmConfig) -> None:
    """Source: megatron/training/arguments.py:588, :1301, :1436 @ core 0.19.2."""
    tp, ep = config.size("tensor_model_parallel_size"), config.size("expert_model_parallel_size")
    if config.get("expert_tensor_parallel_size") is None:
        config.derive("expert_tensor_parallel_size", tp, "unset means the tensor parallel size in Megatron-LM")
    if tp == 1 and config.on("sequence_parallel"):
        config.derive("sequence_parallel", False, "Megatron-LM clears it at tensor parallel size 1")
    if config.get("num_experts") == 0:
        config.derive("num_experts", None, "0 experts mean none")
    experts = config.number("num_experts")
    if ep > 1 and experts is None:
        config.refuse("MLM-MOE-01", f"expert parallel size {ep} needs --num-experts", path="--expert-model-parallel-size")
    elif ep > 1 and experts is not None and experts % ep:
        config.refuse("MLM-MOE-02", f"{experts} experts are not a multiple of expert parallel size {ep}", path="--num-experts")
    seq, cp = config.number("seq_length"), config.size("context_parallel_size")
    if seq is not None and cp > 1 and seq % (2 * cp):
        config.refuse("MLM-CP-01", f"sequence length {seq} is not a multiple of 2 x CP = {2 * cp}", path="--seq-length")
    if config.on("dataloader_inter_document_masking") and config.on("create_attention_mask_in_dataloader"):
        config.derive("create_attention_mask_in_dataloader", False, "no mask beside --dataloader-inter-document-masking")


def _model(config: MlmConfig) -> None:
    """Source: megatron/training/arguments.py:1325-1355, :1608-1655; argument_utils.py:333; unset spread and recomputed modules:
    megatron/core/transformer/transformer_config.py (__post_init__) @ core 0.19.2.
    """
    hidden, heads = config.number("hidden_size"), config.number("num_attention_heads")
    if config.get("ffn_hidden_size") is None and hidden:
        width = int((4 * hidden * 2 / 3) / 64) * 64 if config.on("swiglu") else 4 * hidden
        formula = "int(8 h / 3 / 64) x 64 with --swiglu" if config.on("swiglu") else "4 h"
        config.derive("ffn_hidden_size", width, f"Megatron-LM's default width: {formula}")
    if config.get("kv_channels") is None and hidden and heads:
        if hidden % heads:
            config.refuse(
                "MLM-SIZE-04", f"hidden size {hidden} is not a multiple of {heads} attention heads", path="--hidden-size"
            )
        else:
            config.derive("kv_channels", hidden // heads, "hidden size / attention heads")
    if not config.on("group_query_attention") and heads:
        config.derive("num_query_groups", heads, "without --group-query-attention Megatron-LM uses one group a head")
    if config.on("multi_latent_attention") and config.on("group_query_attention"):
        config.refuse("MLM-MLA-01", "--multi-latent-attention and --group-query-attention exclude each other")
    if config.on("use_rotary_position_embeddings"):
        config.derive("position_embedding_type", "rope", "--use-rotary-position-embeddings stands for it")
    if config.get("position_embedding_type") != "rope" and config.on("apply_rope_fusion"):
        config.derive("apply_rope_fusion", False, "no rotary embedding")
    if not config.on("add_bias_linear") and config.on("bias_gelu_fusion"):
        config.derive("bias_gelu_fusion", False, "no biases")
    if config.on("add_bias_linear") and not config.on("add_qkv_bias"):
        config.derive("add_qkv_bias", True, "every linear layer has a bias")
    if config.on("apply_query_key_layer_scaling"):
        config.derive("attention_softmax_in_fp32", True, "--apply-query-key-layer-scaling needs it")
    if config.get("num_experts") is not None and config.get("moe_ffn_hidden_size") is None:
        config.derive("moe_ffn_hidden_size", config.get("ffn_hidden_size"), "unset means the dense width")
    if config.get("embedding_init_method_std") is None:
        spread = config.get("init_method_std")
        config.derive("embedding_init_method_std", spread, "unset means the spread of the other weights")
    if config.get("recompute_modules") is None:
        config.derive("recompute_modules", ["core_attn"], "unset means the attention core")
    if config.on("use_flash_attn"):
        config.derive("attention_backend", "flash", "--use-flash-attn stands for it")
    seq, table = config.number("seq_length"), config.number("max_position_embeddings")
    if seq is not None and table is not None and table < seq:
        config.refuse(
            "MLM-SIZE-05", f"{table} positions are fewer than the sequence length {seq}", path="--max-position-embeddings"
        )
    frequency, layers = config.get("moe_layer_freq"), config.number("num_layers")
    if isinstance(frequency, list) and layers is not None and len(frequency) != layers:
        message = f"the pattern has {len(frequency)} entries for {layers} layers"
        config.refuse("MC-MOEFREQ-01", message, path="--moe-layer-freq")


def _pipeline(config: MlmConfig) -> None:
    """Source: megatron/training/arguments.py:933-1011 @ core 0.19.2."""
    pp, layers = config.size("pipeline_model_parallel_size"), config.number("num_layers")
    per_stage, stages = (
        config.number("num_layers_per_virtual_pipeline_stage"),
        config.number("num_virtual_stages_per_pipeline_rank"),
    )
    layout = config.get("pipeline_model_parallel_layout")
    if sum(item is not None for item in (per_stage, stages, layout)) > 1:
        config.refuse(
            "MLM-PP-01",
            "give only one of --num-layers-per-virtual-pipeline-stage, --num-virtual-stages-per-pipeline-rank and"
            " --pipeline-model-parallel-layout",
        )
    counted = layers
    if counted is not None:
        counted += config.on("account_for_embedding_in_pipeline_split") + config.on("account_for_loss_in_pipeline_split")
    uneven = config.get("decoder_first_pipeline_num_layers") or config.get("decoder_last_pipeline_num_layers")
    hybrid = config.get("hybrid_layer_pattern") is not None
    virtual = stages
    if per_stage is not None and counted is not None:
        if counted % pp:
            message = f"{counted} layers are not a multiple of pipeline size {pp} ({counted} % {pp} != 0)"
            config.refuse("MLM-PP-04", message, path="--num-layers-per-virtual-pipeline-stage", hint="change one of the two")
        elif counted // pp % per_stage:
            message = f"{counted // pp} layers a stage are not a multiple of {per_stage} ({counted // pp} % {per_stage} != 0)"
            config.refuse("MLM-PP-05", message, path="--num-layers-per-virtual-pipeline-stage")
        else:
            virtual = counted // pp // per_stage
    elif layout is None and virtual is None and counted is not None and counted % pp and not uneven and not hybrid:
        config.refuse("MLM-PP-06", f"{counted} layers are not a multiple of pipeline size {pp}", path="--num-layers")
    if isinstance(layout, str):
        virtual = (expand_stages(layout).count("|") + 1) // pp
    config.derive(
        "virtual_pipeline_model_parallel_size", None if virtual == 1 else virtual, "layers / PP / layers a virtual stage"
    )
    if config.get("virtual_pipeline_model_parallel_size") is None:
        for dest in ("overlap_p2p_comm", "align_param_gather"):
            if config.on(dest):
                config.derive(dest, False, "Megatron-LM turns it off without virtual stages")
    if config.get("microbatch_group_size_per_vp_stage") is None:
        config.derive("microbatch_group_size_per_vp_stage", pp, "unset takes the pipeline size")


def expand_stages(layout: str) -> str:
    """Write out a layout such as `Et*3|(tt|)*29,m|L`: what stands before `*N`, a letter or a group in brackets, N times."""
    text = layout.replace(",", "").replace(" ", "")
    while True:
        expanded = re.sub(r"(?:\(([^()]*)\)|([A-Za-z]))\*(\d+)", lambda found: (found[1] or found[2]) * int(found[3]), text)
        if expanded == text:
            return text
        text = expanded


def _batch(config: MlmConfig) -> None:
    """Source: megatron/training/arguments.py:693-718 @ core 0.19.2; megatron/core/num_microbatches_calculator.py:382."""
    micro, replicas = config.number("micro_batch_size"), config.number("data_parallel_size")
    if config.get("global_batch_size") is None and micro is not None and replicas is not None:
        config.derive("global_batch_size", micro * replicas, "micro batch size x data parallel size")
    total = config.number("global_batch_size")
    if total is not None and micro and replicas:
        if total % (micro * replicas) and not config.on("decrease_batch_size_if_needed"):
            message = f"global batch {total} is not a multiple of micro batch {micro} x data parallel {replicas}"
            config.refuse("MLM-BATCH-05", message, path="--global-batch-size")
    elif micro == 0:
        config.refuse("MLM-BATCH-01", "micro batch size must be above 0", path="--micro-batch-size")
    if config.get("step_batch_size_schedule") is not None and "global_batch_size" in config.given:
        config.refuse("MLM-BATCH-02", "--step-batch-size-schedule and --global-batch-size exclude each other")


def _schedule(config: MlmConfig) -> None:
    """Source: megatron/training/arguments.py:1280-1300, :1394 @ core 0.19.2."""
    by_iterations = config.get("train_iters") is not None
    if by_iterations and config.get("train_samples") is not None:
        config.refuse("MLM-SCHED-01", "--train-iters and --train-samples exclude each other")
    if by_iterations and (config.get("lr_decay_samples") is not None or config.on("lr_warmup_samples")):
        config.refuse("MLM-SCHED-01", "--train-iters goes with --lr-decay-iters and --lr-warmup-iters")
    if config.get("train_samples") is not None and (config.get("lr_decay_iters") is not None or config.on("lr_warmup_iters")):
        config.refuse("MLM-SCHED-03", "--train-samples goes with --lr-decay-samples and --lr-warmup-samples")
    if config.get("lr_warmup_fraction") is not None and (config.on("lr_warmup_iters") or config.on("lr_warmup_samples")):
        config.refuse("MLM-SCHED-02", "--lr-warmup-fraction and a warmup length exclude each other", path="--lr-warmup-fraction")
    for unit in ("iters", "samples"):
        if config.get(f"lr_decay_{unit}") is None and config.get(f"train_{unit}") is not None:
            config.derive(f"lr_decay_{unit}", config.get(f"train_{unit}"), "unset means the whole run")
    warmup, decay = config.number("lr_warmup_iters"), config.number("lr_decay_iters")
    if warmup is not None and decay is not None and warmup >= decay:
        config.refuse(
            "MLM-SCHED-05", f"warmup of {warmup} iterations is not shorter than decay over {decay}", path="--lr-warmup-iters"
        )
    low, high = config.get("min_lr"), config.get("lr")
    if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
        config.refuse("MLM-SCHED-04", f"minimum rate {low} is above the rate {high}", path="--min-lr")
    if config.get("weight_decay_incr_style") == "constant":
        if config.given & {"start_weight_decay", "end_weight_decay"}:
            config.refuse("MLM-WD-01", "start and end weight decay need --weight-decay-incr-style linear or cosine")
        for dest in ("start_weight_decay", "end_weight_decay"):
            config.derive(dest, config.get("weight_decay"), "constant: equal to --weight-decay")


def _precision(config: MlmConfig) -> None:
    """Source: megatron/training/arguments.py:1180-1200 @ core 0.19.2 (bf16 reduces in fp32 unless told otherwise)."""
    if config.on("bf16") and config.on("fp16"):
        config.refuse("MLM-PREC-01", "--bf16 and --fp16 exclude each other")
    if config.on("grad_reduce_in_bf16"):
        config.derive("accumulate_allreduce_grads_in_fp32", False, "--grad-reduce-in-bf16")
    elif config.on("bf16") and config.get("main_grads_dtype") == "fp32" and not config.on("accumulate_allreduce_grads_in_fp32"):
        config.derive("accumulate_allreduce_grads_in_fp32", True, "bf16 with fp32 main gradients")
    if config.on("fp16") and config.get("loss_scale") is None:
        config.derive("check_for_nan_in_loss_and_grad", False, "dynamic loss scaling looks for overflow itself")
    if config.on("use_megatron_fsdp") and not config.on("use_distributed_optimizer"):
        config.derive("use_distributed_optimizer", True, "Megatron FSDP needs it")
    if config.on("nccl_ub") and config.on("use_megatron_fsdp"):
        for dest in ("fsdp_manual_registration", "fsdp_double_buffer"):
            config.derive(dest, True, "--nccl-ub with Megatron FSDP")


def _switched_by_others(config: MlmConfig) -> None:
    """Source: megatron/training/arguments.py:1817, :1960 @ core 0.19.2."""
    graphs = config.get("cuda_graph_impl") not in (None, "none")
    if graphs and config.get("transformer_impl") == "transformer_engine" and not config.on("te_rng_tracker"):
        config.derive("te_rng_tracker", True, "CUDA graphs need Transformer Engine's generator tracker; Bridge only asserts it")
    if config.on("async_save") and not config.on("use_persistent_ckpt_worker"):
        config.derive("async_save", False, "Megatron-LM saves synchronously without --use-persistent-ckpt-worker")


def _data(config: MlmConfig) -> None:
    """Source: megatron/training/arguments.py:670, :1255, :1682 @ core 0.19.2."""
    if config.get("data_path") is not None and config.get("split") is None:
        config.derive("split", "969, 30, 1", "Megatron-LM's default with --data-path")
    if config.get("dataloader_type") is None:
        config.derive("dataloader_type", "single", "unset means single")
    sources = [
        config.on("mock_data"),
        config.get("data_path") is not None,
        any(config.get(f"{part}_data_path") is not None for part in ("train", "valid", "test")),
    ]
    if sum(sources) > 1:
        config.refuse("MLM-DATA-04", "give one of --mock-data, --data-path and the per-split paths")


def _emerging_optimizers(config: MlmConfig) -> None:
    """Source: megatron/training/arguments.py:1729 @ core 0.19.2."""
    if config.get("optimizer") in ("sgd", "adam"):
        return
    layer_wise = config.on("use_distributed_optimizer") or config.get("optimizer") == "dist_muon"
    if layer_wise:
        config.derive("use_layer_wise_distributed_optimizer", True, "an emerging optimizer is distributed by layer")
        config.derive("use_distributed_optimizer", False, "an emerging optimizer is distributed by layer")


DERIVATIONS: tuple[Callable[[MlmConfig], None], ...] = (
    _deprecated,
    _world,
    _model,
    _parallel,
    _pipeline,
    _batch,
    _schedule,
    _precision,
    _switched_by_others,
    _data,
    _emerging_optimizers,
)
"""In the order in which `validate_args` works."""
