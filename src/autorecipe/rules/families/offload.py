"""REC: offload of activations, weights and optimizer state."""

from __future__ import annotations

from autorecipe.rules.declare import adjusts, requires
from autorecipe.rules.rule import Rule
from autorecipe.schema import Stage

OFFLOADABLE_016 = ("core_attn", "attn_proj", "expert_fc1", "moe_act", "attn_norm", "mlp_norm", "qkv_linear")
OFFLOADABLE = (*OFFLOADABLE_016, "fused_group_mlp")
"""Modules of fine-grained offload: core 0.16.1, and core 0.19.2."""

TRANSFORMER = "megatron/core/transformer/transformer_config.py"
OFF = {"model.recompute_granularity": None, "model.recompute_method": None, "model.recompute_num_layers": None}


OFFLOAD = (
    requires(
        "REC018",
        "MC-OFF-01",
        "offloaded layers are fewer than all layers",
        when="cpu_offloading and isset(num_layers)",
        need="cpu_offloading_num_layers >= 0 and cpu_offloading_num_layers < num_layers",
        source="tc:1888",
        why="The last layer's activations are needed at once.",
        bad="cpu_offloading=true num_layers=4 cpu_offloading_num_layers=4 PP=1",
        good="cpu_offloading_num_layers=3",
    ),
    requires(
        "REC019",
        "MC-OFF-02",
        "CPU offload needs a single pipeline stage",
        when="cpu_offloading",
        need="PP == 1",
        source="tc:1893",
        why="Its order of transfers follows one forward and one backward pass.",
        bad="cpu_offloading=true num_layers=4 cpu_offloading_num_layers=2 PP=2",
        good="PP=1",
    ),
    requires(
        "REC020",
        "MC-OFF-03",
        "CPU offload excludes recompute",
        when="cpu_offloading",
        need="unset(recompute_granularity)",
        source="tc:1898",
        why="Both would own the same activations.",
        bad="cpu_offloading=true num_layers=4 cpu_offloading_num_layers=2 recompute_granularity=selective",
        good="recompute_granularity=null",
    ),
    adjusts(
        "REC021",
        "MLM-OFF-04",
        "a number of offloaded layers switches offload on",
        when="cpu_offloading_num_layers > 0 and cpu_offloading == False",
        effective={"model.cpu_offloading": True},
        stage=Stage.PARSE,
        source="ar:1951",
        why="Bridge does not: there the number alone does nothing.",
        bad="cpu_offloading_num_layers=2 cpu_offloading=false num_layers=4",
        good="cpu_offloading=true",
    ),
    requires(
        "REC023",
        "MC-FGO-02",
        "offloading the attention projection needs core attention offloaded too",
        when="fine_grained_activation_offloading and has(offload_modules, 'attn_proj')",
        need="has(offload_modules, 'core_attn')",
        source="tc:2150",
        why="The projection's input is the attention's output.",
        bad="fine_grained_activation_offloading=true offload_modules=[attn_proj] env.NVTE_CPU_OFFLOAD_V1=1",
        good="offload_modules=[attn_proj,core_attn]",
        fixes=({"model.offload_modules": ["attn_proj", "core_attn"]},),
    ),
    requires(
        "REC024",
        "MC-FGO-03",
        "recomputed experts are not offloaded",
        when="fine_grained_activation_offloading and has(get(recompute_modules), 'moe')",
        need="not has(offload_modules, 'moe_act', 'expert_fc1', 'fused_group_mlp')",
        source="tc:2170",
        core=">=0.17",
        why="What is recomputed is not kept.",
        bad="fine_grained_activation_offloading=true offload_modules=[moe_act] recompute_modules=[moe] "
        "recompute_granularity=selective env.NVTE_CPU_OFFLOAD_V1=1",
        good="offload_modules=[core_attn]",
    ),
    requires(
        "REC025",
        "MC-FGO-04",
        "offloading fused experts needs the TE op fuser alone",
        when="fine_grained_activation_offloading and has(offload_modules, 'fused_group_mlp')",
        need=("on(use_transformer_engine_op_fuser)", "not has(offload_modules, 'expert_fc1', 'moe_act')"),
        source="tc:2188",
        why="The fused operation holds the other two.",
        bad="fine_grained_activation_offloading=true offload_modules=[fused_group_mlp] use_transformer_engine_op_fuser=false "
        "env.NVTE_CPU_OFFLOAD_V1=1",
        good="use_transformer_engine_op_fuser=true",
    ),
    requires(
        "REC026",
        "MC-FGO-05",
        "offload sizes and fractions are in range",
        when="fine_grained_activation_offloading",
        need=(
            "unset(get(min_offloaded_tensor_size)) or min_offloaded_tensor_size >= 0",
            "unset(get(activation_offload_fraction)) or 0 <= activation_offload_fraction <= 1",
            "unset(get(delta_offload_bytes_across_pp_ranks)) or delta_offload_bytes_across_pp_ranks >= 0",
        ),
        source="tc:2181",
        why="Negative sizes and fractions above 1 mean nothing.",
        bad="fine_grained_activation_offloading=true offload_modules=[core_attn] activation_offload_fraction=1.5 "
        "env.NVTE_CPU_OFFLOAD_V1=1",
        good="activation_offload_fraction=0.5",
    ),
    requires(
        "REC027",
        "BR-FGO-01 MLM-OFF-03",
        "fine-grained offload needs Transformer Engine layers and its first offload interface",
        when="fine_grained_activation_offloading",
        need=(
            "get(transformer_impl) in ('transformer_engine', None)",
            "TE < version('2.10') or env.NVTE_CPU_OFFLOAD_V1 == '1'",
        ),
        stage=Stage.VALIDATE,
        frameworks=("bridge", "megatron-lm"),
        source="bc:2214 + ar:1940",
        why="From Transformer Engine 2.10 on its new interface would offload weights as well.",
        bad="fine_grained_activation_offloading=true offload_modules=[core_attn] package.transformer-engine=2.10 environment=",
        good="env.NVTE_CPU_OFFLOAD_V1=1",
        fixes=({"env.NVTE_CPU_OFFLOAD_V1": "1"}, {"model.fine_grained_activation_offloading": False}),
    ),
    requires(
        "REC028",
        "MLM-OFF-01",
        "optimizer offload needs the precision-aware optimizer",
        when="on(optimizer.optimizer_cpu_offload)",
        need="optimizer.use_precision_aware_optimizer",
        stage=Stage.PARSE,
        source="ar:1886",
        why="The CPU copy holds the states in the precision that it manages.",
        bad="optimizer.optimizer_cpu_offload=true optimizer.use_precision_aware_optimizer=false",
        good="optimizer.use_precision_aware_optimizer=true",
    ),
    requires(
        "REC029",
        "MLM-OFF-02",
        "optimizer offload with FP8 parameters needs delayed scaling",
        when="on(optimizer.optimizer_cpu_offload) and on(ddp.fp8_param_gather)",
        need="FP8_RECIPE == 'delayed'",
        stage=Stage.PARSE,
        source="ar:1891",
        why="Other recipes quantise on the GPU from values that it no longer holds.",
        bad="optimizer.optimizer_cpu_offload=true ddp.fp8_param_gather=true fp8=hybrid fp8_recipe=tensorwise "
        "optimizer.use_precision_aware_optimizer=true",
        good="fp8_recipe=delayed",
    ),
)


def _offloadable(rule_id: str, names: tuple[str, ...], core: str, source: str, example: str) -> Rule:
    return requires(
        rule_id,
        "MC-FGO-01",
        "fine-grained offload needs modules of its list, and no CPU offload",
        when="fine_grained_activation_offloading",
        need=("not on(cpu_offloading)", "count(get(offload_modules)) > 0", f"within(get(offload_modules), {names})"),
        source=source,
        why="It moves the saved inputs of named modules.",
        legal={"model.offload_modules": list(names)},
        bad=f"core={example} fine_grained_activation_offloading=true offload_modules=[] env.NVTE_CPU_OFFLOAD_V1=1",
        good="offload_modules=[core_attn]",
        core=core,
    )


# Boundaries between releases that were read (0.16.1, 0.19.2) are assumed to lie at the next minor release.
RULES = (
    *OFFLOAD,
    _offloadable("REC022", OFFLOADABLE, ">=0.17", f"{TRANSFORMER}:1853 @ core 0.19.2", "0.19.2"),
    _offloadable("REC032", OFFLOADABLE_016, "<0.17", f"{TRANSFORMER}:1273 @ core 0.16.1", "0.16.1"),
)
