"""Architectures that Megatron Bridge's model classes build beyond Megatron-Core's own fields: Gemma 1 to 3 and OLMoE.

A class is named by `model._class`. Leaves out: their vision towers and Gemma 4. Start reading at `read_variant`.

Source: Megatron Bridge 0.6.2, models/gemma/{gemma,gemma2,gemma3}_provider.py and models/olmoe/olmoe_provider.py.
Evidence: enforced-upstream; that they compute what transformers does is measured (tests/e2e/test_hf_checkpoints.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autorecipe.record import dataclass, field
from autorecipe.schema.run import RunConfig
from autorecipe.schema.value import UNKNOWN


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What a model class adds to a decoder of Megatron-Core's fields.

    Attributes:
        name: `model._class`.
        scales_embedding: whether embeddings are multiplied by the root of the hidden size, rounded to their own type.
        has_post_norms: whether what attention and feed-forward layers give is normalised before it is added.
        norms_all_heads: whether query and key norms run over all heads at once, not over each.
        attention_cap: scores become cap x tanh(score / cap) before the mask; None without.
        logit_cap: the same of the output layer's logits.
        rotary_bases: of layers with a window and of the others; None where there is one base.
        rotary_factor: divides the frequencies of layers without a window, where there are two bases.
        arguments: fields of the transformer configuration that follow, by name.
        fields: names of `model.*` fields that are read here and that Megatron-Core does not know or means otherwise.
        layer_spec: the layer specification that belongs to the class.
    """

    name: str
    scales_embedding: bool = False
    has_post_norms: bool = False
    norms_all_heads: bool = False
    attention_cap: float | None = None
    logit_cap: float | None = None
    rotary_bases: tuple[float, float] | None = None
    rotary_factor: float = 1.0
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fields: frozenset[str] = frozenset()
    layer_spec: str | None = None


def read_variant(run: RunConfig) -> Variant | None:
    """Return what the model class of a run adds, or None where it adds nothing or is not known here."""
    make = _CLASSES.get(str(run.get("model._class", None)))
    return None if make is None else make(run)


def variant_names() -> tuple[str, ...]:
    """Return the model classes that are known here."""
    return tuple(_CLASSES)


def _read(run: RunConfig, name: str) -> Any:
    value = run.get(f"model.{name}", None)
    return None if value is UNKNOWN else value


def _gemma(_run: RunConfig) -> Variant:
    return Variant(name="GemmaModelProvider", scales_embedding=True)


def _gemma2(run: RunConfig) -> Variant:
    """Windows in every second layer, the first included; soft caps; norms after attention and feed-forward layers."""
    scalar = _read(run, "query_pre_attn_scalar") or 224
    return Variant(
        name="Gemma2ModelProvider",
        scales_embedding=True,
        has_post_norms=True,
        attention_cap=_read(run, "attn_logit_softcapping") or None,
        logit_cap=_read(run, "final_logit_softcapping") or None,
        arguments={"softmax_scale": scalar**-0.5, "window_attn_skip_freq": _read(run, "window_attn_skip_freq") or 2},
        fields=frozenset(("query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping")),
        layer_spec="gemma2_layer_spec",
    )


def _gemma3(run: RunConfig) -> Variant:
    """Windows in all but every sixth layer, with a rotary base of their own; norms after attention and feed-forward layers."""
    bases = _read(run, "rotary_base")
    local, everywhere = bases if isinstance(bases, list | tuple) else (bases or 10_000, bases or 1_000_000)
    window, pattern = _read(run, "window_size"), _read(run, "interleaved_attn_pattern") or (5, 1)
    return Variant(
        name="Gemma3ModelProvider",
        scales_embedding=True,
        has_post_norms=True,
        rotary_bases=(local, everywhere),
        rotary_factor=_read(run, "rope_scaling_factor") or 1.0,
        arguments={
            "window_size": (window - 1, 0) if isinstance(window, int) else window,
            "window_attn_skip_freq": _read(run, "window_attn_skip_freq") or sum(pattern),
        },
        fields=frozenset(("interleaved_attn_pattern", "is_vision_language", "rotary_base", "rope_scaling_factor")),
        layer_spec="gemma3_layer_spec",
    )


def _olmoe(_run: RunConfig) -> Variant:
    """Query and key norms over all heads at once.

    Megatron-Core adds up the gradients of norms per head over tensor-parallel ranks; these are split over them, so that
    `qk_layernorm` stays off there.
    """
    arguments = {"qk_layernorm": False}
    return Variant(name="OlMoEModelProvider", norms_all_heads=True, arguments=arguments, layer_spec="olmoe_layer_spec")


_CLASSES: Mapping[str, Callable[[RunConfig], Variant]] = {
    "GemmaModelProvider": _gemma,
    "Gemma2ModelProvider": _gemma2,
    "Gemma3ModelProvider": _gemma3,
    "OlMoEModelProvider": _olmoe,
}
