"""HYB: hybrid models (Mamba, gated delta net) and their layer patterns."""

from __future__ import annotations

from collections.abc import Iterator

from autorecipe.rules.context import Context
from autorecipe.rules.declare import adjusts, computes, requires
from autorecipe.rules.derived import AXIS_PATHS
from autorecipe.rules.hybrid import parse_pattern
from autorecipe.rules.layout import divisors
from autorecipe.rules.rule import BRIDGE, Breach, Verdict
from autorecipe.rules.stages import balanced_edges
from autorecipe.schema import Fix, Severity, Stage

BOTH = ("bridge", "megatron-lm")
LAYERS, PP, VP = "model.num_layers", AXIS_PATHS["PP"], AXIS_PATHS["VP"]
FIRST = "model.num_layers_in_first_pipeline_stage"
LAST = "model.num_layers_in_last_pipeline_stage"
GDN = "contains(get(experimental_attention_variant), 'gdn') or contains(get(experimental_attention_variant), 'gated')"


def _text(context: Context) -> str:
    return str(context.derived("PATTERN") or "")


@computes(
    "HYB001",
    "BR-HYB-02 MLM-HYB-02",
    "the number of layers is the length of the pattern",
    formula="num_layers unset or equal to the layers of hybrid_layer_pattern",
    paths="hybrid_layer_pattern num_layers",
    frameworks=BOTH,
    source="br:src/megatron/bridge/models/hybrid/hybrid_provider.py:248 + ar:793",
    why="Bridge stops with an assertion; Megatron-LM warns and takes the pattern.",
    bad="hybrid_layer_pattern=M*M* num_layers=6",
    good="num_layers=4",
)
def pattern_length(context: Context) -> Iterator[Verdict]:
    """Compare the pattern with num_layers."""
    text, layers = _text(context), context.integer(LAYERS)
    if not text or layers is None:
        return
    length = parse_pattern(text).num_layers
    if length == layers:
        return
    bridge = context.framework == BRIDGE
    yield Breach(
        message=f"the layer pattern has {length} layers, but num_layers={layers}"
        + ("" if bridge else "; Megatron-LM takes the pattern"),
        severity=None if bridge else Severity.AUTO_FIX,
        effective={} if bridge else {LAYERS: length},
        legal={LAYERS: [length]},
        fixes=(Fix(overrides={LAYERS: length}),),
    )


@computes(
    "HYB002",
    "MC-HYBPP-01 MLM-HYB-03 MLM-HYB-05",
    "a pattern must split over pipeline stages",
    formula="without |: layers % PP == 0 (or even middle stages) and no VP; with |: segments % PP == 0 and no edge counts",
    paths="hybrid_layer_pattern pipeline_model_parallel_size num_layers_in_first_pipeline_stage "
    "num_layers_in_last_pipeline_stage",
    stage=Stage.BUILD,
    frameworks=BOTH,
    source="lm:megatron/core/models/hybrid/hybrid_layer_allocation.py:388 + ar:805 + ar:851",
    why="Stages are slices of the pattern, or its own segments.",
    bad="hybrid_layer_pattern=M*M*M* num_layers=6 PP=4",
    good="PP=2",
)
def pattern_stages(context: Context) -> Iterator[Verdict]:
    """Check the pattern against the pipeline."""
    text = _text(context)
    if not text:
        return
    pattern, pp = parse_pattern(text), context.layout.pp
    first, last = context.integer(FIRST), context.integer(LAST)
    cleared = {path: None for path, count in ((FIRST, first), (LAST, last)) if count is not None}
    if len(pattern.segments) > 1:
        if cleared:
            yield Breach(
                message="a pattern with | already says where stages end; edge counts are refused", fixes=(Fix(overrides=cleared),)
            )
        if len(pattern.segments) % pp:
            legal = divisors(len(pattern.segments))
            yield Breach(
                message=f"{len(pattern.segments)} segments are not a multiple of PP={pp}",
                legal={PP: legal},
                fixes=(Fix(overrides={PP: max(size for size in legal if size < pp)}),),
            )
        return
    if pp == 1:
        return
    edges = [count for count in (first, last) if count is not None]
    middle_layers, middle_stages = pattern.num_layers - sum(edges), pp - len(edges)
    if middle_layers >= 0 and (middle_layers == 0 if middle_stages <= 0 else middle_layers % middle_stages == 0):
        return
    legal = divisors(pattern.num_layers)
    fixes = [
        Fix(overrides={FIRST: one, LAST: two}, note="uneven split") for one, two in balanced_edges(pattern.num_layers, pp, 1)[:1]
    ]
    fixes.append(Fix(overrides={PP: max(size for size in legal if size < pp), **cleared}))
    yield Breach(
        message=f"{pattern.num_layers} layers of the pattern do not split over PP={pp}"
        + (f" with edges {edges}" if edges else ""),
        legal={PP: legal},
        fixes=tuple(fixes),
    )


