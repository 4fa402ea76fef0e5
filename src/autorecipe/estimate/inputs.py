"""A resolved configuration as the estimators' arguments. Reads each path once; searches never come back here.

Precedence follows upstream: `mixed_precision.*` over `ddp.*`, `comm_overlap.*` over `model.*`. What the configuration leaves
open is taken from upstream's defaults and listed in `assumptions`.
"""

from __future__ import annotations

from typing import Any

from autorecipe.config.views import view_batch, view_layout, view_model
from autorecipe.estimate.pipeline_layout import parse_pipeline_layout
from autorecipe.record import dataclass, replace
from autorecipe.schema.batch import Batch
from autorecipe.schema.estimate import (
    Adapters,
    ExecutionPolicy,
    LayerImplementation,
    Precision,
    Recompute,
    Sharding,
    StageSplit,
)
from autorecipe.schema.layout import Layout
from autorecipe.schema.model import ModelShape
from autorecipe.schema.run import RunConfig
from autorecipe.schema.value import UNKNOWN

FSDP_STRATEGIES = {
    "no_shard": Sharding.REPLICATED,
    "optim": Sharding.OPTIMIZER,
    "optim_grads": Sharding.OPTIMIZER_GRADS,
    "optim_grads_params": Sharding.FULL,
}


PACKED_DOCUMENT_TOKENS = 500.0
"""Mean length of the documents in a packed sample. Evidence: assumed (SQuAD has about 200, instruction sets some hundreds)."""


@dataclass(frozen=True, kw_only=True)
class EstimateInputs:
    """Arguments of the estimators, read from one configuration.

    Attributes:
        shape: the model.
        layout: parallel layout.
        batch: batch sizes and sequence.
        policy: how a step is executed.
        assumptions: what was assumed where the configuration says nothing.
    """

    shape: ModelShape
    layout: Layout
    batch: Batch
    policy: ExecutionPolicy
    assumptions: tuple[str, ...] = ()


def read_inputs(config: RunConfig, *, layers: LayerImplementation | None = None, on_gpu: bool = True) -> EstimateInputs:
    """Read shape, layout, batch and policy from a configuration.

    Args:
        config: resolved configuration.
        layers: whose layers will run; None takes `model.transformer_impl` (upstream's default is Transformer Engine).
        on_gpu: whether the run has GPUs; the engine's own layers fuse only there.

    Raises:
        UsageError: naming every path that is needed and not set.
    """
    layout = view_layout(config)
    policy, assumptions = read_policy(config, layers=layers, layout=layout, on_gpu=on_gpu)
    return EstimateInputs(
        shape=_shape(config),
        layout=layout,
        batch=view_batch(config),
        policy=policy,
        assumptions=assumptions,
    )


def _shape(config: RunConfig) -> ModelShape:
    """Return the shape; a vocabulary that the model sets is padded only where the configuration asks for it."""
    shape = view_model(config)
    given = config.get("model.vocab_size", None)
    pads = config.get("model.should_pad_vocab", None) is True or config.get("tokenizer.use_tokenizer_vocab_size", None) is True
    if isinstance(given, int) and not pads:
        return replace(shape, make_vocab_size_divisible_by=1)
    return shape


