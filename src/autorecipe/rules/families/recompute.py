"""REC: activation recompute."""

from __future__ import annotations

from autorecipe.rules.declare import adjusts, requires
from autorecipe.rules.rule import Rule
from autorecipe.schema import Severity, Stage

SELECTIVE_016 = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
SELECTIVE_019 = (*SELECTIVE_016, "gdn_norm_out")
SELECTIVE = (*SELECTIVE_019, "gdp_in_proj", "gdp_qkv", "mhc")
"""Modules of selective recompute: core 0.16.1, core 0.19.2, and the development head of 2026-08-22."""

TRANSFORMER = "megatron/core/transformer/transformer_config.py"
OFF = {"model.recompute_granularity": None, "model.recompute_method": None, "model.recompute_num_layers": None}


RECOMPUTE = (
    requires(
        "REC001",
        "MC-REC-01",
        "recompute granularity is unset, full or selective",
        when="isset(recompute_granularity)",
        need="recompute_granularity in ('full', 'selective')",
        source="tc:1904",
        why="Nothing else is known.",
        bad="recompute_granularity=partial",
        good="recompute_granularity=selective",
    ),
    requires(
        "REC002",
        "MC-REC-02",
        "full recompute needs a method and a number of layers",
        when="recompute_granularity == 'full'",
        need=("recompute_method in ('block', 'uniform')", "isset(recompute_num_layers)"),
        source="tc:1916",
        why="Uniform groups layers into chunks of that size; block recomputes the first so many of each stage.",
        bad="recompute_granularity=full recompute_method=null recompute_num_layers=null",
        good="recompute_method=uniform recompute_num_layers=1",
        fixes=({"model.recompute_method": "uniform", "model.recompute_num_layers": 1}, OFF),
    ),
    requires(
        "REC003",
        "MC-REC-03 MLM-REC-02",
        "selective recompute takes modules, no method and no number of layers",
        when="recompute_granularity == 'selective'",
        need=("unset(get(recompute_num_layers))", "unset(get(recompute_method))"),
        source="tc:1931 + ar:1427",
        why="It recomputes parts of every layer.",
        bad="recompute_granularity=selective recompute_num_layers=4 recompute_method=null",
        good="recompute_num_layers=null",
        fixes=({"model.recompute_num_layers": None, "model.recompute_method": None},),
    ),
    requires(
        "REC004",
        "MC-REC-04",
        "distributed saved activations exclude sequence parallelism",
        when="on(distribute_saved_activations)",
        need="not on(sequence_parallel)",
        source="tc:1937",
        why="Activations are already split along the sequence.",
        bad="distribute_saved_activations=true sequence_parallel=true TP=2 num_attention_heads=2 recompute_granularity=full "
        "recompute_method=uniform recompute_num_layers=1",
        good="distribute_saved_activations=false",
    ),
    requires(
        "REC005",
        "MLM-REC-01",
        "distributed saved activations need TP and full recompute",
        when="on(distribute_saved_activations)",
        need=("TP > 1", "get(recompute_granularity) == 'full'", "isset(get(recompute_method))"),
        stage=Stage.PARSE,
        source="ar:1411",
        why="The saved inputs of recomputed layers are what is split over TP ranks.",
        bad="distribute_saved_activations=true TP=1 recompute_granularity=full recompute_method=uniform recompute_num_layers=1",
        good="distribute_saved_activations=false",
    ),
    adjusts(
        "REC006",
        "MC-REC-05",
        "unset recompute modules mean core attention",
        when="recompute_granularity == 'selective' and unset(recompute_modules)",
        effective={"model.recompute_modules": ["core_attn"]},
        severity=Severity.INFO,
        source="tc:1941",
        why="With fused attention that saves little.",
        bad="recompute_granularity=selective recompute_modules=null",
        good="recompute_modules=[mlp]",
    ),
    requires(
        "REC008",
        "MC-REC-07",
        "recomputing the expert activation needs grouped matrix products",
        when="recompute_granularity == 'selective' and has(recompute_modules, 'moe_act')",
        need="moe_grouped_gemm",
        source="tc:1966",
        why="Only the grouped experts have that activation as a step of its own.",
        bad="recompute_granularity=selective recompute_modules=[moe_act] moe_grouped_gemm=false",
        good="moe_grouped_gemm=true",
    ),
    requires(
        "REC009",
        "MC-REC-08",
        "recomputing the MLA up-projection needs MLA",
        when="recompute_granularity == 'selective' and has(recompute_modules, 'mla_up_proj')",
        need="multi_latent_attention",
        source="tc:1971",
        why="Other attention has no such projection.",
        bad="recompute_granularity=selective recompute_modules=[mla_up_proj] multi_latent_attention=false",
        good="recompute_modules=[core_attn]",
        fixes=({"model.recompute_modules": ["core_attn"]},),
        derive_fixes=False,
    ),
    requires(
        "REC010",
        "MC-REC-09",
        "recomputing the gated delta norm needs gated delta net",
        when="recompute_granularity == 'selective' and has(recompute_modules, 'gdn_norm_out')",
        need="contains(get(experimental_attention_variant), 'gdn') or contains(get(experimental_attention_variant), 'gated')",
        source="tc:1979",
        why="Other attention has no such norm.",
        bad="recompute_granularity=selective recompute_modules=[gdn_norm_out] experimental_attention_variant=null",
        good="recompute_modules=[core_attn]",
        fixes=({"model.recompute_modules": ["core_attn"]},),
    ),
    requires(
        "REC011",
        "MC-REC-10",
        "recomputing core attention saves little with fused attention",
        when="recompute_granularity == 'selective' and has(get(recompute_modules), 'core_attn')",
        need="name(get(attention_backend)) in ('unfused', 'local', None)",
        severity=Severity.INFO,
        source="tc:1987",
        why="Flash and fused attention keep no large matrix to save.",
        bad="recompute_granularity=selective recompute_modules=[core_attn] attention_backend=AttnBackend.flash",
        good="recompute_modules=[layernorm]",
    ),
    requires(
        "REC012",
        "MC-REC-11",
        "recomputed shared experts are not overlapped",
        when="recompute_granularity == 'selective' and has(recompute_modules, 'shared_experts')",
        need="not (isset(get(moe_shared_expert_intermediate_size)) and on(moe_shared_expert_overlap))",
        source="tc:1997",
        why="Their computation is spread over the dispatcher's steps and cannot be repeated as a whole.",
        bad="num_moe_experts=8 recompute_granularity=selective recompute_modules=[shared_experts] "
        "moe_shared_expert_intermediate_size=512 moe_shared_expert_overlap=true moe_token_dispatcher_type=alltoall",
        good="moe_shared_expert_overlap=false",
        fixes=({"model.moe_shared_expert_overlap": False},),
    ),
    requires(
        "REC013",
        "MC-REC-12",
        "recomputing activations or norms in FP8 needs a scaling that looks at the present",
        when="isset(FP8) and recompute_granularity == 'selective' and has(recompute_modules, 'moe_act', 'layernorm')",
        need=("FP8_RECIPE != 'delayed'", "TE >= version('2.6')"),
        source="tc:2004",
        why="Delayed scaling would update its history twice.",
        bad="fp8=hybrid fp8_recipe=delayed recompute_granularity=selective recompute_modules=[layernorm] "
        "package.transformer-engine=2.9",
        good="fp8_recipe=tensorwise",
        note="changes arithmetic: a new convergence experiment",
    ),
    adjusts(
        "REC014",
        "MC-REC-13",
        "the old MoE recompute flag becomes a selective module",
        when="on(moe_layer_recompute)",
        effective={"model.recompute_granularity": "selective"},
        source="tc:2021",
        why="With full recompute it is an error.",
        bad="moe_layer_recompute=true recompute_granularity=null",
        good="moe_layer_recompute=false recompute_granularity=selective",
    ),
    adjusts(
        "REC015",
        "MLM-DEP-03",
        "recompute_activations is selective recompute",
        when="on(mlm.recompute_activations)",
        effective={"model.recompute_granularity": "selective"},
        severity=Severity.INFO,
        stage=Stage.PARSE,
        source="ar:607",
        why="A shorthand of the parser.",
        bad="mlm.recompute_activations=true",
        good="mlm.recompute_activations=false",
    ),
    requires(
        "REC016",
        "MC-MHC-01",
        "hyper-connections take a narrow configuration",
        when="on(enable_hyper_connections) or on(use_hyper_connections)",
        need=(
            "not on(mtp_num_layers)",
            "get(recompute_granularity) != 'full'",
            "PP == 1",
            "not on(fp32_residual_connection)",
        ),
        source="tc:2030",
        why="The widened residual stream is not known to pipelines or full recompute.",
        bad="core=HEAD enable_hyper_connections=true PP=2 num_layers=4",
        good="PP=1",
        core=">=0.20",
    ),
    requires(
        "REC017",
        "MC-MHC-01",
        "recomputing hyper-connections needs them, alone",
        when="recompute_granularity == 'selective' and has(recompute_modules, 'mhc')",
        need=(
            "on(enable_hyper_connections) or on(use_hyper_connections)",
            "not has(recompute_modules, 'mlp')",
            "not on(fine_grained_activation_offloading)",
        ),
        source="tc:2030",
        why="The module covers the whole connection.",
        bad="core=HEAD recompute_granularity=selective recompute_modules=[mhc]",
        good="recompute_modules=[core_attn]",
        core=">=0.20",
    ),
)