@computes(
    "HYB003",
    "MLM-HYB-06",
    "a pattern has known letters, one kind of attention and equal depths",
    formula="letters in M G * D + - E; not * with D or +; all MTP parts equal",
    paths="hybrid_layer_pattern",
    stage=Stage.PARSE,
    frameworks=BOTH,
    source="lm:megatron/core/models/hybrid/hybrid_layer_allocation.py:263",
    why="Each letter is a layer.",
    bad="hybrid_layer_pattern=MXM* num_layers=4",
    good="hybrid_layer_pattern=M*M*",
)
def pattern_letters(context: Context) -> Iterator[Verdict]:
    """Check the letters of the pattern."""
    text = _text(context)
    if text and (problems := parse_pattern(text).problems):
        yield Breach(message=f"hybrid_layer_pattern={text!r}: {'; '.join(problems)}")


@computes(
    "HYB004",
    "MLM-HYB-07",
    "prediction depths come from the pattern",
    formula="mtp_num_layers == MTP parts of the pattern",
    paths="hybrid_layer_pattern mtp_num_layers",
    severity=Severity.AUTO_FIX,
    stage=Stage.PARSE,
    frameworks=BOTH,
    source="ar:873",
    why="The pattern's depth is taken, with a warning.",
    bad="hybrid_layer_pattern=M*M*/MM num_layers=4 mtp_num_layers=2",
    good="mtp_num_layers=1",
)
def pattern_depths(context: Context) -> Iterator[Verdict]:
    """Compare the pattern's depths with mtp_num_layers."""
    text, depths = _text(context), context.integer("model.mtp_num_layers")
    if not text or depths is None or context.model("mtp_use_repeated_layer"):
        return
    found = len(parse_pattern(text).depths)
    if found and found != depths:
        yield Breach(
            message=f"the pattern has {found} prediction depths, but mtp_num_layers={depths}",
            effective={"model.mtp_num_layers": found},
            fixes=(Fix(overrides={"model.mtp_num_layers": found}),),
        )