def read_policy(
    config: RunConfig, *, layout: Layout, layers: LayerImplementation | None = None, on_gpu: bool = True
) -> tuple[ExecutionPolicy, tuple[str, ...]]:
    """Read the execution policy, and what was assumed for it."""
    reader = _Reader(config)
    if layers is None:
        layers = LayerImplementation.LOCAL if reader.text("model.transformer_impl") == "local" else LayerImplementation.TE
    precision = _precision(reader)
    sharding, fsdp = _sharding(reader)
    adapters = _adapters(reader)
    # Fused forms read weights past their modules, and so past adapters (engine/build.py).
    fuses = on_gpu and adapters is None and layers is LayerImplementation.LOCAL and precision in (Precision.BF16, Precision.FP16)
    moments, master = _optimizer_bytes(reader, precision)
    assumptions = list(reader.assumptions)
    if _packed_tokens(reader):
        assumptions.append(f"documents of {PACKED_DOCUMENT_TOKENS:.0f} tokens in packed samples: attention does not cross them")
    if reader.has("model.num_moe_experts") and not reader.flag("model.moe_router_force_load_balancing"):
        assumptions.append("tokens spread evenly over the experts (natural routing is uneven, most of all early in training)")
    if sharding is Sharding.REPLICATED and fsdp:
        assumptions.append("data_parallel_sharding_strategy is no_shard, so FSDP shards nothing")
    overlap = reader.has("comm_overlap._class") or reader.has("comm_overlap.tp_comm_overlap")
    # A comm_overlap section replaces the model's own switches when upstream applies it.
    model = "ignored" if overlap else "model"
    policy = ExecutionPolicy(
        precision=precision,
        quantized_params=precision.is_quantized
        and (
            reader.flag("mixed_precision.fp8_param_gather")
            or reader.flag("mixed_precision.fp8_param")
            or reader.flag("model.fp8_param")
        ),
        layers=layers,
        attention_backend=reader.text("model.attention_backend").rsplit(".", 1)[-1] or "auto",
        recompute=_recompute(reader),
        split=_split(reader, layout),
        sharding=sharding,
        fsdp=fsdp,
        optimizer_instances=reader.number("ddp.num_distributed_optimizer_instances", 1),
        grad_bytes=_grad_bytes(reader, precision),
        master_bytes=master,
        moment_bytes=moments,
        optimizer_offload=_offload(reader),
        offloaded_layers=reader.number("model.cpu_offloading_num_layers", 0) if reader.flag("model.cpu_offloading") else 0,
        offloaded_modules=_offloaded_modules(reader),
        overlap_grad_reduce=reader.first_flag("comm_overlap.overlap_grad_reduce", "ddp.overlap_grad_reduce", default=overlap),
        overlap_param_gather=reader.first_flag("comm_overlap.overlap_param_gather", "ddp.overlap_param_gather", default=overlap),
        tp_comm_overlap=reader.first_flag("comm_overlap.tp_comm_overlap", f"{model}.tp_comm_overlap", default=False),
        overlap_p2p=reader.first_flag("comm_overlap.overlap_p2p_comm", f"{model}.overlap_p2p_comm", default=overlap),
        overlap_moe=reader.first_flag(
            "comm_overlap.overlap_moe_expert_parallel_comm", "model.overlap_moe_expert_parallel_comm", default=False
        ),
        dispatcher=_dispatcher(reader),
        permute_fusion=reader.flag("model.moe_permute_fusion"),
        router_fusion=reader.flag("model.moe_router_fusion"),
        fused_experts=reader.flag("model.use_transformer_engine_op_fuser") and precision is Precision.MXFP8,
        routed_share=_routed_share(reader),
        capacity_factor=reader.real("model.moe_expert_capacity_factor"),
        cuda_graph=_cuda_graph(reader),
        graph_modules=_graph_modules(reader),
        cross_entropy=_cross_entropy(reader, layers, layout, fuses=fuses),
        fused_layers=fuses and reader.text("engine.fused_layers") != "off",
        on_gpu=on_gpu,
        fused_grads=fuses and reader.text("engine.fused_grad") != "off",
        activation_fusion=reader.first_flag("model.bias_activation_fusion", default=True),
        rope_fusion=reader.flag("model.apply_rope_fusion"),
        fp8_attention=precision.is_quantized and reader.flag("mixed_precision.fp8_dot_product_attention"),
        cp_comm_type=reader.text("model.cp_comm_type") or "p2p",
        dropout=any(reader.real(f"model.{name}") for name in ("hidden_dropout", "attention_dropout")),
        adapters=adapters,
        packed_tokens=_packed_tokens(reader),
    )
    return policy, tuple(assumptions)


