"""OVL: overlap of communication, and who decides it."""

from __future__ import annotations

from collections.abc import Iterator

from autorecipe.rules.context import Context
from autorecipe.rules.declare import adjusts, computes, requires, show
from autorecipe.rules.rule import Breach, Verdict
from autorecipe.schema import Fix, Severity, Stage

BOTH = ("bridge", "megatron-lm")
FILLED = {
    "ddp.overlap_grad_reduce": "comm_overlap.overlap_grad_reduce",
    "ddp.overlap_param_gather": "comm_overlap.overlap_param_gather",
}


@computes(
    "OVL001",
    "BR-OVL-03 TRAP-OVL",
    "with comm_overlap present, overlap is decided there and not on ddp",
    formula="comm_overlap and distributed optimizer and DP > 1 -> ddp.overlap_* := comm_overlap.overlap_*, true where unset",
    paths="ddp.overlap_grad_reduce ddp.overlap_param_gather comm_overlap.overlap_grad_reduce comm_overlap.overlap_param_gather",
    severity=Severity.AUTO_FIX,
    stage=Stage.NEVER,
    source="bo:578",
    why="Bridge writes the overlap settings over ddp.* and optimizer.* after overrides are applied, so that an "
    "override on ddp has "
    "no effect and no message.",
    bad="gpus=8 comm_overlap.tp_comm_overlap=false ddp.use_distributed_optimizer=true ddp.overlap_grad_reduce=false "
    "comm_overlap.overlap_grad_reduce=null",
    good="comm_overlap.overlap_grad_reduce=false comm_overlap.overlap_param_gather=false",
)
def overlap_owner(context: Context) -> Iterator[Verdict]:
    """Report overlap flags on ddp that will be overwritten."""
    if context.derived("COMM_OVERLAP") is not True or context.derived("DISTRIBUTED") is not True:
        return
    if context.dp is None or context.dp < 2:
        return
    effective = {}
    for path, owner in FILLED.items():
        given = context.values.get(path)
        acting = context.get(owner, True)
        if isinstance(given, bool) and given != acting:
            effective[path] = acting
    if not effective:
        return
    typed = [path for path in effective if context.origin(path) == "override"]
    wanted = {owner: context.values[path] for path, owner in FILLED.items() if path in effective}
    if wanted.get("comm_overlap.overlap_grad_reduce") is False:
        wanted["comm_overlap.overlap_param_gather"] = False
    yield Breach(
        message=f"{', '.join(f'{path}={show(context.values[path])}' for path in effective)} will not act: comm_overlap sets "
        + ", ".join(f"{path}={show(value)}" for path, value in effective.items()),
        severity=Severity.ERROR if typed else Severity.INFO if context.config.origins else None,
        paths=tuple(effective),
        effective=effective,
        fixes=(Fix(overrides=wanted),),
        hint="put the setting on comm_overlap",
    )


