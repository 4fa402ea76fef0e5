"""PAR: world size and the parallel axes TP, CP, EP, ETP, SP.

What no upstream dry run sees comes first: Bridge's validation looks at the dense grid only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autorecipe.rules.context import Context
from autorecipe.rules.declare import adjusts, computes, requires
from autorecipe.rules.derived import AXIS_PATHS
from autorecipe.rules.layout import divisors
from autorecipe.rules.rule import Breach, Missing, Verdict
from autorecipe.schema import Fix, Severity, Stage


def _axis_fixes(context: Context, sizes: dict[str, int], *, world: int) -> tuple[Fix, ...]:
    """Return one way out per axis of a grid: the largest smaller size that makes the grid divide the world, then more GPUs."""
    product = 1
    for size in sizes.values():
        product *= size
    fixes = []
    for axis, size in sizes.items():
        rest = product // size
        smaller = [value for value in divisors(size) if value < size and world % (rest * value) == 0]
        if not smaller:
            continue
        value = smaller[-1]
        change: dict[str, Any] = {AXIS_PATHS[axis]: value}
        note = ""
        if axis == "TP" and value == 1 and context.layout.sequence_parallel:
            change["model.sequence_parallel"] = False
        if axis == "PP":
            vp = context.layout.vp
            if value == 1:
                change |= {path: None for path in _STAGE_PATHS if context.get(path) is not None}
                if vp > 1:
                    change[AXIS_PATHS["VP"]] = None
            elif vp > 1 and (vp * size) % value == 0:
                change[AXIS_PATHS["VP"]] = vp * size // value
            note = "needs another layer layout" if context.model("pipeline_model_parallel_layout") is not None else ""
            if context.model("pipeline_model_parallel_layout") is not None and value > 1:
                note = "needs another layer layout (model.pipeline_model_parallel_layout)"
        fixes.append(Fix(overrides=change, note=note))
    minimum = context.layout.minimum_world_size
    fixes.append(Fix(overrides={"gpus": -(-world // minimum) * minimum}, note="more GPUs"))
    return tuple(fixes)


_STAGE_PATHS = (
    "model.num_layers_in_first_pipeline_stage",
    "model.num_layers_in_last_pipeline_stage",
    "model.pipeline_model_parallel_layout",
)


def _legal(context: Context, sizes: dict[str, int], *, world: int) -> dict[str, list[int]]:
    product = 1
    for size in sizes.values():
        product *= size
    legal: dict[str, list[int]] = {}
    for axis, size in sizes.items():
        rest = product // size
        legal[AXIS_PATHS[axis]] = [value for value in divisors(world) if world % (rest * value) == 0]
    experts = context.integer("model.num_moe_experts")
    if experts and AXIS_PATHS["EP"] in legal:
        legal[AXIS_PATHS["EP"]] = [value for value in legal[AXIS_PATHS["EP"]] if experts % value == 0]
    minimum = context.layout.minimum_world_size
    legal["gpus"] = [minimum * factor for factor in (1, 2, 3, 4)]
    return legal


@computes(
    "PAR001",
    "BR-WORLD-01 MLM-WORLD-01 MC-WORLD-01 BR-INIT-01",
    "TP x PP x CP must divide the number of GPUs",
    formula="world % (TP * PP * CP) == 0",
    paths="tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size",
    stage=Stage.VALIDATE,
    source="br:src/megatron/bridge/training/config.py:1025 + lm:megatron/core/parallel_state.py:823 "
    "+ lm:megatron/training/arguments.py:433",
    why="The data-parallel size is the quotient; a rest leaves ranks without a place in the grid.",
    bad="gpus=8 TP=4 PP=2 CP=2",
    good="gpus=16",
)
def dense_grid(context: Context) -> Iterator[Verdict]:
    """Check the dense grid against the world."""
    layout, world = context.layout, context.world
    product = layout.dense_model_parallel_size
    if world is None:
        if product > 1:
            yield Missing(paths=("gpus",))
        return
    if world % product == 0:
        return
    sizes = {"CP": layout.cp, "PP": layout.pp, "TP": layout.tp}
    yield Breach(
        message=f"{world} GPUs are not a multiple of TP{layout.tp} x PP{layout.pp} x CP{layout.cp} = {product}; "
        f"the layout needs {layout.minimum_world_size} GPUs or a multiple",
        legal=_legal(context, sizes, world=world),
        fixes=_axis_fixes(context, sizes, world=world),
        facts={
            "model_parallel_size": product,
            "minimum_gpus": layout.minimum_world_size,
            "remainder": world % product,
        },
        hint=f"use a multiple of {layout.minimum_world_size} GPUs, or shrink an axis",
    )


@computes(
    "PAR002",
    "MC-WORLD-02 BR-INIT-01",
    "EP x ETP x PP must divide the number of GPUs",
    formula="world % (EP * ETP * PP) == 0; smallest world = PP * lcm(TP * CP, EP * ETP)",
    paths="expert_model_parallel_size expert_tensor_parallel_size pipeline_model_parallel_size",
    stage=Stage.INIT,
    source="lm:megatron/core/parallel_state.py:883",
    why="Experts have a grid of their own over the same ranks. Neither Megatron-LM's argument check nor Bridge's "
    "validation looks at it, so that the job dies when process groups are made, on all GPUs.",
    bad="gpus=64 PP=8 EP=32 ETP=1 num_moe_experts=128",
    good="EP=8",
)
def expert_grid(context: Context) -> Iterator[Verdict]:
    """Check the expert grid against the world."""
    layout, world = context.layout, context.world
    product = layout.expert_model_parallel_size
    if layout.ep == 1 and layout.etp == 1:
        return
    if world is None:
        yield Missing(paths=("gpus",))
        return
    if world % product == 0:
        return
    sizes = {"EP": layout.ep, "PP": layout.pp, "ETP": layout.etp}
    sizes = {axis: size for axis, size in sizes.items() if size > 1}
    yield Breach(
        message=f"{world} GPUs are not a multiple of EP{layout.ep} x ETP{layout.etp} x PP{layout.pp} = {product}; "
        f"the layout needs {layout.minimum_world_size} GPUs or a multiple",
        legal=_legal(context, sizes, world=world),
        fixes=_axis_fixes(context, sizes, world=world),
        facts={
            "expert_product": product,
            "dense_product": layout.dense_model_parallel_size,
            "minimum_gpus": layout.minimum_world_size,
            "dense_ok": world % layout.dense_model_parallel_size == 0,
        },
        hint="dense and expert grids lie over the same ranks: lower EP first, then PP",
    )


RULES = (
    dense_grid,
    expert_grid,
    adjusts(
        "PAR008",
        "BR-SP-01 MLM-SP-01 MC-SP-01",
        "sequence parallelism is switched off where TP is 1",
        when="sequence_parallel and TP == 1",
        effective={"model.sequence_parallel": False},
        source="br:src/megatron/bridge/models/transformer_config.py:176 + lm:megatron/training/arguments.py:1436",
        why="There is no TP group to split the sequence over. Both frameworks clear the flag; only direct users of "
        "Megatron-Core see an error.",
        bad="TP=1 sequence_parallel=true",
        good="sequence_parallel=false",
        fixes=({"model.sequence_parallel": False},),
    ),
    requires(
        "PAR009",
        "MC-MOERUN-01 MC-SPMOE-01",
        "training a MoE model with TP > 1 needs sequence parallelism",
        when="MOE and TP > 1",
        need="sequence_parallel",
        stage=Stage.RUNTIME,
        source="lm:megatron/core/transformer/moe/moe_layer.py:638",
        why="The configuration passes with a warning about performance; the first training forward raises ValueError.",
        bad="num_moe_experts=8 TP=2 sequence_parallel=false ETP=1",
        good="sequence_parallel=true",
    ),
    requires(
        "PAR010",
        "MC-EP-01 MLM-MOE-01",
        "expert parallelism needs experts",
        when="EP > 1",
        need="num_moe_experts",
        source="lm:megatron/core/transformer/transformer_config.py:1596 + lm:megatron/training/arguments.py:1656",
        why="A dense model has no expert to shard.",
        bad="EP=2 num_moe_experts=null",
        good="EP=1",
    ),
    adjusts(
        "PAR011",
        "BR-ETP-01 TRAP-ETP",
        "an unset expert tensor size is 1 in Bridge and TP in Megatron-LM",
        when="MOE and EP > 1 and TP > 1 and unset(expert_tensor_parallel_size)",
        effective={"model.expert_tensor_parallel_size": "=ETP"},
        severity=Severity.INFO,
        frameworks=("bridge", "megatron-lm"),
        source="br:src/megatron/bridge/models/transformer_config.py:88 + lm:megatron/core/model_parallel_config.py:507",
        why="The same arguments give two expert grids in the two frameworks; state the size to compare them.",
        bad="num_moe_experts=8 EP=2 TP=2 ETP=null",
        good="ETP=1",
    ),
    adjusts(
        "PAR012",
        "MC-ETP-01 MLM-MOE-04",
        "an unset expert tensor size becomes TP",
        when="MOE and EP == 1 and TP > 1 and unset(expert_tensor_parallel_size)",
        effective={"model.expert_tensor_parallel_size": "=TP"},
        severity=Severity.INFO,
        source="lm:megatron/core/model_parallel_config.py:507",
        why="Experts are then split by TP as well, which biases forbid and small experts do not profit from.",
        bad="num_moe_experts=8 EP=1 TP=2 ETP=null",
        good="ETP=1",
    ),
    requires(
        "PAR013",
        "MC-DISTOPT-01 BR-INIT-01",
        "optimizer instances must divide DP x CP",
        when="ddp.num_distributed_optimizer_instances > 1 and DP >= 1",
        need="DP * CP % ddp.num_distributed_optimizer_instances == 0",
        stage=Stage.INIT,
        source="lm:megatron/core/parallel_state.py:925",
        why="Each instance takes an equal share of the data-parallel ranks.",
        bad="gpus=6 ddp.num_distributed_optimizer_instances=4",
        good="ddp.num_distributed_optimizer_instances=2",
    ),
    requires(
        "PAR014",
        "MC-PPPOS-01",
        "parallel sizes are positive",
        need=(
            "unset(get(pipeline_model_parallel_size)) or pipeline_model_parallel_size >= 1",
            "unset(get(tensor_model_parallel_size)) or tensor_model_parallel_size >= 1",
            "unset(get(context_parallel_size)) or context_parallel_size >= 1",
            "unset(get(expert_model_parallel_size)) or expert_model_parallel_size >= 1",
        ),
        source="lm:megatron/core/transformer/transformer_config.py:3116",
        why="A size of zero or less describes no grid.",
        bad="PP=0",
        good="PP=1",
    ),
)