class _Reader:
    """Typed reads; unknown and unset read as absent."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.assumptions: list[str] = []

    def value(self, path: str) -> Any:
        found = self.config.get(path, None)
        return None if found is UNKNOWN else found

    def has(self, path: str) -> bool:
        return self.value(path) not in (None, "", 0, False)

    def text(self, path: str) -> str:
        found = self.value(path)
        if isinstance(found, list | tuple) and found:
            found = found[0]
        return found if isinstance(found, str) else ""

    def flag(self, path: str) -> bool:
        return self.value(path) is True

    def first_flag(self, *paths: str, default: bool) -> bool:
        for path in paths:
            found = self.value(path)
            if isinstance(found, bool):
                return found
        return default

    def number(self, path: str, default: int) -> int:
        found = self.value(path)
        return found if isinstance(found, int) and not isinstance(found, bool) else default

    def real(self, path: str) -> float | None:
        found = self.value(path)
        return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def _precision(reader: _Reader) -> Precision:
    name = reader.text("mixed_precision")
    if reader.has("mixed_precision.fp4") or reader.has("model.fp4") or "nvfp4" in name:
        return Precision.NVFP4
    if reader.has("mixed_precision.fp8") or reader.has("model.fp8") or "fp8" in name:
        recipe = reader.text("mixed_precision.fp8_recipe") or reader.text("model.fp8_recipe") or name
        if "mxfp8" in recipe:
            return Precision.MXFP8
        return Precision.FP8_BLOCK if "block" in recipe or "subchannel" in recipe else Precision.FP8
    if reader.flag("mixed_precision.bf16") or reader.flag("model.bf16") or "bf16" in name:
        return Precision.BF16
    if reader.flag("mixed_precision.fp16") or reader.flag("model.fp16") or "fp16" in name:
        return Precision.FP16
    if reader.value("mixed_precision.bf16") is False or "32" in reader.text("mixed_precision.params_dtype") or name == "fp32":
        return Precision.FP32
    reader.assumptions.append("BF16 (no precision is set)")
    return Precision.BF16


def _sharding(reader: _Reader) -> tuple[Sharding, bool]:
    if reader.flag("ddp.use_megatron_fsdp") or reader.flag("dist.use_megatron_fsdp") or reader.flag("ddp.use_custom_fsdp"):
        return FSDP_STRATEGIES.get(reader.text("ddp.data_parallel_sharding_strategy") or "no_shard", Sharding.REPLICATED), True
    if reader.flag("dist.use_torch_fsdp2"):
        return Sharding.FULL, True
    shards = reader.first_flag("ddp.use_distributed_optimizer", "optimizer.use_distributed_optimizer", default=False)
    shards = shards or reader.flag("optimizer.use_distributed_optimizer")
    return (Sharding.OPTIMIZER if shards else Sharding.REPLICATED), False


def _grad_bytes(reader: _Reader, precision: Precision) -> float:
    if precision is Precision.FP32:
        return 4.0
    in_fp32 = reader.first_flag("mixed_precision.grad_reduce_in_fp32", "ddp.grad_reduce_in_fp32", default=True)
    return 4.0 if in_fp32 else 2.0


def _optimizer_bytes(reader: _Reader, precision: Precision) -> tuple[float, float]:
    """Return (bytes of both moments, bytes of the master weight)."""
    name = reader.text("optimizer.optimizer") or "adam"
    aware = reader.flag("optimizer.use_precision_aware_optimizer")
    first = _width(reader.text("optimizer.exp_avg_dtype")) if aware else 4.0
    second = _width(reader.text("optimizer.exp_avg_sq_dtype")) if aware else 4.0
    moments = {"sgd": 4.0 if reader.real("optimizer.sgd_momentum") else 0.0, "muon": 4.0, "dist_muon": 4.0, "lion": 4.0}.get(
        name, first + second
    )
    if precision is Precision.FP32:
        return moments, 0.0
    master = 4.0
    if aware:
        # A 32-bit master beside a bf16 weight is stored as the 16 bits that the weight lacks.
        master = 2.0 if "16" in reader.text("optimizer.main_params_dtype") or precision is Precision.BF16 else 4.0
    return moments, master


def _width(dtype: str) -> float:
    if "8" in dtype:
        return 1.0
    return 2.0 if "16" in dtype else 4.0


def _offload(reader: _Reader) -> float:
    if not reader.flag("optimizer.optimizer_cpu_offload"):
        return 0.0
    fraction = reader.real("optimizer.optimizer_offload_fraction")
    return 1.0 if fraction is None else fraction


def _recompute(reader: _Reader) -> Recompute:
    granularity = reader.text("model.recompute_granularity") or "none"
    modules = reader.value("model.recompute_modules")
    if granularity == "selective":
        names = frozenset(modules) if isinstance(modules, list | tuple) else frozenset({"core_attn"})
        return Recompute(granularity="selective", modules=names)
    if granularity == "full":
        return Recompute(
            granularity="full",
            method=reader.text("model.recompute_method") or "uniform",
            num_layers=reader.number("model.recompute_num_layers", 1),
        )
    return Recompute()


def _split(reader: _Reader, layout: Layout) -> StageSplit:
    explicit: tuple[int, ...] = ()
    mtp_chunk = None
    given = reader.value("model.pipeline_model_parallel_layout")
    if given:
        parsed = parse_pipeline_layout(given)
        if parsed is not None and len(parsed.layers) == layout.pp * layout.vp:
            explicit, mtp_chunk = parsed.layers, parsed.mtp_chunk
        else:
            reader.assumptions.append("layers split evenly (model.pipeline_model_parallel_layout does not fit PP x VP)")
    first = reader.value("model.num_layers_in_first_pipeline_stage")
    last = reader.value("model.num_layers_in_last_pipeline_stage")
    return StageSplit(
        first=first if isinstance(first, int) else None,
        last=last if isinstance(last, int) else None,
        embedding_counts=reader.flag("model.account_for_embedding_in_pipeline_split"),
        loss_counts=reader.flag("model.account_for_loss_in_pipeline_split"),
        explicit=explicit,
        mtp_chunk=mtp_chunk,
    )


def _dispatcher(reader: _Reader) -> str:
    kind = reader.text("model.moe_token_dispatcher_type") or "alltoall"
    if kind != "flex":
        return kind
    return reader.text("model.moe_flex_dispatcher_backend") or "deepep"


def _cuda_graph(reader: _Reader) -> str:
    implementation = reader.text("model.cuda_graph_impl") or ("local" if reader.flag("model.enable_cuda_graph") else "none")
    if implementation in ("none", ""):
        return "none"
    scope = reader.value("model.cuda_graph_scope") or reader.value("model.cuda_graph_modules") or ""
    if implementation == "full_iteration" or "full_iteration" in str(scope):
        return "full"
    return "local" if implementation == "local" else "te"


def _graph_modules(reader: _Reader) -> frozenset[str]:
    """Return the modules of partial graphs; the newer name of the field holds `full` where the older one is in use."""
    for path in ("model.cuda_graph_scope", "model.cuda_graph_modules"):
        names = reader.value(path)
        if isinstance(names, list | tuple) and names:
            return frozenset(str(name).rsplit(".", 1)[-1] for name in names)
    return frozenset()


def _cross_entropy(reader: _Reader, layers: LayerImplementation, layout: Layout, *, fuses: bool) -> str:
    if layers is LayerImplementation.LOCAL:
        # What the engine fuses (engine/fusion/apply.py): bf16, no tensor parallelism, no prediction depths.
        can = fuses and layout.tp == 1 and not reader.has("model.mtp_num_layers")
        return "in_place" if can and reader.text("engine.fused_loss") != "off" else "unfused"
    if not reader.flag("model.cross_entropy_loss_fusion"):
        return "unfused"
    implementation = reader.text("model.cross_entropy_fusion_impl") or "native"
    return implementation if implementation in ("native", "te", "linear") else "native"


def _offloaded_modules(reader: _Reader) -> frozenset[str]:
    names = reader.value("model.offload_modules") if reader.flag("model.fine_grained_activation_offloading") else None
    return frozenset(map(str, names)) if isinstance(names, list | tuple) else frozenset()


def _routed_share(reader: _Reader) -> float:
    groups, chosen = reader.number("model.moe_router_num_groups", 0), reader.number("model.moe_router_group_topk", 0)
    return min(1.0, chosen / groups) if groups > 1 and chosen else 1.0


def _packed_tokens(reader: _Reader) -> float | None:
    packs = reader.flag("dataset.enable_offline_packing") or any(
        reader.has(f"dataset.packed_sequence_specs{end}") for end in ("", ".packed_sequence_size")
    )
    return PACKED_DOCUMENT_TOKENS if packs else None


def _adapters(reader: _Reader) -> Adapters | None:
    if reader.config.mode != "peft" and not reader.has("peft._class") and not reader.has("peft.dim"):
        return None
    targets = reader.value("peft.target_modules")
    names = (
        frozenset(str(name).rsplit(".", 1)[-1] for name in targets) if isinstance(targets, list | tuple) else Adapters().targets
    )
    is_dora = "DoRA" in reader.text("peft._class")
    return Adapters(
        rank=reader.number("peft.dim", 32),
        targets=names,
        dora=is_dora,
        shares_experts=not is_dora
        and reader.value("peft.share_expert_adapters") is not False
        and reader.flag("model.moe_grouped_gemm"),
    )
