"""What a Hugging Face folder says about its model: `read_hf_model`. No torch, so that refusals come at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autorecipe.engine.hf.families import dense, gemma, gpt_oss, latent, mixture
from autorecipe.engine.hf.families.parts import Description
from autorecipe.engine.hf.fields import Fields
from autorecipe.engine.hf.pieces import Piece
from autorecipe.engine.hf.quantized import check_quantization
from autorecipe.engine.options import for_conversion
from autorecipe.errors import EnvironmentProblem, Problem, UsageError, near_misses
from autorecipe.schema.run import RunConfig

FAMILIES: Mapping[str, Callable[[Fields], Description]] = {
    **dense.FAMILIES,
    **mixture.FAMILIES,
    **latent.FAMILIES,
    **gpt_oss.FAMILIES,
    **gemma.FAMILIES,
}
"""`model_type` -> what reads its configuration."""

MISSING: Mapping[str, str] = {
    "gemma3": "a vision tower",
    "mistral3": "a vision tower",
    "qwen3_next": "linear attention",
}
"""`model_type` -> what its models need and this engine does not build."""

DTYPES = ("float32", "bfloat16", "float16")
VOCABULARY = ("embedding.word_embeddings.weight", "output_layer.weight")
"""Parameters with one row per token."""


@dataclass(frozen=True, kw_only=True)
class HfModel:
    """A model as its Hugging Face folder describes it.

    Attributes:
        family: `model_type`.
        dtype: of the weights: `float32`, `bfloat16` or `float16`.
        values: `model.*` and precision fields of a run that builds it.
        pieces: every parameter, in the order of the layers.
        left_out: prefixes of tensors that are in the files and have no place in this engine's model.
        notes: what the user must know.
        quantization: `quantization_config`, or None where weights are stored as they are.
    """

    family: str
    dtype: str
    values: Mapping[str, Any]
    pieces: tuple[Piece, ...]
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    quantization: Mapping[str, Any] | None = None

    def as_run(self) -> RunConfig:
        """Return a run that builds the model on one process, as conversions walk over it."""
        return RunConfig(values=for_conversion(self.values))

    def with_vocabulary(self, size: int | None) -> HfModel:
        """Return the model with rows of zeros for further tokens, as Megatron-Core fills them when it loads.

        A further token has a logit of 0 then, so that the model is not quite the same: its probabilities share with it.
        Source: megatron/core/dist_checkpointing/strategies/torch.py `mcore_to_pyt_state_dict` @ 0.16.1, which reads a smaller
        vocabulary into zeros; `_pad_right_dim0` of Megatron Bridge 0.6.2 on several tensor ranks.

        Args:
            size: of the vocabulary; None leaves it as it is.

        Raises:
            UsageError: it is smaller than the model's own.
        """
        own = int(self.values["model.vocab_size"])
        if size is None or size == own:
            return self
        if size < own:
            message, hint = f"{size} is smaller than the vocabulary of config.json, {own}", f"give more than {own}, or leave it"
            raise UsageError(Problem(path="--vocab-size", code="bad-value", message=message, hint=hint))
        pieces = tuple(replace(piece, padding=size - own) if piece.name in VOCABULARY else piece for piece in self.pieces)
        return replace(self, values={**self.values, "model.vocab_size": size}, pieces=pieces)


def read_hf_model(folder: Path) -> HfModel:
    """Read `config.json` of a folder.

    Raises:
        EnvironmentProblem: the file is not there or not JSON.
        UsageError: a family or a setting that is not converted, all at once.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError("it holds no object")
    except (OSError, ValueError) as error:
        hint = "give a folder that a transformers model was saved to"
        raise EnvironmentProblem(
            Problem(path=str(path), code="bad-config", message=f"cannot be read: {error}", hint=hint)
        ) from None
    family = str(config.get("model_type", ""))
    describe = FAMILIES.get(family)
    if describe is None:
        why = f": it needs {MISSING[family]}, which this engine does not build" if family in MISSING else ""
        close = near_misses(family, list(FAMILIES)) if not why else []
        meant = f"; did you mean {', '.join(repr(name) for name in close)}?" if close else ""
        message, hint = f"model_type {family!r} is not converted{why}{meant}", f"use one of {', '.join(FAMILIES)}"
        raise UsageError(Problem(path=str(path), code="hf-unsupported", message=message, hint=hint))
    fields = Fields(path, config, family=family)
    description = describe(fields)
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch.")
    if dtype not in DTYPES:
        fields.refuse(f"dtype={dtype!r}", f"use one of {', '.join(DTYPES)}")
    quantization = check_quantization(fields)
    fields.finish()
    if fields.problems:
        raise UsageError(fields.problems)
    values = {f"model.{name}": value for name, value in description.values.items()}
    values |= {"mixed_precision.bf16": dtype == "bfloat16", "mixed_precision.fp16": dtype == "float16"}
    return HfModel(
        family=family,
        dtype=dtype,
        values=values,
        pieces=tuple(description.pieces),
        left_out=description.left_out,
        notes=description.notes,
        quantization=quantization,
    )
