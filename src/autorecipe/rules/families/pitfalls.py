"""PIT: what runs, and is likely not what is wanted. Advice, with the numbers behind it."""

from __future__ import annotations

from collections.abc import Iterator

from autorecipe.rules.context import Context
from autorecipe.rules.declare import computes, requires
from autorecipe.rules.derived import AXIS_PATHS
from autorecipe.rules.layout import divisors, tensor_parallel_fits
from autorecipe.rules.rule import BRIDGE, Breach, Verdict
from autorecipe.schema import Evidence, Fix, Severity, Stage
from autorecipe.schema.preset import TEXT_FINETUNING

BOTH = ("bridge", "megatron-lm")
GUIDE = "Megatron Bridge recipe guide (2026-08-03)"
LONG = 8192
HOPPER = "CAPABILITY < version('10.0') and CAPABILITY >= version('9.0')"


@computes(
    "PIT001",
    "PIT-TP-KV",
    "TP above the key-value heads copies them",
    formula="TP <= groups",
    paths="tensor_model_parallel_size num_query_groups",
    severity=Severity.WARN,
    stage=Stage.NEVER,
    frameworks=BOTH,
    source=f"{GUIDE}; lm:megatron/core/transformer/transformer_config.py:1466",
    why="From core 0.16 on it is legal: each key-value head is held by TP / groups ranks, which saves neither "
    "memory nor work there.",
    evidence=Evidence.DERIVED,
    bad="TP=8 num_query_groups=2 num_attention_heads=32 sequence_parallel=true",
    good="TP=2",
)
def replicated_heads(context: Context) -> Iterator[Verdict]:
    """Report replicated key-value heads."""
    tp, groups = context.layout.tp, context.integer("model.num_query_groups")
    if not groups or tp <= groups or tp % groups or context.model("multi_latent_attention"):
        return
    if not tensor_parallel_fits(tp, groups, context.core):
        return
    yield Breach(
        message=f"TP={tp} exceeds num_query_groups={groups}: each key-value head is copied to {tp // groups} ranks",
        severity=Severity.INFO,
        legal={AXIS_PATHS["TP"]: divisors(groups)},
        fixes=(Fix(overrides={AXIS_PATHS["TP"]: groups}),),
        facts={"copies": tp // groups},
    )


@computes(
    "PIT002",
    "PIT-PP-VP",
    "a pipeline without virtual stages idles longer",
    formula="bubble = (PP - 1) / (VP * M), with M microbatches; advice above 10%",
    paths="pipeline_model_parallel_size virtual_pipeline_model_parallel_size train.global_batch_size",
    severity=Severity.WARN,
    stage=Stage.NEVER,
    frameworks=BOTH,
    source=f"{GUIDE}; Narayanan et al. 2021, arXiv:2104.04473, section 2.2",
    why="Interleaving divides the bubble by the number of virtual stages, at the price of more communication.",
    evidence=Evidence.PUBLISHED,
    bad="gpus=64 PP=8 num_layers=32 train.global_batch_size=128 train.micro_batch_size=1",
    good="VP=4",
)
def pipeline_bubble(context: Context) -> Iterator[Verdict]:
    """Compute the bubble, and what virtual stages would make of it."""
    layout, count = context.layout, context.microbatches
    if layout.pp == 1 or layout.vp > 1 or not count or context.derived("HYBRID") is True:
        return
    bubble = (layout.pp - 1) / count
    if bubble < 0.10:
        return
    layers = context.integer("model.num_layers") or 0
    plain = not any(context.model(f"num_layers_in_{end}_pipeline_stage") for end in ("first", "last"))
    plain = plain and context.model("pipeline_model_parallel_layout") is None and layers % layout.pp == 0
    sizes = [size for size in divisors(layers // layout.pp) if 1 < size <= 8] if plain and count % layout.pp == 0 else []
    best = sizes[-1] if sizes else None
    text = f"; VP={best} makes it {bubble / best:.0%}" if best else ""
    yield Breach(
        message=f"PP={layout.pp} without virtual stages and {count} microbatches has a bubble of {bubble:.0%} of "
        f"the compute time{text}",
        legal={AXIS_PATHS["VP"]: sizes},
        fixes=(Fix(overrides={AXIS_PATHS["VP"]: best}, note="shrinks the pipeline bubble"),) if best else (),
        facts={"bubble": round(bubble, 4), "num_microbatches": count},
        hint="more microbatches or virtual stages shrink the bubble",
    )


@computes(
    "PIT003",
    "PIT-EP-SMALL",
    "a large mixture of experts wants expert parallelism",
    formula="experts per rank = experts / EP; advice above 32 per rank where the GPUs allow more EP",
    paths="expert_model_parallel_size num_moe_experts",
    severity=Severity.WARN,
    stage=Stage.NEVER,
    frameworks=BOTH,
    source=GUIDE,
    why="EP shards expert parameters only, TP does not shard them with ETP 1: when memory is short, raise EP "
    "first. Each rank holds "
    "experts / EP of them.",
    evidence=Evidence.PUBLISHED,
    bad="gpus=16 num_moe_experts=128 EP=1 ETP=1",
    good="EP=16",
)
def small_expert_parallel(context: Context) -> Iterator[Verdict]:
    """Report many experts per rank."""
    experts, layout, world = context.integer("model.num_moe_experts"), context.layout, context.world
    if not experts or experts % layout.ep or experts // layout.ep <= 32 or not world:
        return
    legal = [
        size for size in divisors(experts) if size > layout.ep and size <= 64 and world % (layout.pp * size * layout.etp) == 0
    ]
    if not legal:
        return
    yield Breach(
        message=f"EP={layout.ep} leaves {experts // layout.ep} of {experts} experts on each rank",
        legal={AXIS_PATHS["EP"]: legal},
        fixes=tuple(Fix(overrides={AXIS_PATHS["EP"]: size}) for size in legal[-2:]),
        hint="on out-of-memory raise EP, not TP",
        facts={"experts_per_rank": experts // layout.ep},
    )


@computes(
    "PIT004",
    "PIT-LONG-CP",
    "a long sequence wants context parallelism",
    formula="S > 8192 -> CP > 1",
    paths="dataset.seq_length context_parallel_size",
    severity=Severity.WARN,
    stage=Stage.NEVER,
    frameworks=BOTH,
    source=GUIDE,
    why="Activations grow with the local sequence; without CP long contexts run out of memory. Look for _16k, "
    "_64k and _128k variants too.",
    evidence=Evidence.PUBLISHED,
    bad="gpus=8 dataset.seq_length=32768 CP=1",
    good="CP=4",
)
def long_context(context: Context) -> Iterator[Verdict]:
    """Report long sequences without context parallelism."""
    length, layout, world = context.seq_length, context.layout, context.world
    if length is None or length <= LONG or layout.cp > 1:
        return
    wanted = -(-length // LONG)
    sizes = [size for size in (2, 4, 8, 16) if length % (2 * size) == 0]
    if world:
        sizes = [size for size in sizes if world % (layout.dense_model_parallel_size * size) == 0]
    best = next((size for size in sizes if size >= wanted), sizes[-1] if sizes else None)
    yield Breach(
        message=f"a sequence of {length} tokens without context parallelism",
        legal={AXIS_PATHS["CP"]: [1, *sizes]},
        fixes=(Fix(overrides={AXIS_PATHS["CP"]: best}),) if best else (),
        hint=f"{AXIS_PATHS['CP']}={best}" if best else "needs more GPUs for context parallelism",
    )


@computes(
    "PIT005",
    "PIT-TP-NODE",
    "TP stays inside a node, unless NVLink spans nodes",
    formula="TP <= GPUs of a node, or <= GPUs of an NVLink domain",
    paths="tensor_model_parallel_size",
    severity=Severity.WARN,
    stage=Stage.NEVER,
    frameworks=BOTH,
    source=GUIDE,
    why="TP communicates in every layer; over the network it dominates the step.",
    evidence=Evidence.PUBLISHED,
    bad="gpus=32 gpu=h100 TP=16 num_attention_heads=64 num_query_groups=16 sequence_parallel=true",
    good="TP=8",
)
def tensor_in_node(context: Context) -> Iterator[Verdict]:
    """Compare TP with what NVLink reaches."""
    if context.cluster is None:
        return
    reach = max(context.cluster.gpus_per_node, context.cluster.gpu.nvlink_domain_size)
    tp = context.layout.tp
    if tp <= reach:
        return
    smaller = [size for size in divisors(tp) if size <= reach]
    yield Breach(
        message=f"TP={tp} reaches beyond the {reach} GPUs that NVLink joins",
        legal={AXIS_PATHS["TP"]: smaller},
        fixes=(Fix(overrides={AXIS_PATHS["TP"]: smaller[-1]}),),
        hint="use pipeline or context parallelism across nodes",
    )


@computes(
    "PIT006",
    "PIT-BENCH REC-011",
    "forced balancing and mock data prove nothing about convergence",
    formula="moe_router_force_load_balancing, or a benchmark recipe, is benchmark-only",
    paths="moe_router_force_load_balancing",
    severity=Severity.WARN,
    stage=Stage.NEVER,
    frameworks=BOTH,
    source="perf_recipes: 210 of 367 benchmark recipes force balancing (evaluated), no library recipe does",
    why="Tokens are spread evenly instead of routed: the loss and the checkpoint mean nothing. Use the library "
    "recipe of the same size.",
    evidence=Evidence.DERIVED,
    bad="num_moe_experts=8 moe_router_force_load_balancing=true",
    good="moe_router_force_load_balancing=false",
)
def forced_balancing(context: Context) -> Iterator[Verdict]:
    """Report benchmark-only routing."""
    if context.model("moe_router_force_load_balancing") is True:
        wanted = context.given.get("goal") == "train"
        yield Breach(
            message="moe_router_force_load_balancing is on: routing is forced, so that loss and checkpoints are benchmark-only",
            severity=Severity.ERROR if wanted else Severity.INFO if context.config.kind == "benchmark" else None,
            fixes=(Fix(overrides={"model.moe_router_force_load_balancing": False}, note="a new convergence experiment"),),
            hint="use the library recipe of the same size for training",
        )


RULES = (
    replicated_heads,
    pipeline_bubble,
    small_expert_parallel,
    long_context,
    tensor_in_node,
    forced_balancing,
    requires(
        "PIT007",
        "PIT-FSDP-TP",
        "FSDP on Hopper goes with TP 1 or 2",
        when=f"FSDP and {HOPPER}",
        need="TP <= 2",
        severity=Severity.WARN,
        stage=Stage.NEVER,
        frameworks=BOTH,
        source=GUIDE,
        why="Gathers of parameters and TP communication share NVLink; FSDP pays off on GB and B systems.",
        evidence=Evidence.PUBLISHED,
        bad="gpus=8 gpu=h100 ddp.use_megatron_fsdp=true ddp.data_parallel_sharding_strategy=optim_grads_params TP=4 "
        "num_attention_heads=8 sequence_parallel=true",
        good="TP=2",
        fixes=({"model.tensor_model_parallel_size": 2},),
    ),
    requires(
        "PIT008",
        "PIT-MOE-OGR",
        "MoE on Hopper may be slower with overlapped gradient reduction",
        when=f"MOE and {HOPPER} and ddp.overlap_grad_reduce",
        need="False",
        severity=Severity.INFO,
        stage=Stage.NEVER,
        frameworks=BOTH,
        source=GUIDE,
        why="Many shipped H100 recipes of MoE models switch it off: reductions and all-to-all share the links.",
        evidence=Evidence.PUBLISHED,
        bad="gpus=8 gpu=h100 num_moe_experts=8 ddp.overlap_grad_reduce=true",
        good="ddp.overlap_grad_reduce=false",
        fixes=({"ddp.overlap_grad_reduce": False, "ddp.overlap_param_gather": False},),
        hint="measure both",
    ),
    requires(
        "PIT009",
        "PIT-VLM-DATA",
        "fine-tuning a vision-language model needs images",
        when="(contains(get(model._class), 'VL') or contains(get(model._class), 'Omni')) and FINETUNING",
        need="DATASET not in ('gptsftdatasetconfig', 'finetuningdatasetconfig') "
        f"and get(given.dataset) not in {TEXT_FINETUNING!r}",
        severity=Severity.WARN,
        stage=Stage.NEVER,
        frameworks=(BRIDGE,),
        source=GUIDE,
        why="It runs on text alone, and what it learns about images is nonsense. Give a multimodal data set, or mock images.",
        evidence=Evidence.PUBLISHED,
        bad="model._class=Qwen3VLModelProvider mode=sft dataset._class=GPTSFTDatasetConfig checkpoint.pretrained_checkpoint=/m "
        "dataset.hf_dataset._class=X",
        good="dataset._class=MockVLMSFTDatasetConfig",
    ),
    requires(
        "PIT010",
        "PIT-QWEN35VL-FSDP",
        "Qwen3.5-VL MoE with FSDP was tried on Blackwell only",
        when="contains(get(model._class), 'Qwen35VL') and MOE and FSDP",
        need="CAPABILITY >= version('10.0')",
        severity=Severity.WARN,
        stage=Stage.NEVER,
        frameworks=(BRIDGE,),
        source=GUIDE,
        why="It may not work on H100: try a few steps first.",
        evidence=Evidence.PUBLISHED,
        bad="gpus=8 gpu=h100 model._class=Qwen35VLMoEModelProvider num_moe_experts=8 ddp.use_megatron_fsdp=true "
        "ddp.data_parallel_sharding_strategy=optim_grads_params",
        good="gpu=gb200",
    ),
    requires(
        "PIT011",
        "PIT-SP",
        "TP goes with sequence parallelism",
        when="TP > 1 and not MOE",
        need="sequence_parallel",
        severity=Severity.WARN,
        stage=Stage.NEVER,
        frameworks=BOTH,
        source=GUIDE,
        why="Without it each TP rank keeps a full copy of the activations between layers; splitting them costs nothing.",
        evidence=Evidence.PUBLISHED,
        bad="TP=2 sequence_parallel=false num_moe_experts=null num_attention_heads=2 num_query_groups=2",
        good="sequence_parallel=true",
    ),
    requires(
        "PIT012",
        "PIT-CP-HEADS",
        "all-to-all context parallelism splits the key-value heads",
        when="CP > 1 and get(cp_comm_type) == 'a2a' and num_query_groups >= 1",
        need="num_query_groups % (TP * CP) == 0",
        severity=Severity.WARN,
        stage=Stage.RUNTIME,
        frameworks=BOTH,
        source=GUIDE,
        why="Heads are exchanged against sequence; a2a+p2p with hierarchical sizes lets CP exceed them.",
        evidence=Evidence.PUBLISHED,
        bad="CP=16 TP=1 cp_comm_type=a2a num_query_groups=8 num_attention_heads=32 dataset.seq_length=131072",
        good="cp_comm_type=p2p",
        derive_fixes=False,
        fixes=({"model.cp_comm_type": "p2p"},),
    ),
    requires(
        "PIT013",
        "PIT-RNG",
        "both random-number trackers go with CUDA graphs",
        when="GRAPH_IMPL != 'none' and isset(get(use_te_rng_tracker)) and isset(get(rng.te_rng_tracker))",
        need="use_te_rng_tracker == rng.te_rng_tracker",
        severity=Severity.INFO,
        stage=Stage.NEVER,
        frameworks=(BRIDGE,),
        source="br:src/megatron/bridge/models/gpt_provider.py:236",
        why="Bridge turns both on when either is; a provider built without its validation needs model.use_te_rng_tracker itself.",
        bad="cuda_graph_impl=transformer_engine use_te_rng_tracker=false rng.te_rng_tracker=true",
        good="use_te_rng_tracker=true",
    ),
)
