"""Arithmetic of a run: parameter type, gradient reduction type, loss scaling.

`mixed_precision` (a preset's name, or fields below it) decides over `model.*`, `optimizer.*` and `ddp.*`, as upstream does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from autorecipe.errors import Problem, UsageError
from autorecipe.schema.run import RunConfig

_DTYPES = {
    "fp32": torch.float32,
    "float32": torch.float32,
    "float": torch.float32,
    "fp16": torch.float16,
    "float16": torch.float16,
    "half": torch.float16,
    "bf16": torch.bfloat16,
    "bfloat16": torch.bfloat16,
    "fp64": torch.float64,
    "float64": torch.float64,
}

# Source: Megatron Bridge 0.6.2 training/mixed_precision.py. Evidence: enforced-upstream.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "bf16_mixed": {"bf16": True, "params_dtype": "torch.bfloat16", "grad_reduce_in_fp32": True},
    "fp16_mixed": {"fp16": True, "params_dtype": "torch.float16", "grad_reduce_in_fp32": False},
}

_SCALING = ("loss_scale", "initial_loss_scale", "min_loss_scale", "loss_scale_window", "hysteresis")


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Resolved arithmetic.

    Attributes:
        bf16: parameters and activations in bfloat16, main weights in float32.
        fp16: parameters and activations in float16 with loss scaling, main weights in float32.
        grad_reduce_in_fp32: accumulate and reduce gradients in float32.
        loss_scaling: the loss scaling fields that are set, by name.
    """

    bf16: bool
    fp16: bool
    grad_reduce_in_fp32: bool
    loss_scaling: Mapping[str, Any] = field(default_factory=dict)

    @property
    def dtype(self) -> torch.dtype:
        """Type of parameters and activations."""
        if self.bf16:
            return torch.bfloat16
        return torch.float16 if self.fp16 else torch.float32


def view_precision(run: RunConfig) -> Precision:
    """Return the arithmetic of a run.

    Raises:
        UsageError: an unknown preset, fp8 or fp4 (see `--engine bridge`), or bf16 and fp16 together.
    """
    preset = _read_preset(run)
    base = {
        "bf16": run.get("model.bf16", None),
        "fp16": run.get("model.fp16", None),
        "grad_reduce_in_fp32": run.get("ddp.grad_reduce_in_fp32", None),
    }
    values = {**base, **preset} if preset else base
    if values.get("fp8") or values.get("fp4"):
        raise _no_low_precision(f"fp8={values.get('fp8')!r} fp4={values.get('fp4')!r}")
    if values.get("bf16") and values.get("fp16"):
        raise UsageError(Problem(path="model.bf16", message="is True together with model.fp16", hint="set one of them"))
    scaling = {name: run.get(f"optimizer.{name}", None) for name in _SCALING}
    scaling |= {name: preset[name] for name in _SCALING if name in preset}
    return Precision(
        bf16=bool(values.get("bf16")),
        fp16=bool(values.get("fp16")),
        grad_reduce_in_fp32=bool(values.get("grad_reduce_in_fp32")),
        loss_scaling={name: value for name, value in scaling.items() if value is not None},
    )


def parse_dtype(value: Any) -> torch.dtype | None:
    """Turn `torch.bfloat16`, `bf16` and the like into a torch type; None stays None.

    Raises:
        UsageError: an unknown name.
    """
    if value is None or isinstance(value, torch.dtype):
        return value
    name = str(value).removeprefix("torch.")
    if name not in _DTYPES:
        raise UsageError(Problem(message=f"{value!r} is not a number type", hint=f"use one of {sorted(_DTYPES)}"))
    return _DTYPES[name]


def parse_number(value: Any) -> Any:
    """Turn `inf`, `-inf` and `nan`, which configurations spell as text, into numbers; other values stay."""
    return float(value) if isinstance(value, str) and value in ("inf", "-inf", "nan") else value


def _read_preset(run: RunConfig) -> dict[str, Any]:
    value = run.get("mixed_precision", None)
    fields = {
        path.removeprefix("mixed_precision."): item
        for path, item in run.values.items()
        if path.startswith("mixed_precision.") and path.count(".") == 1
    }
    if isinstance(value, Mapping):
        return {**value, **fields}
    if not isinstance(value, str):
        return fields
    name = value.replace("-", "_")
    if name in PRESETS:
        return {**PRESETS[name], **fields}
    if "fp8" in name or "fp4" in name:
        raise _no_low_precision(value)
    raise UsageError(
        Problem(path="mixed_precision", message=f"{value!r} is not a preset", hint=f"use one of {', '.join(sorted(PRESETS))}")
    )


def _no_low_precision(value: str) -> UsageError:
    return UsageError(
        Problem(
            code="engine-unsupported",
            path="mixed_precision",
            message=f"{value}: 8-bit and 4-bit training needs Transformer Engine's kernels, which this engine does not drive",
            hint="add --engine bridge, or set mixed_precision=bf16_mixed",
        )
    )
