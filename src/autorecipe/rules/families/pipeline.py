"""PIP: layers over pipeline stages and virtual stages: even and uneven splits, explicit layouts."""

from __future__ import annotations

from collections.abc import Iterator

from autorecipe.rules.context import Context
from autorecipe.rules.declare import adjusts, computes, requires
from autorecipe.rules.derived import AXIS_PATHS
from autorecipe.rules.layout import divisors, layers_fit
from autorecipe.rules.rule import Breach, Missing, Verdict
from autorecipe.rules.stages import balanced_edges, parse_stages
from autorecipe.schema import Fix, Severity, Stage

FIRST = "model.num_layers_in_first_pipeline_stage"
LAST = "model.num_layers_in_last_pipeline_stage"
LAYOUT = "model.pipeline_model_parallel_layout"
PP, VP = AXIS_PATHS["PP"], AXIS_PATHS["VP"]


def _edges(context: Context) -> tuple[int | None, int | None]:
    return context.integer(FIRST), context.integer(LAST)


def _accounts(context: Context) -> tuple[bool, bool]:
    return (
        bool(context.model("account_for_embedding_in_pipeline_split")),
        bool(context.model("account_for_loss_in_pipeline_split")),
    )


def _pattern(context: Context) -> str:
    return str(context.model("hybrid_layer_pattern") or context.model("hybrid_override_pattern") or "")


def _edge_fixes(layers: int, pp: int, vp: int) -> list[Fix]:
    return [Fix(overrides={FIRST: first, LAST: last}, note="uneven split") for first, last in balanced_edges(layers, pp, vp)[:2]]


@computes(
    "PIP001",
    "MC-PP-08 MC-PP-09 BR-VP-01 MLM-PP-04 MLM-PP-05 MLM-PP-06 MC-PP-07",
    "layers must split evenly over stages and virtual stages",
    formula="(L + accounted embedding + accounted loss) % PP == 0 and (that / PP) % VP == 0",
    paths="num_layers pipeline_model_parallel_size virtual_pipeline_model_parallel_size",
    stage=Stage.BUILD,
    source="lm:megatron/core/transformer/transformer_block.py:158 + br:src/megatron/bridge/models/gpt_provider.py:254",
    why="Without an uneven split every stage builds the same number of layers. A Bridge dry run does not look; the "
    "assertion comes when the model is built.",
    bad="num_layers=60 PP=8",
    good="num_layers_in_first_pipeline_stage=4 num_layers_in_last_pipeline_stage=8",
)
def even_split(context: Context) -> Iterator[Verdict]:
    """Check the plain split and the accounted split."""
    layout = context.layout
    if layout.pp == 1 and layout.vp == 1:
        return
    if _edges(context) != (None, None) or context.model("pipeline_model_parallel_layout") is not None or _pattern(context):
        return
    layers = context.integer("model.num_layers")
    if not layers:
        yield Missing(paths=("model.num_layers",))
        return
    embedding, loss = _accounts(context)
    flags = {"account_for_embedding": embedding, "account_for_loss": loss}
    if layers_fit(layers, layout.pp, layout.vp, **flags):
        return
    total = layers + embedding + loss
    if total % layout.pp:
        legal = [size for size in divisors(total) if layers_fit(layers, size, layout.vp, **flags)]
        smaller = [size for size in legal if size < layout.pp]
        edges = balanced_edges(layers, layout.pp, layout.vp) if not (embedding or loss) else []
        fixes = _edge_fixes(layers, layout.pp, layout.vp) if edges else []
        if smaller:
            fixes.append(Fix(overrides={PP: smaller[-1], **({VP: None} if smaller[-1] == 1 and layout.vp > 1 else {})}))
        if layout.vp > 1 and not fixes:
            fixes.append(Fix(overrides={VP: None}))
        yield Breach(
            message=f"{_total(layers, embedding, loss)} do not split evenly over PP={layout.pp}: "
            f"{total} % {layout.pp} = {total % layout.pp}",
            legal={PP: legal, f"{FIRST},{LAST}": [list(pair) for pair in edges]},
            fixes=tuple(fixes),
            hint="state the layers of the first and the last stage, or a layout",
            facts={"remainder": total % layout.pp},
        )
        return
    per_stage = total // layout.pp
    legal = divisors(per_stage)
    near = sorted(legal, key=lambda size: (abs(size - layout.vp), size))[:3]
    yield Breach(
        message=f"{per_stage} layers per stage ({total} / PP={layout.pp}) do not split over VP={layout.vp}",
        legal={VP: legal},
        fixes=tuple(Fix(overrides={VP: size if size > 1 else None}) for size in near),
        hint=f"use vp in {legal}",
        facts={"layers_per_stage": per_stage},
    )


