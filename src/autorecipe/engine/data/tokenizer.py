"""Tokenizers as datasets need them: vocabulary size, end-of-document id, padding id, and ids of a text.

Purpose: the vocabulary rules of upstream without its tokenizer classes, whose behaviour differs between releases of
Megatron-Core. Leaves out: laying out chats (`autorecipe.engine.finetune.chat`).

Source: megatron/core/tokenizers/text/libraries/null_tokenizer.py @ core 0.19.2 (vocabulary as given, end-of-document is its
last id, no padding id); Megatron Bridge src/megatron/bridge/training/setup.py `_validate_and_set_vocab_size` @ 0.6.2.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from autorecipe.errors import EnvironmentProblem, Problem, UsageError
from autorecipe.schema.run import Origin, OriginKind, RunConfig
from autorecipe.schema.value import UNKNOWN


class Tokenizer(Protocol):
    """What Megatron-Core's datasets ask of a tokenizer."""

    @property
    def vocab_size(self) -> int:
        """Ids there are, unpadded."""

    @property
    def eod(self) -> int:
        """Id that ends a document."""

    @property
    def pad(self) -> int:
        """Padding id; -1 for none."""

    @property
    def unique_identifiers(self) -> Mapping[str, Any]:
        """What identifies this tokenizer in a dataset cache."""

    def tokenize(self, text: str) -> list[int]:
        """Return the ids of a text, without an end-of-document id."""

    def detokenize(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""


@dataclass(frozen=True)
class NullTokenizer:
    """Reads numbers as ids: for mock data, or where a text is tokenized already.

    Attributes:
        size: vocabulary size; the last id ends a document.
    """

    size: int

    @property
    def vocab_size(self) -> int:
        """Ids there are, unpadded."""
        return self.size

    @property
    def eod(self) -> int:
        """The last id."""
        return self.size - 1

    @property
    def pad(self) -> int:
        """There is none."""
        return -1

    @property
    def unique_identifiers(self) -> Mapping[str, Any]:
        """Class and size."""
        return OrderedDict({"class": "NullTokenizer", "vocab_size": self.size, "eod_id": self.eod})

    def tokenize(self, text: str) -> list[int]:
        """Read white-space separated numbers.

        Raises:
            UsageError: a word that is no id of this vocabulary.
        """
        try:
            ids = [int(word) for word in text.split()]
        except ValueError as error:
            raise UsageError(f"NullTokenizer reads numbers only: {error}", hint="choose a tokenizer for text") from None
        wrong = [number for number in ids if not 0 <= number < self.size]
        if wrong:
            raise UsageError(f"ids {wrong[:3]} are outside the vocabulary of {self.size}", hint="raise the vocabulary size")
        return ids

    def detokenize(self, ids: Sequence[int]) -> str:
        """Return the numbers, separated by spaces."""
        return " ".join(str(number) for number in ids)


@dataclass(frozen=True)
class ByteTokenizer:
    """One id per byte of UTF-8, and one for the end of a document: needs no file, reads any text."""

    @property
    def vocab_size(self) -> int:
        """256 bytes and the end of a document."""
        return 257

    @property
    def eod(self) -> int:
        """The id after the bytes."""
        return 256

    @property
    def pad(self) -> int:
        """There is none."""
        return -1

    @property
    def unique_identifiers(self) -> Mapping[str, Any]:
        """Class."""
        return OrderedDict({"class": "ByteTokenizer"})

    def tokenize(self, text: str) -> list[int]:
        """Return the bytes of a text."""
        return list(text.encode("utf-8"))

    def detokenize(self, ids: Sequence[int]) -> str:
        """Return the text of bytes; what is not UTF-8 becomes a replacement character."""
        return bytes(number for number in ids if number < self.eod).decode("utf-8", errors="replace")


class HuggingFaceTokenizer:
    """A tokenizer of the `transformers` package, from a local folder or its cache."""

    def __init__(self, name: str) -> None:
        """Load it.

        Raises:
            EnvironmentProblem: `transformers` is missing, or the files are not here.
        """
        try:
            from transformers import AutoTokenizer
        except ImportError:
            raise EnvironmentProblem(
                f"tokenizer {name!r} needs the transformers package", hint="pip install 'autorecipe[hf]'"
            ) from None
        try:
            self._inner = AutoTokenizer.from_pretrained(name)
        except Exception as error:  # the hub's client raises a dozen kinds; all mean that the files cannot be had
            raise EnvironmentProblem(
                f"cannot load tokenizer {name!r}: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
                hint="download it first and set tokenizer.tokenizer_model=/path/to/folder",
            ) from None
        self.name = name

    @property
    def inner(self) -> Any:
        """The object of the `transformers` package."""
        return self._inner

    @property
    def bos(self) -> int | None:
        """The id that begins a text, or None."""
        found = self._inner.bos_token_id
        return None if found is None else int(found)

    @property
    def sep(self) -> int | None:
        """The id that separates two texts, or None."""
        found = getattr(self._inner, "sep_token_id", None)
        return None if found is None else int(found)

    @property
    def vocab_size(self) -> int:
        """Ids there are, added tokens included."""
        return len(self._inner)

    @property
    def eod(self) -> int:
        """The tokenizer's end-of-sequence id."""
        if self._inner.eos_token_id is None:
            raise UsageError(f"tokenizer {self.name!r} has no end-of-sequence token", hint="choose another tokenizer")
        return int(self._inner.eos_token_id)

    @property
    def pad(self) -> int:
        """The padding id, or -1 where there is none or it also ends documents (padding must not mask those)."""
        pad = self._inner.pad_token_id
        return -1 if pad is None or pad == self._inner.eos_token_id else int(pad)

    @property
    def unique_identifiers(self) -> Mapping[str, Any]:
        """Class and name."""
        return OrderedDict({"class": "HuggingFaceTokenizer", "tokenizer_path": [self.name]})

    def set_chat_template(self, template: str) -> None:
        """Use another chat template than the tokenizer's own."""
        self._inner.chat_template = template

    def tokenize(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens."""
        return list(self._inner(text, add_special_tokens=False)["input_ids"])

    def detokenize(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without special tokens."""
        return str(self._inner.decode(list(ids), skip_special_tokens=True))


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """A tokenizer, the configuration that its vocabulary completes, and what the user must know.

    Attributes:
        tokenizer: for the datasets.
        run: with `model.vocab_size` and `model.should_pad_vocab` set.
        notes: for the user.
    """

    tokenizer: Tokenizer
    run: RunConfig
    notes: tuple[str, ...] = ()


def load_tokenizer(kind: str, model: str | None, vocab_size: int | None) -> Tokenizer:
    """Return a tokenizer by its upstream type name.

    Args:
        kind: `NullTokenizer`, `HuggingFaceTokenizer`, or our own `ByteTokenizer`.
        model: name or folder, for the types that need one.
        vocab_size: for `NullTokenizer`.

    Raises:
        UsageError: an unknown type, or a missing name or size.
        EnvironmentProblem: the files are not here.
    """
    if kind == "NullTokenizer":
        if not isinstance(vocab_size, int) or vocab_size < 2:
            raise UsageError(
                Problem(
                    path="tokenizer.vocab_size",
                    code="missing-value",
                    message=f"NullTokenizer needs a vocabulary size, not {vocab_size!r}",
                    hint="add tokenizer.vocab_size=32000",
                )
            )
        return NullTokenizer(vocab_size)
    if kind == "ByteTokenizer":
        return ByteTokenizer()
    if kind == "HuggingFaceTokenizer":
        if not model:
            raise UsageError(
                Problem(
                    path="tokenizer.tokenizer_model",
                    code="missing-value",
                    message="is not set",
                    hint="add tokenizer.tokenizer_model=NAME_OR_FOLDER",
                )
            )
        return HuggingFaceTokenizer(model)
    raise UsageError(
        Problem(
            path="tokenizer.tokenizer_type",
            code="unsupported",
            message=f"{kind!r} is not supported by --engine core",
            hint="use NullTokenizer, HuggingFaceTokenizer or ByteTokenizer, or --engine bridge",
        )
    )


def resolve_vocabulary(run: RunConfig, *, mock: bool) -> Vocabulary:
    """Build the tokenizer and settle the vocabulary size that the model gets.

    The tokenizer's size is taken, and padded, where the model has none or `tokenizer.use_tokenizer_vocab_size` is set;
    a model's own size is kept unpadded and must not be smaller. With mock data, a tokenizer whose files are not on this
    machine is replaced by a `NullTokenizer` of the model's size, with a note: mock tokens need no text.

    Args:
        run: a resolved configuration.
        mock: whether the data is synthetic.

    Raises:
        UsageError: no size is known, or the model's is smaller than the tokenizer's.
        EnvironmentProblem: real data and the tokenizer is not here.
    """

    def value(path: str) -> Any:
        found = run.get(path, None)
        return None if found is UNKNOWN else found

    kind = str(value("tokenizer.tokenizer_type") or "NullTokenizer")
    model_size, tokenizer_size = value("model.vocab_size"), value("tokenizer.vocab_size")
    name = value("tokenizer.tokenizer_model")
    notes: list[str] = []
    if mock and kind == "HuggingFaceTokenizer" and not (name and Path(str(name)).is_dir()):
        size = model_size or tokenizer_size
        if not isinstance(size, int):
            raise UsageError(
                Problem(
                    path="model.vocab_size",
                    code="missing-value",
                    message=f"is not known, and tokenizer {name!r} is not a local folder",
                    hint="add model.vocab_size=VALUE, or tokenizer.tokenizer_model=/path/to/folder",
                )
            )
        notes.append(f"mock data: tokens are drawn for a vocabulary of {size}; tokenizer {name!r} is not loaded")
        tokenizer: Tokenizer = NullTokenizer(size)
    else:
        tokenizer = load_tokenizer(kind, name, tokenizer_size if tokenizer_size is not None else model_size)
        set_template(tokenizer, value("tokenizer.chat_template"), value("tokenizer.chat_template_path"))
    take = bool(value("tokenizer.use_tokenizer_vocab_size")) or model_size is None
    if not take and model_size < tokenizer.vocab_size:
        raise UsageError(
            Problem(
                path="model.vocab_size",
                code="bad-value",
                message=f"{model_size} is smaller than the tokenizer's {tokenizer.vocab_size}",
                hint=f"use model.vocab_size={tokenizer.vocab_size} or more, or tokenizer.vocab_size={model_size}",
            )
        )
    size = tokenizer.vocab_size if take else model_size
    origin = Origin(kind=OriginKind.DERIVED, detail="from the tokenizer" if take else "as set for the model")
    complete = dataclasses.replace(
        run,
        values={**run.values, "model.vocab_size": size, "model.should_pad_vocab": take},
        origins={**run.origins, "model.vocab_size": origin, "model.should_pad_vocab": origin},
    )
    return Vocabulary(tokenizer=tokenizer, run=complete, notes=tuple(notes))


def set_template(tokenizer: Tokenizer, text: str | None, path: str | None) -> None:
    """Give a tokenizer the chat template of the configuration, where it names one.

    Raises:
        EnvironmentProblem: its file cannot be read.
        UsageError: the tokenizer takes no template.
    """
    if not text and not path:
        return
    if not isinstance(tokenizer, HuggingFaceTokenizer):
        field = "tokenizer.chat_template" if text else "tokenizer.chat_template_path"
        message, hint = f"is set, and a {type(tokenizer).__name__} takes no template", f"set {field}=null"
        raise UsageError(Problem(path=field, code="contradiction", message=message, hint=hint))
    if not text:
        try:
            text = Path(str(path)).expanduser().read_text(encoding="utf-8")
        except OSError as error:
            raise EnvironmentProblem(
                f"cannot read {path}: {error.strerror}", hint="correct tokenizer.chat_template_path"
            ) from None
    tokenizer.set_chat_template(text)
