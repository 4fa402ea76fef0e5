"""Choices that belong to this engine alone: `engine.*` keys of a run.

They choose between implementations of the same mathematics and never change what is trained beyond rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from autorecipe.errors import Problem, UsageError, unknown_name
from autorecipe.schema.run import RunConfig

PREFIX = "engine."

Modules = Literal["auto", "own", "core-local", "transformer-engine"]
Switch = Literal["auto", "on", "off"]
AttentionKernel = Literal["auto", "cudnn", "flash"]


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options of the engine, with their defaults.

    Attributes:
        modules: who provides attention, norms and experts. `own` is this project's (torch SDPA, every parallelism);
            `core-local` is Megatron-Core's plain torch implementation (no sequence, context or latent-attention
            parallelism; equals upstream's local runs in every digit); `transformer-engine` needs that package;
            `auto` takes Transformer Engine where installed, `own` otherwise.
        fused_layers: additions with the norms after them, rotation of positions, and SwiGLU in single kernels; the
            activation is computed again in the backward pass instead of being kept. `auto` = on CUDA in half precision;
            `on` = everywhere, in plain torch where there is no kernel (for tests: slower).
        fused_loss: one kernel for the cross entropy, which leaves its gradient in the logits' place. `auto` = on CUDA in
            bfloat16, where the model allows it; `on` as above.
        fused_grad: accumulate weight gradients straight into the main gradient buffer. `auto` = on CUDA in half
            precision; `on` as above.
        fused_update: clip, update and copy parameters in one pass. `auto` = on CUDA in half precision.
        graphs: replay forward and backward passes as CUDA graphs. `auto` = where nothing in them asks the host (see `graphs`).
        attention_kernel: implementation of scaled dot product attention on CUDA; `auto` lets torch choose.
    """

    modules: Modules = "auto"
    fused_layers: Switch = "auto"
    fused_loss: Switch = "auto"
    fused_grad: Switch = "auto"
    fused_update: Switch = "auto"
    graphs: Switch = "auto"
    attention_kernel: AttentionKernel = "auto"


_LEGAL: dict[str, tuple[str, ...]] = {
    "modules": get_args(Modules),
    "fused_layers": get_args(Switch),
    "fused_loss": get_args(Switch),
    "fused_grad": get_args(Switch),
    "fused_update": get_args(Switch),
    "graphs": get_args(Switch),
    "attention_kernel": get_args(AttentionKernel),
}


def read_options(run: RunConfig) -> EngineOptions:
    """Read the `engine.*` keys of a run.

    Raises:
        UsageError: every unknown key and illegal value.
    """
    names = [item.name for item in fields(EngineOptions)]
    problems: list[Problem] = []
    chosen: dict[str, str] = {}
    for path, value in run.values.items():
        if not path.startswith(PREFIX):
            continue
        name = path.removeprefix(PREFIX)
        text = {True: "on", False: "off", None: "auto"}.get(value, value) if not isinstance(value, str) else value
        if name not in _LEGAL:
            problems.append(unknown_name("engine option", name, names))
        elif text not in _LEGAL[name]:
            hint = f"use one of {', '.join(_LEGAL[name])}"
            problems.append(Problem(path=path, message=f"{value!r} is not a choice", hint=hint))
        else:
            chosen[name] = str(text)
    if problems:
        raise UsageError(problems)
    return EngineOptions(**chosen)  # type: ignore[arg-type]


def for_conversion(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a run whose model is put together for a conversion; checkpoints are the same whatever its modules.

    Experts are one module each, so that each parameter has a name of its own; with biases only grouped ones are built.
    """
    biased = values.get("model.add_bias_linear", True) is not False
    return {**values, "model.moe_grouped_gemm": biased, "engine.modules": "own"}


def is_on(switch: Switch, *, default: bool) -> bool:
    """Resolve a switch, with what `auto` means here."""
    return default if switch == "auto" else switch == "on"