def _selective(rule_id: str, names: tuple[str, ...], core: str, source: str, example: str, given: str = "") -> Rule:
    return requires(
        rule_id,
        "MC-REC-06",
        "selective recompute knows certain modules",
        when="recompute_granularity == 'selective' and isset(recompute_modules)" + (f" and {given}" if given else ""),
        need=f"within(recompute_modules, {names})",
        source=source,
        why="Others have no recompute path in this release.",
        legal={"model.recompute_modules": list(names)},
        bad=f"{example} recompute_granularity=selective recompute_modules=[attention]",
        good="recompute_modules=[core_attn]",
        fixes=({"model.recompute_modules": ["core_attn"]},),
        core=core,
    )


# Boundaries between releases that were read (0.16.1, 0.19.2, the head) are assumed to lie at the next minor release.
LISTS = (
    _selective("REC007", SELECTIVE, ">=0.20", "tc:1960", "core=HEAD"),
    _selective("REC030", SELECTIVE_019, ">=0.17 <0.20", f"{TRANSFORMER}:1768 @ core 0.19.2", "core=0.19.2", "CORE_GIVEN"),
    _selective("REC031", SELECTIVE_016, "<0.17", f"{TRANSFORMER}:1198 @ core 0.16.1", "core=0.16.1"),
    _selective("REC034", SELECTIVE, ">=0.17 <0.20", "tc:1960", "", "not CORE_GIVEN"),
    requires(
        "REC033",
        "MC-REC-06",
        "these recompute modules need a newer core than goes with this release as far as known",
        when=f"recompute_granularity == 'selective' and isset(recompute_modules) and not CORE_GIVEN "
        f"and within(recompute_modules, {SELECTIVE})",
        need=f"within(recompute_modules, {SELECTIVE_019})",
        severity=Severity.WARN,
        source=f"{TRANSFORMER}:1768 @ core 0.19.2",
        why="The published core 0.19.2 refuses gdp_in_proj, gdp_qkv and mhc; the development head knows them. "
        "State --core to be sure.",
        bad="recompute_granularity=selective recompute_modules=[mhc]",
        good="recompute_modules=[core_attn]",
        core="<0.20",
    ),
)


RULES = (*RECOMPUTE, *LISTS)