RULES = (
    overlap_owner,
    adjusts(
        "OVL002",
        "BR-OVL-01",
        "TP overlap is switched off without TP or sequence parallelism",
        when="get(comm_overlap.tp_comm_overlap) == True and (TP < 2 or sequence_parallel == False)",
        effective={"model.tp_comm_overlap": False},
        severity=Severity.INFO,
        stage=Stage.FINALIZE,
        source="bo:444",
        why="Bridge warns and clears it; the overlap hides the gathers of sequence parallelism.",
        bad="comm_overlap.tp_comm_overlap=true TP=1",
        good="comm_overlap.tp_comm_overlap=false",
    ),
    requires(
        "OVL003",
        "MLM-TPOVL-01",
        "TP overlap needs sequence parallelism",
        when="TP_OVERLAP and TP > 1",
        need="sequence_parallel",
        stage=Stage.PARSE,
        source="ar:1442",
        why="It hides the gathers and scatters of sequence parallelism.",
        bad="TP=2 tp_comm_overlap=true sequence_parallel=false num_attention_heads=2",
        good="sequence_parallel=true",
    ),
    adjusts(
        "OVL004",
        "BR-OVL-02",
        "comm_overlap decides how stages exchange activations",
        when="COMM_OVERLAP and PP > 1 and get(comm_overlap.overlap_p2p_comm) == None and isset(overlap_p2p_comm) "
        "and ((VP > 1 and not overlap_p2p_comm) or (VP == 1 and overlap_p2p_comm))",
        effective={"model.overlap_p2p_comm": "=VP > 1", "model.batch_p2p_comm": "=VP == 1"},
        stage=Stage.FINALIZE,
        source="bo:460",
        why="Overlapped with virtual stages, batched without, whatever the model fields say.",
        bad="comm_overlap.tp_comm_overlap=false PP=2 VP=2 num_layers=4 overlap_p2p_comm=false",
        good="overlap_p2p_comm=true",
    ),
    requires(
        "OVL005",
        "MLM-OVL-01",
        "overlapped parameter gathers need sharded optimizer states",
        when="on(ddp.overlap_param_gather)",
        need="DISTRIBUTED or FSDP or get(optimizer.optimizer) == 'dist_muon'",
        stage=Stage.PARSE,
        source="ar:1027",
        why="Without shards there is nothing to gather.",
        bad="ddp.overlap_param_gather=true ddp.overlap_grad_reduce=true ddp.use_distributed_optimizer=false "
        "ddp.use_megatron_fsdp=false",
        good="ddp.use_distributed_optimizer=true",
    ),
    requires(
        "OVL006",
        "MLM-OVL-02",
        "overlapped parameter gathers need overlapped gradient reduction",
        when="on(ddp.overlap_param_gather)",
        need="ddp.overlap_grad_reduce",
        stage=Stage.PARSE,
        source="ar:1029",
        why="Both use the same buckets.",
        bad="ddp.overlap_param_gather=true ddp.overlap_grad_reduce=false ddp.use_distributed_optimizer=true",
        good="ddp.overlap_grad_reduce=true",
    ),
    requires(
        "OVL007",
        "MLM-OVL-03",
        "gathering in the optimizer step needs virtual stages and the torch format",
        when="on(optimizer.overlap_param_gather_with_optimizer_step)",
        need=("DISTRIBUTED", "ddp.overlap_param_gather", "VP > 1", "get(checkpoint.ckpt_format) == 'torch'"),
        stage=Stage.PARSE,
        source="ar:1074",
        why="The first virtual stage's parameters are gathered while the optimizer still works on the rest.",
        bad="optimizer.overlap_param_gather_with_optimizer_step=true ddp.use_distributed_optimizer=true "
        "ddp.overlap_param_gather=true "
        "ddp.overlap_grad_reduce=true PP=2 VP=2 num_layers=4 checkpoint.ckpt_format=torch_dist",
        good="optimizer.overlap_param_gather_with_optimizer_step=false",
    ),
    requires(
        "OVL008",
        "MLM-OVL-04",
        "saving parameters by interval excludes overlapped gathers",
        when="isset(get(checkpoint.save)) and isset(get(checkpoint.save_params_interval))",
        need="not on(ddp.overlap_param_gather)",
        stage=Stage.PARSE,
        source="ar:1368",
        why="They may be saved before they are gathered.",
        bad="checkpoint.save=/x checkpoint.save_params_interval=10 ddp.overlap_param_gather=true ddp.overlap_grad_reduce=true "
        "ddp.use_distributed_optimizer=true checkpoint.save_interval=10",
        good="ddp.overlap_param_gather=false",
    ),
    adjusts(
        "OVL009",
        "BR-OVL-06",
        "either flag of the distributed optimizer switches both on",
        when="isset(ddp.use_distributed_optimizer) and isset(optimizer.use_distributed_optimizer) "
        "and ddp.use_distributed_optimizer != optimizer.use_distributed_optimizer",
        effective={"ddp.use_distributed_optimizer": True, "optimizer.use_distributed_optimizer": True},
        stage=Stage.VALIDATE,
        source="bc:2117",
        why="Setting one of them false does nothing but warn.",
        bad="ddp.use_distributed_optimizer=false optimizer.use_distributed_optimizer=true",
        good="optimizer.use_distributed_optimizer=false",
        fixes=({"ddp.use_distributed_optimizer": False, "optimizer.use_distributed_optimizer": False},),
        hint="set both to false",
    ),
    adjusts(
        "OVL010",
        "BR-OVL-06",
        "either flag of overlapped parameter gathers switches both on",
        when="isset(ddp.overlap_param_gather) and isset(optimizer.overlap_param_gather) "
        "and ddp.overlap_param_gather != optimizer.overlap_param_gather",
        effective={"ddp.overlap_param_gather": True, "optimizer.overlap_param_gather": True},
        severity=Severity.INFO,
        stage=Stage.VALIDATE,
        source="bc:2117",
        why="Setting one of them false does nothing but warn.",
        bad="ddp.overlap_param_gather=false optimizer.overlap_param_gather=true",
        good="optimizer.overlap_param_gather=false",
        fixes=({"ddp.overlap_param_gather": False, "optimizer.overlap_param_gather": False},),
    ),
    requires(
        "OVL011",
        "BR-OVL-05 MLM-DWG-01",
        "delayed weight gradients need Transformer Engine layers of a fitting release",
        when="DELAY_WGRAD",
        need=(
            "get(transformer_impl) in ('transformer_engine', None)",
            "not on(ddp.overlap_grad_reduce) or TE >= version('2.8')",
            "TE >= version('2.7')",
        ),
        frameworks=BOTH,
        source="bo:535 + ar:1905",
        why="Older releases add delayed gradients to the wrong buffer.",
        bad="delay_wgrad_compute=true num_moe_experts=8 EP=2 overlap_moe_expert_parallel_comm=true "
        "moe_token_dispatcher_type=alltoall bf16=true package.transformer-engine=2.6",
        good="package.transformer-engine=2.9",
        fixes=({"model.delay_wgrad_compute": False},),
    ),
    requires(
        "OVL012",
        "MLM-DWG-02 BR-OVL-05",
        "delayed weight gradients inside graphs need fused accumulation and no attention bias",
        when="DELAY_WGRAD and get(GRAPH_IMPL) == 'transformer_engine' and (has(GRAPHS, 'attn') or (has(GRAPHS, 'moe_router') "
        "and isset(get(moe_shared_expert_intermediate_size)) and not on(moe_shared_expert_overlap)))",
        need=(
            "TE >= version('2.12')",
            "gradient_accumulation_fusion",
            "not has(GRAPHS, 'attn') or not (on(add_bias_linear) or on(add_qkv_bias))",
        ),
        frameworks=BOTH,
        source="ar:1918 + bo:535",
        why="Ordinary accumulation has no fixed addresses to capture.",
        bad="delay_wgrad_compute=true num_moe_experts=8 EP=2 overlap_moe_expert_parallel_comm=true use_te_rng_tracker=true "
        "moe_token_dispatcher_type=alltoall bf16=true cuda_graph_impl=transformer_engine cuda_graph_modules=[attn] "
        "gradient_accumulation_fusion=false package.transformer-engine=2.12",
        good="gradient_accumulation_fusion=true",
    ),
    requires(
        "OVL013",
        "BR-OVL-07",
        "overlapped gradient reduction excludes a no-sync function of one's own",
        when="on(ddp.overlap_grad_reduce)",
        need="unset(get(no_sync_func))",
        stage=Stage.INIT,
        source="bs:622",
        why="Bridge installs its own.",
        bad="ddp.overlap_grad_reduce=true no_sync_func=my:function",
        good="no_sync_func=null",
    ),
)
