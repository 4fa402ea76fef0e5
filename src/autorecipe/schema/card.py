"""Architecture facts of a model, by its Hugging Face id or from a local `config.json`."""

from __future__ import annotations

from collections.abc import Mapping

from autorecipe.record import dataclass
from autorecipe.schema.value import FieldValue


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """Facts of one model.

    Attributes:
        hf_model_id: such as `meta-llama/Meta-Llama-3-8B`; a path for a local configuration.
        facts: Megatron-side field values without the `model.` prefix, such as `num_layers` -> 32.
        confidence: `source`, `mixed` or `memory`.
        sources: where the facts come from.
        missing: facts that could not be found.
        num_parameters: measured by instantiating the model, or None.
        recipes: canonical recipe names that use the model.
    """

    hf_model_id: str
    facts: Mapping[str, FieldValue]
    confidence: str
    sources: tuple[str, ...]
    missing: tuple[str, ...] = ()
    num_parameters: int | None = None
    recipes: tuple[str, ...] = ()