def _total(layers: int, embedding: bool, loss: bool) -> str:
    extra = [name for name, counted in (("embedding", embedding), ("loss", loss)) if counted]
    return f"num_layers={layers}" + (f" plus {' and '.join(extra)}" if extra else "")


@computes(
    "PIP002",
    "MC-PP-05 MC-PP-06",
    "an uneven split must leave whole middle stages",
    formula="edges > 0 and edges % VP == 0; (L - edges) and (PP - number of edges) both zero, or the first divides by the "
    "second and the quotient by VP",
    paths="num_layers_in_first_pipeline_stage num_layers_in_last_pipeline_stage num_layers pipeline_model_parallel_size",
    source="lm:megatron/core/transformer/transformer_config.py:2304-2343",
    why="What the edge stages leave is spread over the middle ones. With PP=1 both edges are counted against one stage, "
    "which gives minus one middle stages.",
    bad="num_layers=40 PP=1 num_layers_in_first_pipeline_stage=17 num_layers_in_last_pipeline_stage=23",
    good="num_layers_in_first_pipeline_stage=null num_layers_in_last_pipeline_stage=null",
)
def uneven_split(context: Context) -> Iterator[Verdict]:
    """Check explicit edge counts."""
    first, last = _edges(context)
    if (first, last) == (None, None) or context.model("pipeline_model_parallel_layout") is not None or _pattern(context):
        return
    layers = context.integer("model.num_layers")
    if not layers:
        yield Missing(paths=("model.num_layers",))
        return
    layout = context.layout
    if layers_fit(layers, layout.pp, layout.vp, first=first, last=last):
        return
    edges = [count for count in (first, last) if count is not None]
    middle_stages, middle_layers = layout.pp - len(edges), layers - sum(edges)
    cleared = {path: None for path in (FIRST, LAST) if context.get(path) is not None}
    fixes = [Fix(overrides=cleared, note="even split")]
    fixes += _edge_fixes(layers, layout.pp, layout.vp)
    if layout.vp > 1:
        fixes.append(Fix(overrides={VP: None}))
    yield Breach(
        message=f"num_layers={layers} with first={first}, last={last} leaves {middle_layers} layers for {middle_stages} middle "
        f"stages (PP={layout.pp}, VP={layout.vp})",
        legal={f"{FIRST},{LAST}": [list(pair) for pair in balanced_edges(layers, layout.pp, layout.vp)]},
        fixes=tuple(fixes),
        hint="clear both edge counts when PP becomes 1" if layout.pp == 1 else "choose edges that leave whole middle stages",
        facts={"middle_layers": middle_layers, "middle_stages": middle_stages},
    )


@computes(
    "PIP003",
    "MC-PP-03 MC-PP-04 MLM-PP-02",
    "an explicit layout must hold every layer once and fit PP and VP",
    formula="stages % PP == 0; stages / PP == VP where given; first layer embedding, last loss, decoders == num_layers, "
    "MTP layers == mtp_num_layers in one last virtual stage",
    paths="pipeline_model_parallel_layout num_layers mtp_num_layers virtual_pipeline_model_parallel_size",
    source="lm:megatron/core/transformer/pipeline_parallel_layer_layout.py:97 "
    "+ lm:megatron/core/transformer/transformer_config.py:2281",
    why="The layout names each layer of each stage; a missing layer would train another model.",
    bad="num_layers=4 PP=2 pipeline_model_parallel_layout='Ett|tL'",
    good="pipeline_model_parallel_layout='Ett|ttL'",
)
def explicit_layout(context: Context) -> Iterator[Verdict]:
    """Check an explicit pipeline layout."""
    value = context.model("pipeline_model_parallel_layout")
    if value is None:
        return
    stages = parse_stages(value)
    if stages is None:
        yield Breach(message=f"the layout {str(value)[:60]!r} cannot be read; letters are E, t, m, L, and | ends a stage")
        return
    problems = list(_layout_problems(stages, context))
    if problems:
        yield Breach(
            message="the pipeline layout is not legal: " + "; ".join(problems),
            fixes=(Fix(overrides={LAYOUT: None}, note="needs another split"),),
            facts={"stages": len(stages), "decoders": sum(stage.count("decoder") for stage in stages)},
        )


