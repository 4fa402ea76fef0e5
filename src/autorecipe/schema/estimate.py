"""What the estimators take besides shape, layout and batch, and what they give back.

Start at `ExecutionPolicy` (how a step is executed), `MemoryEstimate` and `TimeEstimate`. All sizes are bytes of one GPU, all
times seconds, unless a name says otherwise.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from autorecipe.record import dataclass, field
from autorecipe.schema.evidence import Evidence

CURRENT_SOFTWARE = 2026
"""Year of the containers that estimates are made for, unless told otherwise."""


class Precision(enum.StrEnum):
    """Arithmetic of the linear layers. FP8: one scale per tensor; FP8_BLOCK: one per 128 x 128; MXFP8 and NVFP4: Blackwell's
    own.
    """

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    FP8_BLOCK = "fp8_block"
    MXFP8 = "mxfp8"
    NVFP4 = "nvfp4"

    @property
    def is_quantized(self) -> bool:
        """Whether linear layers read operands of 8 bits or fewer."""
        return self in (Precision.FP8, Precision.FP8_BLOCK, Precision.MXFP8, Precision.NVFP4)


class LayerImplementation(enum.StrEnum):
    """TE: Transformer Engine's layers. LOCAL: the layers used where it is not installed (torch attention and norms)."""

    TE = "te"
    LOCAL = "local"


class Sharding(enum.StrEnum):
    """What one data-parallel rank holds: everything, a shard of the optimizer, or less (the FSDP strategies)."""

    REPLICATED = "replicated"
    OPTIMIZER = "optimizer"
    OPTIMIZER_GRADS = "optimizer_grads"
    FULL = "full"


@dataclass(frozen=True, kw_only=True)
class Recompute:
    """Activation recomputation.

    Attributes:
        granularity: `none`, `selective` or `full`.
        method: `uniform` or `block`, for full.
        num_layers: layers per recomputed group (uniform), or layers recomputed per pipeline chunk (block).
        modules: modules recomputed, for selective.
    """

    granularity: str = "none"
    method: str = "uniform"
    num_layers: int = 1
    modules: frozenset[str] = frozenset()

    @property
    def is_full(self) -> bool:
        """Whether whole layers are recomputed."""
        return self.granularity == "full"

    def render(self) -> str:
        """Render as `full/uniform/1`, `selective(core_attn,mlp)` or `none`."""
        if self.is_full:
            return f"full/{self.method}/{self.num_layers}"
        return f"selective({','.join(sorted(self.modules))})" if self.modules else "none"


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """Low-rank adapters on a frozen base model.

    Attributes:
        rank: rank of the adapters.
        targets: linear modules that have one (`linear_qkv`, `linear_proj`, `linear_fc1`, `linear_fc2`).
        dora: whether a magnitude vector is trained too.
        shares_experts: whether the experts of a rank share one adapter per product, instead of one each.
    """

    rank: int = 32
    targets: frozenset[str] = frozenset({"linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"})
    dora: bool = False
    shares_experts: bool = True


@dataclass(frozen=True, kw_only=True)
class StageSplit:
    """How decoder layers fall on pipeline stages; all unset: evenly.

    Attributes:
        first: layers of the first stage, or None.
        last: layers of the last stage, or None.
        embedding_counts: whether the embedding counts as a layer.
        loss_counts: whether the output layer counts as a layer.
        explicit: layers of each chunk, chunk 0 of all stages first, or empty.
        mtp_chunk: index of the chunk with multi-token prediction in that order, or None for the last.
    """

    first: int | None = None
    last: int | None = None
    embedding_counts: bool = False
    loss_counts: bool = False
    explicit: tuple[int, ...] = ()
    mtp_chunk: int | None = None


