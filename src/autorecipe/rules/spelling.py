"""Spellings of configuration values: enums, dtypes, callables and precision presets, brought to plain words."""

from __future__ import annotations

from typing import Any


def read_preset(name: str) -> dict[str, Any]:
    """Return what the name of a precision preset says, such as `bf16_with_mxfp8_mixed`.

    Source: the factories of megatron/bridge/training/mixed_precision.py:185-433 @ 0.6.2. Evidence: enforced-upstream.
    """
    text = name.lower().replace("-", "_")
    found: dict[str, Any] = {"bf16": "bf16" in text, "fp16": "fp16" in text, "fp8": None, "fp4": None}
    for word, recipe in FP8_WORDS.items():
        if word in text:
            found |= {"fp8": "hybrid" if recipe in ("delayed", "tensorwise") else "e4m3", "fp8_recipe": recipe}
    if "nvfp4" in text:
        found |= {"fp4": "e2m1", "fp4_recipe": "nvfp4"}
    return found if text.endswith("mixed") else {}


FP8_WORDS = {"fp8_delayed": "delayed", "mxfp8": "mxfp8", "fp8_current": "tensorwise", "fp8_subchannel": "blockwise"}


def plain_name(value: Any) -> str:
    """Return the last part of an enum, dtype or callable value in lower case: `AttnBackend.flash` -> `flash`."""
    return str(value).rsplit(":", 1)[-1].rsplit(".", 1)[-1].lower()


DTYPES = {"float32": "fp32", "float": "fp32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "uint8": "fp8"}


def dtype_name(value: Any) -> str:
    """Return `fp32`, `bf16`, `fp16` or `fp8` for any spelling of a dtype."""
    name = plain_name(value)
    return DTYPES.get(name, name)