def _layout_problems(stages: list[list[str]], context: Context) -> Iterator[str]:
    layout = context.layout
    if len(stages) % layout.pp:
        yield f"{len(stages)} stages are not a multiple of PP={layout.pp}"
        return
    virtual = len(stages) // layout.pp
    given = context.integer(VP)
    if given is not None and given != virtual:
        yield f"{len(stages)} stages over PP={layout.pp} give VP={virtual}, but VP={given} is set"
    flat = [layer for stage in stages for layer in stage]
    if not flat or flat[0] != "embedding" or flat.count("embedding") != 1:
        yield "embedding must come first, once"
    if not flat or flat[-1] != "loss" or flat.count("loss") != 1:
        yield "loss must come last, once"
    layers = context.integer("model.num_layers")
    if layers is not None and flat.count("decoder") != layers:
        yield f"{flat.count('decoder')} decoder layers, but num_layers={layers}"
    depths = flat.count("mtp")
    wanted = context.read("model.mtp_num_layers")
    if (isinstance(wanted, int) and depths != wanted) or (wanted is None and depths):
        yield f"{depths} MTP layers, but mtp_num_layers={wanted}"
    holders = [index for index, stage in enumerate(stages) if "mtp" in stage]
    if holders and (len(holders) > 1 or holders[0] // layout.pp != virtual - 1):
        yield "MTP layers must share one last virtual stage"


RULES = (
    even_split,
    uneven_split,
    explicit_layout,
    requires(
        "PIP006",
        "MC-PP-01",
        "edge layer counts and account_for_* flags exclude each other",
        when=f"isset(get({FIRST})) or isset(get({LAST}))",
        need="not on(account_for_embedding_in_pipeline_split) and not on(account_for_loss_in_pipeline_split)",
        source="lm:megatron/core/transformer/transformer_config.py:2236",
        why="Both say how the embedding and the loss weigh in the split.",
        bad="num_layers=8 PP=2 num_layers_in_first_pipeline_stage=3 account_for_embedding_in_pipeline_split=true",
        good="account_for_embedding_in_pipeline_split=false num_layers_in_last_pipeline_stage=5",
    ),
    requires(
        "PIP007",
        "MC-PP-02",
        "an explicit layout excludes other ways to split",
        when="isset(pipeline_model_parallel_layout)",
        need=(
            f"unset(get({FIRST})) and unset(get({LAST}))",
            "not on(account_for_embedding_in_pipeline_split) and not on(account_for_loss_in_pipeline_split)",
        ),
        source="lm:megatron/core/transformer/transformer_config.py:2254",
        why="The layout already says which layer stands where.",
        bad="num_layers=4 PP=2 pipeline_model_parallel_layout='Ett|ttL' num_layers_in_first_pipeline_stage=2",
        good="num_layers_in_first_pipeline_stage=null",
    ),
    requires(
        "PIP011",
        "MLM-PP-04 MLM-PP-05",
        "layers must split over stages of whole virtual stages",
        when="on(mlm.num_layers_per_virtual_pipeline_stage) and isset(num_layers)",
        need=(
            "(num_layers + on(account_for_embedding_in_pipeline_split) + on(account_for_loss_in_pipeline_split)) % PP == 0",
            "(num_layers + on(account_for_embedding_in_pipeline_split) + on(account_for_loss_in_pipeline_split)) // PP "
            "% mlm.num_layers_per_virtual_pipeline_stage == 0",
        ),
        stage=Stage.PARSE,
        source="lm:megatron/training/arguments.py:969-973",
        why="The number of virtual stages is layers / PP / layers per virtual stage; a rest is an assertion, not a rounding.",
        bad="mlm.num_layers_per_virtual_pipeline_stage=1 PP=4 num_layers=10",
        good="num_layers=12",
    ),
    requires(
        "PIP012",
        "MC-PP-10",
        "accounted edge stages must not have fewer than zero layers",
        when="isset(num_layers) and (on(account_for_embedding_in_pipeline_split) or on(account_for_loss_in_pipeline_split)) "
        "and PP > 1",
        need="(num_layers + on(account_for_embedding_in_pipeline_split) + on(account_for_loss_in_pipeline_split)) "
        "// PP // VP >= 1",
        stage=Stage.BUILD,
        source="lm:megatron/core/transformer/transformer_block.py:196",
        why="The embedding or the loss takes the place of one layer of its stage.",
        bad="num_layers=2 PP=4 account_for_embedding_in_pipeline_split=true",
        good="num_layers=7",
    ),
    adjusts(
        "PIP018",
        "BR-ORDER-10",
        "a changed PP or VP drops the recipe's edge counts",
        when="(given.overrides_pipeline == True) and (isset(get(num_layers_in_first_pipeline_stage)) "
        "or isset(get(num_layers_in_last_pipeline_stage)))",
        effective={FIRST: None, LAST: None},
        severity=Severity.INFO,
        stage=Stage.LAUNCH,
        source="br:scripts/training/recipe_runner.py:423",
        why="The launcher rebuilds the layout for another PP or VP, and clears counts that no longer fit; calling the recipe "
        "function directly does not.",
        bad="given.overrides_pipeline=true num_layers=8 PP=2 num_layers_in_first_pipeline_stage=4 "
        "num_layers_in_last_pipeline_stage=4",
        good="num_layers_in_first_pipeline_stage=null num_layers_in_last_pipeline_stage=null",
    ),
)