@dataclass(frozen=True, kw_only=True)
class ExecutionPolicy:
    """How one step is executed; everything about it that is neither shape, nor layout, nor batch.

    Attributes:
        precision: arithmetic of the linear layers.
        quantized_params: whether weights are stored as 8-bit values (with the master copy in the optimizer).
        layers: whose layers run.
        attention_backend: `flash`, `fused`, `unfused` or `auto`.
        recompute: activation recomputation.
        split: how layers fall on stages.
        sharding: what a data-parallel rank holds.
        fsdp: whether weights and gradients move through FSDP's own buffers (its strategy is `sharding`).
        optimizer_instances: copies of the sharded optimizer; each spans DP x CP / copies ranks.
        grad_bytes: bytes of one element of the gradient buffer.
        master_bytes: bytes of the optimizer's own copy of a weight (0: none).
        moment_bytes: bytes of both optimizer moments together.
        optimizer_offload: part of the optimizer states kept in host memory, 0 to 1.
        offloaded_layers: layers of each chunk whose activations wait in host memory.
        offloaded_modules: modules whose activations wait in host memory, for fine-grained offloading.
        overlap_grad_reduce: data-parallel gradient reduction runs during the backward pass.
        overlap_param_gather: parameter all-gather runs during the forward pass.
        tp_comm_overlap: tensor-parallel communication runs beside the products.
        overlap_p2p: pipeline transfers run beside computation.
        overlap_moe: expert-parallel exchange runs beside computation of another micro batch.
        dispatcher: `allgather`, `alltoall`, `deepep` or `hybridep`.
        permute_fusion: tokens are permuted by one fused kernel.
        router_fusion: the router's scores, top-k and probabilities run as fused kernels.
        fused_experts: products, activation and quantization of the experts run as one grouped kernel.
        routed_share: part of the expert groups that one token may reach (below 1 under group-limited routing).
        capacity_factor: tokens per expert against an even split, where experts have a fixed capacity; None: dropless.
        imbalance: tokens of the busiest rank against an even split (1: even, as under forced balancing).
        cuda_graph: `none`, `local`, `te` or `full` (one graph for the iteration).
        graph_modules: modules that partial graphs capture (`attn`, `mlp`, `mamba`, `moe_router`, `moe_preprocess`); empty: all.
        cross_entropy: `unfused`, `native`, `te`, `in_place` (the gradient takes the logits' place) or `linear` (never stores
            the logits).
        fused_layers: own layers rotate and activate in single kernels, computing the gated activation again in the backward pass.
        fused_grads: own layers accumulate weight gradients straight into the gradient buffer.
        on_gpu: whether the run has GPUs, whose libraries keep workspaces; the trace has none.
        activation_fusion: bias and gated activation run as one kernel.
        rope_fusion: rotary embedding runs as one kernel.
        fp8_dispatch: tokens travel between experts as 8-bit values.
        fp8_attention: scores and values of attention are multiplied in 8 bits.
        cp_comm_type: `p2p`, `all_gather`, `a2a` or `a2a+p2p`.
        dropout: whether any dropout rate is above zero.
        adapters: low-rank adapters on frozen weights, or None for full training.
        training: False for a forward pass alone.
        packed_tokens: mean tokens of the documents in a packed sample, beyond which attention does not look; None: not packed.
        software_year: year of the container; kernels and communication libraries improve from year to year.
    """

    precision: Precision = Precision.BF16
    quantized_params: bool = False
    layers: LayerImplementation = LayerImplementation.TE
    attention_backend: str = "auto"
    recompute: Recompute = Recompute()
    split: StageSplit = StageSplit()
    sharding: Sharding = Sharding.OPTIMIZER
    fsdp: bool = False
    optimizer_instances: int = 1
    grad_bytes: float = 4.0
    master_bytes: float = 4.0
    moment_bytes: float = 8.0
    optimizer_offload: float = 0.0
    offloaded_layers: int = 0
    offloaded_modules: frozenset[str] = frozenset()
    overlap_grad_reduce: bool = False
    overlap_param_gather: bool = False
    tp_comm_overlap: bool = False
    overlap_p2p: bool = True
    overlap_moe: bool = False
    dispatcher: str = "alltoall"
    permute_fusion: bool = False
    router_fusion: bool = False
    fused_experts: bool = False
    routed_share: float = 1.0
    capacity_factor: float | None = None
    imbalance: float = 1.0
    cuda_graph: str = "none"
    graph_modules: frozenset[str] = frozenset()
    cross_entropy: str = "unfused"
    fused_layers: bool = False
    fused_grads: bool = False
    on_gpu: bool = True
    activation_fusion: bool = True
    rope_fusion: bool = False
    fp8_dispatch: bool = False
    fp8_attention: bool = False
    cp_comm_type: str = "p2p"
    dropout: bool = False
    adapters: Adapters | None = None
    training: bool = True
    packed_tokens: float | None = None
    software_year: int = CURRENT_SOFTWARE


class Verdict(enum.StrEnum):
    """FITS: also with the upper end of the interval. AT_RISK: only with the lower end. OOM: not even then."""

    FITS = "FITS"
    AT_RISK = "AT RISK"
    OOM = "OOM"


@dataclass(frozen=True, kw_only=True)
class StageMemory:
    """Memory of one rank of one pipeline stage, at the moment of its peak.

    Attributes:
        stage: pipeline rank.
        layers: decoder layers of the stage (all its chunks).
        parameters: parameters that the rank holds, before FSDP sharding.
        weights_bytes: model weights.
        gradients_bytes: gradient buffers.
        optimizer_bytes: master weights and moments.
        activations_bytes: tensors saved for the backward passes of all micro batches in flight.
        activations_by_kind: the same by kind of block (`attention`, `mlp`, `moe` ...).
        logits_bytes: output layer, logits and loss.
        transient_bytes: working set of the block that runs, exchange and gather buffers.
        microbatches_in_flight: whole micro batches whose activations are alive.
    """

    stage: int
    layers: int
    parameters: int
    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    activations_by_kind: Mapping[str, float]
    logits_bytes: float
    transient_bytes: float
    microbatches_in_flight: float

    @property
    def resident_bytes(self) -> float:
        """What stays allocated between steps."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes

    @property
    def peak_bytes(self) -> float:
        """Peak of the allocator's `allocated` counter."""
        return self.resident_bytes + self.activations_bytes + self.logits_bytes + self.transient_bytes


