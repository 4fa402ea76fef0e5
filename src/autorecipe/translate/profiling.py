"""Rules for profilers: Megatron-LM's one switch and a choice against Bridge's two switches, of which one may be on."""

from __future__ import annotations

from autorecipe.schema.translation import Status
from autorecipe.schema.value import FieldValue
from autorecipe.translate.effective import MlmConfig
from autorecipe.translate.rule import BridgeView, Cell, Rule

_NSYS, _PYTORCH = "profiling.use_nsys_profiler", "profiling.use_pytorch_profiler"


def _profiler_forward(config: MlmConfig) -> list[Cell]:
    """Source: megatron/training/training.py:3196-3204 @ core 0.19.2."""
    on, pytorch = config.on("profile"), config.on("use_pytorch_profiler")
    why = "--profile records with --use-pytorch-profiler or, without it, for nsys" if on else ""
    return [
        Cell(_NSYS, on and not pytorch, ("profile", "use_pytorch_profiler"), why),
        Cell(_PYTORCH, on and pytorch, ("use_pytorch_profiler", "profile"), why),
    ]


def _profiler_backward(view: BridgeView) -> dict[str, FieldValue]:
    if not view.knows(_NSYS) and not view.knows(_PYTORCH):
        return {}
    pytorch = view.on(_PYTORCH)
    return {"profile": pytorch or view.on(_NSYS), "use_pytorch_profiler": pytorch}


PROFILING_RULES = (
    Rule(
        name="profilers",
        dests=("profile", "use_pytorch_profiler"),
        paths=(_NSYS, _PYTORCH),
        status=Status.EXPANDS,
        forward=_profiler_forward,
        backward=_profiler_backward,
    ),
)
