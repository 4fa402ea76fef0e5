"""Rules for layouts and communication."""

from __future__ import annotations

import itertools

from autorecipe.schema.translation import Status
from autorecipe.schema.value import FieldValue
from autorecipe.translate.effective import MlmConfig, expand_stages
from autorecipe.translate.rule import BridgeView, Cell, Rule
from autorecipe.translate.values import enum_member

_VIRTUAL = ("num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank")
_VIRTUAL_PATH = "model.virtual_pipeline_model_parallel_size"


def _virtual_forward(config: MlmConfig) -> list[Cell]:
    value = config.get("virtual_pipeline_model_parallel_size")
    why = "layers / pipeline size / layers a virtual stage" if config.get(_VIRTUAL[0]) is not None else ""
    return [Cell(_VIRTUAL_PATH, value, _VIRTUAL, why)]


def _virtual_backward(view: BridgeView) -> dict[str, FieldValue]:
    value = view.get(_VIRTUAL_PATH)
    if view.get("model.pipeline_model_parallel_layout") is not None:
        return {}  # the layout says how many stages there are, and Megatron-LM takes one of the two
    return {} if value in (None, 1) else {"num_virtual_stages_per_pipeline_rank": value}


_LAYOUT_PATH = "model.pipeline_model_parallel_layout"
_LETTERS = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
"""Source: megatron/core/transformer/pipeline_parallel_layer_layout.py (parse_str_to_list) @ core 0.19.2."""


def _stages_forward(config: MlmConfig) -> list[Cell]:
    text = config.get("pipeline_model_parallel_layout")

    def says_the_same(view: BridgeView) -> bool:
        value = view.get(_LAYOUT_PATH)
        return value == text if text is None or value is None else expand_stages(str(text)) == expand_stages(_stages_text(value))

    return [Cell(_LAYOUT_PATH, text, ("pipeline_model_parallel_layout",), matches=says_the_same)]


def _stages_backward(view: BridgeView) -> dict[str, FieldValue]:
    value = view.get(_LAYOUT_PATH)
    return {} if value is None else {"pipeline_model_parallel_layout": _stages_text(value)}


def _stages_text(value: FieldValue) -> str:
    """Return a layout as text: a recipe may list the layers of each stage by name."""
    if not isinstance(value, list | tuple):
        return str(value)
    stages = []
    for stage in value:
        names = stage if isinstance(stage, list | tuple) else [stage]
        runs = [(name, len(list(group))) for name, group in itertools.groupby(names)]
        letters = [(_LETTERS.get(str(name), str(name)), count) for name, count in runs]
        stages.append("".join(letter if count == 1 else f"{letter}*{count}" for letter, count in letters))
    return "|".join(stages)


def _overlap_forward(config: MlmConfig) -> list[Cell]:
    overlap = config.on("overlap_p2p_comm")
    cells = [Cell("model.overlap_p2p_comm", overlap, ("overlap_p2p_comm",), config.derived.get("overlap_p2p_comm", ""))]
    if config.size("pipeline_model_parallel_size") > 1:
        cells.append(
            Cell(
                "model.batch_p2p_comm", not overlap, ("overlap_p2p_comm",), "Megatron-LM batches exactly when it does not overlap"
            )
        )
    return cells


def _overlap_backward(view: BridgeView) -> dict[str, FieldValue]:
    if view.get(_VIRTUAL_PATH) in (None, 1):
        return {}
    return {"overlap_p2p_comm": view.on("model.overlap_p2p_comm")} if view.knows("model.overlap_p2p_comm") else {}


def _hsdp_forward(config: MlmConfig) -> list[Cell]:
    cells = []
    if config.on("enable_full_sharding_in_hsdp"):
        cells.append(Cell("ddp.outer_dp_sharding_strategy", "optim", ("enable_full_sharding_in_hsdp",)))
    elif "outer_dp_sharding_strategy" in config.given or config.on("use_megatron_fsdp"):
        cells.append(
            Cell("ddp.outer_dp_sharding_strategy", config.get("outer_dp_sharding_strategy"), ("outer_dp_sharding_strategy",))
        )
    return cells


def _hsdp_backward(view: BridgeView) -> dict[str, FieldValue]:
    value = view.get("ddp.outer_dp_sharding_strategy")
    return {} if value is None else {"outer_dp_sharding_strategy": value}


def _recompute_forward(config: MlmConfig) -> list[Cell]:
    why = "--recompute-activations stands for selective recomputation" if config.on("recompute_activations") else ""
    return [
        Cell(
            "model.recompute_granularity",
            config.get("recompute_granularity"),
            ("recompute_granularity", "recompute_activations"),
            why,
        )
    ]