RULES = (
    pattern_length,
    pattern_stages,
    pattern_letters,
    pattern_depths,
    requires(
        "HYB005",
        "BR-HYB-03",
        "hybrid models take no virtual stages in Bridge",
        when="HYBRID or contains(get(model._class), 'FalconH1') or contains(get(model._class), 'T5')",
        need="VP == 1",
        stage=Stage.BUILD,
        source="br:src/megatron/bridge/models/hybrid/hybrid_provider.py:292",
        why="Megatron-LM derives them from the pattern's segments; Bridge stops when the model is built.",
        bad="hybrid_layer_pattern=M*M*M*M* num_layers=8 PP=4 VP=2",
        good="VP=null",
        fixes=({VP: None},),
    ),
    requires(
        "HYB006",
        "BR-HYB-01 MLM-HYB-01",
        "the old and the new name of the pattern exclude each other",
        when="isset(get(hybrid_override_pattern))",
        need="unset(get(hybrid_layer_pattern))",
        frameworks=BOTH,
        source="br:src/megatron/bridge/models/hybrid/hybrid_provider.py:179 + ar:747",
        why="hybrid_override_pattern is deprecated and copied.",
        bad="hybrid_override_pattern=M*M* hybrid_layer_pattern=M*M* num_layers=4",
        good="hybrid_override_pattern=null",
        fixes=({"model.hybrid_override_pattern": None},),
    ),
    requires(
        "HYB007",
        "BR-HYB-01",
        "Mamba chunks have at least one position",
        when="isset(get(mamba_chunk_size))",
        need="mamba_chunk_size >= 1",
        source="br:src/megatron/bridge/models/hybrid/hybrid_provider.py:179",
        why="The scan runs chunk by chunk.",
        bad="mamba_chunk_size=0",
        good="mamba_chunk_size=128",
    ),
    requires(
        "HYB008",
        "MLM-HYB-04",
        "a pattern excludes other ways to split",
        when="isset(get(hybrid_layer_pattern))",
        need=(
            "not on(mlm.num_layers_per_virtual_pipeline_stage)",
            "not on(mlm.num_virtual_stages_per_pipeline_rank)",
            "unset(get(pipeline_model_parallel_layout))",
            "not on(account_for_embedding_in_pipeline_split) and not on(account_for_loss_in_pipeline_split)",
        ),
        stage=Stage.PARSE,
        source="ar:815",
        why="Segments of the pattern say it.",
        bad="hybrid_layer_pattern=M*M* num_layers=4 mlm.num_virtual_stages_per_pipeline_rank=2",
        good="mlm.num_virtual_stages_per_pipeline_rank=null",
    ),
    adjusts(
        "HYB009",
        "MLM-HYB-08",
        "MLA letters switch multi-latent attention on",
        when="(contains(get(hybrid_layer_pattern), '+') or contains(get(hybrid_layer_pattern), 'D')) and "
        "multi_latent_attention == False",
        effective={"model.multi_latent_attention": True},
        stage=Stage.PARSE,
        source="ar:918",
        why="Those layers are made of it.",
        bad="hybrid_layer_pattern=M+M+ num_layers=4 multi_latent_attention=false",
        good="multi_latent_attention=true",
    ),
    requires(
        "HYB010",
        "MC-MAMBA-01",
        "Mamba heads and groups shard over TP",
        when="HYBRID and isset(get(mamba_num_heads))",
        need=(
            "mamba_num_heads % TP == 0",
            "unset(get(mamba_num_groups)) or mamba_num_groups % TP == 0",
            "unset(get(mamba_num_groups)) or mamba_num_heads % mamba_num_groups == 0",
        ),
        stage=Stage.BUILD,
        source="lm:megatron/core/ssm/mamba_mixer.py:270",
        why="Each rank holds whole heads of whole groups.",
        bad="hybrid_layer_pattern=M*M* num_layers=4 mamba_num_heads=64 mamba_num_groups=8 TP=16 num_attention_heads=16",
        good="TP=8",
    ),
    requires(
        "HYB011",
        "MC-MAMBA-02",
        "FP8 Mamba needs projections in multiples of 16",
        when="HYBRID and isset(get(FP8)) and isset(get(mamba_num_heads)) and isset(get(mamba_head_dim)) "
        "and isset(get(mamba_num_groups)) and isset(get(mamba_state_dim))",
        need="(2 * mamba_num_heads * mamba_head_dim + 2 * mamba_num_groups * mamba_state_dim + mamba_num_heads) % 16 == 0",
        stage=Stage.BUILD,
        source="lm:megatron/core/ssm/mamba_mixer.py:255",
        why="FP8 products come in blocks of 16.",
        bad="hybrid_layer_pattern=M*M* num_layers=4 fp8=hybrid mamba_num_heads=63 mamba_head_dim=64 "
        "mamba_num_groups=9 mamba_state_dim=128",
        good="mamba_num_heads=64 mamba_num_groups=8",
    ),
    requires(
        "HYB012",
        "MC-GDN-01",
        "gated delta net needs all its dimensions",
        when=GDN,
        need=(
            "isset(linear_conv_kernel_dim)",
            "isset(linear_key_head_dim)",
            "isset(linear_value_head_dim)",
            "isset(linear_num_key_heads)",
            "isset(linear_num_value_heads)",
            "isset(linear_attention_freq)",
        ),
        source="tc:1482",
        why="They have no fallback.",
        bad="experimental_attention_variant=gated_delta_net linear_conv_kernel_dim=null linear_key_head_dim=128 "
        "linear_value_head_dim=128 linear_num_key_heads=16 linear_num_value_heads=32 linear_attention_freq=4",
        good="linear_conv_kernel_dim=4",
    ),
    requires(
        "HYB013",
        "MC-GDN-02",
        "value heads of gated delta net are a multiple of its key heads",
        when=f"({GDN}) and isset(get(linear_num_key_heads)) and isset(get(linear_num_value_heads))",
        need="linear_num_value_heads % linear_num_key_heads == 0",
        source="tc:1496",
        why="Keys are shared by groups of values.",
        bad="experimental_attention_variant=gated_delta_net linear_num_key_heads=16 linear_num_value_heads=24 "
        "linear_attention_freq=4",
        good="linear_num_value_heads=32",
    ),
    requires(
        "HYB014",
        "MC-GDP-01",
        "gated delta product needs at least one reflection",
        when="isset(get(gdp_num_householder))",
        need="gdp_num_householder >= 1",
        source="tc:1439",
        why="Each is one update of the state.",
        bad="gdp_num_householder=0",
        good="gdp_num_householder=1",
    ),
)
