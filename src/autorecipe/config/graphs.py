"""CUDA graph settings in one spelling: which implementation captures what, after upstream's migration of older spellings.

`enable_cuda_graph` and `external_cuda_graph` stand for an implementation, `cuda_graph_scope` was renamed to
`cuda_graph_modules`, and the whole iteration moved from a scope to an implementation. Combinations that upstream refuses are left
as they are, so that the rules can name them.

Source: Megatron-Core transformer/transformer_config.py:2365 and transformer/cuda_graph_config.py @ 0.19.2 (from 0.18; 0.17 knows
the scope alone); Megatron Bridge training/config.py:1260 @ 0.6.2 and :1263 @ 0.5.1, where graphs
that are off lose their modules.
Evidence: enforced-upstream.
"""

from __future__ import annotations

from typing import Any

from autorecipe.config.state import Resolution
from autorecipe.schema.run import OriginKind

IMPL, SCOPE, MODULES, INFERENCE = (
    f"model.{name}" for name in ("cuda_graph_impl", "cuda_graph_scope", "cuda_graph_modules", "inference_cuda_graph_scope")
)
OLD_SWITCHES = (("model.enable_cuda_graph", "local"), ("model.external_cuda_graph", "transformer_engine"))
WHOLE_LAYER = "full"
WHOLE_ITERATION = "full_iteration"
WHOLE_ITERATION_INFERENCE = "full_iteration_inference"
TAKES_ITERATION = {
    WHOLE_ITERATION: ("none", "local", WHOLE_ITERATION),
    WHOLE_ITERATION_INFERENCE: ("none", "local"),
}
"""Implementations beside which the deprecated words of a scope are still understood."""
TOGETHER = ("moe_router", "moe_preprocess")
"""Modules that local graphs capture together."""


def migrate_graphs(state: Resolution) -> None:
    """Give CUDA graphs the one spelling that upstream works with after validation."""
    if not state.has(IMPL):
        return
    if not state.has(MODULES):
        _normalise_scope(state)
        return
    if _clears_first(state) and state.get(IMPL) in (None, "none"):
        _clear(state)
    on = [(path, impl) for path, impl in OLD_SWITCHES if state.get(path) is True]
    if len(on) == 1 and state.get(IMPL) in (None, "none"):
        state.respell(IMPL, on[0][1], detail=f"{on[0][0]} (deprecated) stands for it")
    words = _read_modules(state)
    if words is None:
        return
    if state.get(IMPL) in (None, "none") and not words.keys() & TAKES_ITERATION.keys():
        _clear(state)
        return
    if not _takes(words, state):
        return
    local = state.get(IMPL) == "local"
    if WHOLE_ITERATION in words:
        state.respell(IMPL, WHOLE_ITERATION, detail=f"the scope {WHOLE_ITERATION} (deprecated) stands for it")
    if WHOLE_ITERATION_INFERENCE in words and local and state.has(INFERENCE):
        detail = f"the scope {WHOLE_ITERATION_INFERENCE} (deprecated) stands for it"
        state.respell(INFERENCE, "InferenceCudaGraphScope.block", detail=detail)
    names = [name for name in words if name not in TAKES_ITERATION]
    if state.get(IMPL) == "local" and set(TOGETHER) & set(names):
        names += [name for name in TOGETHER if name not in names]
    detail = "takes model.cuda_graph_scope (deprecated)" if state.get(SCOPE) is not None else "one spelling"
    state.respell(MODULES, [f"CudaGraphModule.{name}" for name in names], detail=detail)
    if state.get(SCOPE) is not None:
        state.respell(SCOPE, None, detail="moved to model.cuda_graph_modules")


def module_names(value: Any) -> list[str] | None:
    """Return the names in a scope or module list, in order; None where it is not one, or mixes `full` with others."""
    if value is None:
        return []
    items = value if isinstance(value, list) else str(value).split(",") if value else []
    if not all(isinstance(item, str) for item in items):
        return None
    names = [item.rpartition(".")[2] for item in items]
    if WHOLE_LAYER in names:
        return [] if names == [WHOLE_LAYER] else None
    return names


def _read_modules(state: Resolution) -> dict[str, None] | None:
    """Return the names that count; None where upstream refuses the combination of old and new spelling."""
    scope, modules = state.get(SCOPE), state.get(MODULES)
    if scope is not None and module_names(modules) != []:
        return None
    names = module_names(modules if scope is None else scope)
    return None if names is None else dict.fromkeys(names)


def _takes(words: dict[str, None], state: Resolution) -> bool:
    """Return whether the deprecated words go with the implementation and the inference scope."""
    old = [word for word in words if word in TAKES_ITERATION]
    if not old:
        return True
    inference = module_names(state.get(INFERENCE)) or ["none"]
    fitting = {WHOLE_ITERATION: ["none"], WHOLE_ITERATION_INFERENCE: ["block"]}
    return (
        len(old) == 1
        and (state.get(IMPL) or "none") in TAKES_ITERATION[old[0]]
        and (state.get(INFERENCE) is None or inference == fitting[old[0]])
    )


def _clears_first(state: Resolution) -> bool:
    """Return whether this release of Bridge clears the modules of graphs that are off before words stand for anything."""
    numbers = [int(part) for part in state.schema.release.split("+")[0].split(".")[:2] if part.isdigit()]
    return numbers >= [0, 6]


def _normalise_scope(state: Resolution) -> None:
    """Before Megatron-Core 0.18 there is the scope alone: a list of names, empty for the whole layer."""
    names = module_names(state.get(SCOPE)) if state.has(SCOPE) else None
    if names is None:
        return
    if state.get(IMPL) in (None, "none"):
        _lose(state, SCOPE, [])
        return
    if state.get(IMPL) == "local" and set(TOGETHER) & set(names):
        names += [name for name in TOGETHER if name not in names]
    state.respell(SCOPE, [f"CudaGraphScope.{name}" for name in names], detail="one spelling")


def _clear(state: Resolution) -> None:
    _lose(state, MODULES, [])
    _lose(state, SCOPE, None)


def _lose(state: Resolution, path: str, value: Any) -> None:
    detail = "no CUDA graphs are on (cuda_graph_impl=none), so nothing is captured"
    if state.has(path):
        state.overrule(path, value, trap="TRAP-GRAPH", kind=OriginKind.DERIVED, detail=detail)