def _recompute_backward(view: BridgeView) -> dict[str, FieldValue]:
    value = view.get("model.recompute_granularity")
    return {} if value is None else {"recompute_granularity": value}


def _graphs_forward(config: MlmConfig) -> list[Cell]:
    """Source of what Bridge refuses: src/megatron/bridge/utils/cuda_graph.py:149 @ Megatron-Bridge 067f987d."""
    dests = ("cuda_graph_impl", "enable_cuda_graph", "external_cuda_graph")
    kind = config.get("cuda_graph_impl")
    scopes = config.get("cuda_graph_modules") or config.get("cuda_graph_scope_deprecated") or []
    if kind == "local" and "full_iteration" not in [enum_member(item) for item in _listed(scopes)]:
        note = "Bridge has local graphs only for a full iteration (`--cuda-graph-impl full_iteration`); none are written"
        for dest in (*dests, "cuda_graph_modules", "cuda_graph_scope_deprecated"):
            config.remark(dest, Status.UNMAPPED, note)
        return [Cell("model.cuda_graph_impl", "none", dests, note, quiet=True)]
    return [Cell("model.cuda_graph_impl", kind, dests, config.derived.get("cuda_graph_impl", ""))]


def _listed(value: FieldValue) -> list[FieldValue]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _graphs_backward(view: BridgeView) -> dict[str, FieldValue]:
    value = view.get("model.cuda_graph_impl")
    return {} if value is None else {"cuda_graph_impl": value}


def _modules_forward(config: MlmConfig) -> list[Cell]:
    dests = ("cuda_graph_modules", "cuda_graph_scope_deprecated")
    value = config.get("cuda_graph_modules") or config.get("cuda_graph_scope_deprecated")
    if config.remarks.get("cuda_graph_modules"):
        return []  # the graphs themselves are not written
    return [Cell("model.cuda_graph_modules", value, dests)] if value else []


def _modules_backward(view: BridgeView) -> dict[str, FieldValue]:
    value = view.get("model.cuda_graph_modules")
    return {"cuda_graph_modules": [enum_member(item) for item in value]} if isinstance(value, list) and value else {}


def _hybrid_forward(config: MlmConfig) -> list[Cell]:
    pattern = config.get("hybrid_layer_pattern")
    if pattern is None:
        return []
    return [Cell("model.hybrid_layer_pattern", pattern, ("hybrid_layer_pattern", "hybrid_override_pattern"))]


def _hybrid_backward(view: BridgeView) -> dict[str, FieldValue]:
    value = view.get("model.hybrid_layer_pattern")
    return {} if value is None else {"hybrid_layer_pattern": value}


PARALLEL_RULES = (
    Rule(
        name="virtual pipeline",
        dests=_VIRTUAL,
        paths=(_VIRTUAL_PATH,),
        status=Status.DERIVED,
        forward=_virtual_forward,
        backward=_virtual_backward,
    ),
    Rule(
        name="stages of a pipeline",
        dests=("pipeline_model_parallel_layout",),
        paths=(_LAYOUT_PATH,),
        status=Status.SAME,
        forward=_stages_forward,
        backward=_stages_backward,
    ),
    Rule(
        name="pipeline communication",
        dests=("overlap_p2p_comm",),
        paths=("model.overlap_p2p_comm", "model.batch_p2p_comm"),
        status=Status.INVERTED,
        forward=_overlap_forward,
        backward=_overlap_backward,
    ),
    Rule(
        name="outer sharding",
        dests=("enable_full_sharding_in_hsdp", "outer_dp_sharding_strategy"),
        paths=("ddp.outer_dp_sharding_strategy",),
        status=Status.SAME,
        forward=_hsdp_forward,
        backward=_hsdp_backward,
    ),
    Rule(
        name="recompute",
        dests=("recompute_granularity", "recompute_activations"),
        paths=("model.recompute_granularity",),
        status=Status.SAME,
        forward=_recompute_forward,
        backward=_recompute_backward,
    ),
    Rule(
        name="CUDA graphs",
        dests=("cuda_graph_impl", "enable_cuda_graph", "external_cuda_graph"),
        paths=("model.cuda_graph_impl",),
        status=Status.SAME,
        forward=_graphs_forward,
        backward=_graphs_backward,
    ),
    Rule(
        name="CUDA graph modules",
        dests=("cuda_graph_modules", "cuda_graph_scope_deprecated"),
        paths=("model.cuda_graph_modules",),
        status=Status.SAME,
        forward=_modules_forward,
        backward=_modules_backward,
    ),
    Rule(
        name="hybrid pattern",
        dests=("hybrid_layer_pattern", "hybrid_override_pattern"),
        paths=("model.hybrid_layer_pattern",),
        status=Status.SAME,
        forward=_hybrid_forward,
        backward=_hybrid_backward,
    ),
)