@dataclass(frozen=True, kw_only=True)
class PublishedError:
    """An estimator's own error on public measurements.

    Attributes:
        configuration: class of configurations that it holds for.
        median_pct: median absolute error in percent.
        p90_pct: 90th percentile of the absolute error in percent.
        bias_pct: median signed error in percent (positive: estimate too high).
        rows: measurements compared.
        method: such as `leave one model out`.
    """

    configuration: str
    median_pct: float
    p90_pct: float
    bias_pct: float
    rows: int
    method: str


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Memory of a run on its worst rank.

    Attributes:
        method: `closed-form` or `trace`.
        evidence: how the numbers were obtained.
        stages: one entry per pipeline stage that was looked at.
        worst_stage: index of the stage with the highest peak.
        allocated_bytes: lower and upper end for the allocator's peak on the worst rank.
        reserved_bytes: the same for what the allocator takes from the device.
        outside_bytes: lower and upper end for CUDA context, communicators and libraries.
        capacity_bytes: memory of the GPU, or 0 where none was given.
        capacity_fact: which fact about the GPU that is: `visible_memory_bytes`, or `memory_bytes` of the data sheet.
        verdict: whether it fits, or None where no GPU was given.
        not_modelled: what the number leaves out.
        assumptions: what was assumed where the configuration says nothing.
        error: the estimator's own error for this class of configuration, or None.
    """

    method: str
    evidence: Evidence
    stages: tuple[StageMemory, ...]
    worst_stage: int
    allocated_bytes: tuple[float, float]
    reserved_bytes: tuple[float, float]
    outside_bytes: tuple[float, float]
    capacity_bytes: int
    verdict: Verdict | None
    not_modelled: tuple[str, ...]
    capacity_fact: str = ""
    assumptions: tuple[str, ...] = ()
    error: PublishedError | None = None

    @property
    def worst(self) -> StageMemory:
        """The stage with the highest peak."""
        return next(stage for stage in self.stages if stage.stage == self.worst_stage)

    @property
    def peak_bytes(self) -> float:
        """Expected peak of allocated bytes on the worst rank."""
        return self.worst.peak_bytes


class FlopFormula(enum.StrEnum):
    """Which floating-point operations count as work.

    MEGATRON: products, attention's causal half (Megatron-Core and Bridge logs since 2025). FULL_ATTENTION: products,
    attention over the full square (NeMo 2.0, older Megatron-LM). SIX_N: 6 x active parameters, no attention.
    """

    MEGATRON = "megatron"
    FULL_ATTENTION = "full-attention"
    SIX_N = "6n"


@dataclass(frozen=True, kw_only=True)
class TimeEstimate:
    """Time of one optimizer step.

    Attributes:
        step_seconds: expected time of a step.
        interval_seconds: lower and upper end, from the published error.
        breakdown_seconds: exposed seconds by part; they add up to `step_seconds`.
        hidden_seconds: communication that runs beside computation, by part.
        tokens_per_second_per_gpu: tokens of a step / step time / GPUs.
        flops_per_token: by the formula named below.
        tflops_per_gpu: model TFLOP/s per GPU by that formula.
        mfu: that over the peak of the GPU at `mfu_precision`.
        mfu_precision: precision of the peak used.
        flop_formula: which formula.
        bubble_fraction: idle part of the pipeline.
        num_microbatches: micro batches per step and pipeline.
        evidence: how it was obtained.
        assumptions: what was assumed where the configuration says nothing.
        error: the estimator's own error for this class of configuration, or None.
    """

    step_seconds: float
    interval_seconds: tuple[float, float]
    breakdown_seconds: Mapping[str, float]
    hidden_seconds: Mapping[str, float]
    tokens_per_second_per_gpu: float
    flops_per_token: float
    tflops_per_gpu: float
    mfu: float
    mfu_precision: str
    flop_formula: FlopFormula
    bubble_fraction: float
    num_microbatches: int
    evidence: Evidence = Evidence.DERIVED
    assumptions: tuple[str, ...] = ()
    error: PublishedError | None = None


@dataclass(frozen=True, kw_only=True)
class BudgetEstimate:
    """What a token budget costs.

    Attributes:
        tokens: budget.
        steps: optimizer steps, rounded up.
        days: wall-clock days, without restarts and evaluation.
        gpu_hours: GPUs x hours.
        cost: GPU hours x price, or None where no price was given.
        interval_days: lower and upper end.
    """

    tokens: float
    steps: int
    days: float
    gpu_hours: float
    cost: float | None = None
    interval_days: tuple[float, float] = field(default=(0.0, 0.0))
