"""What a configuration says about its fine-tuning data: sources, prompts or chats, truncation, packing, order. No torch.

Source of names and defaults: Megatron Bridge 0.6.2 data/builders/gpt_sft.py, data/sft_processing.py, data/packing/config.py.
Start reading at `read_finetune_spec`.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autorecipe.config.views import view_seq_length
from autorecipe.engine.finetune.packs import Packing, layout_multiple, read_packing
from autorecipe.engine.finetune.sources import Source, resolve_source
from autorecipe.errors import Problem, UsageError
from autorecipe.schema.run import RunConfig
from autorecipe.schema.value import UNKNOWN

CONFIG_CLASS = "GPTSFTDatasetConfig"
CHAT_CLASS = "ChatSFTPreprocessingConfig"
PROMPT_CLASS = "PromptCompletionSFTPreprocessingConfig"
CHAT_OVERRIDE = f"'dataset.preprocessing={{_target_:megatron.bridge.data.sft_processing.{CHAT_CLASS}}}'"
DEFAULT_MULTIPLE = 16
"""Unpacked batches are padded to a multiple of this many tokens (data/datasets/gpt_sft.py pad_seq_length_to_mult)."""

FILES = {"train": "training.jsonl", "validation": "validation.jsonl", "test": "test.jsonl"}
"""Files of a local `dataset.dataset_root`."""


@dataclass(frozen=True, kw_only=True)
class PromptFormat:
    """Rows with a prompt and a completion.

    Attributes:
        prompt_column: column of the prompt; `prompt` and `completion` are read too.
        completion_column: column of the answer.
        template: text around `{prompt}`.
        separator: text between prompt and answer.
        trains_all: loss on the prompt as well.
        strips: drop spaces at both ends of both.
        add_bos: begin with the tokenizer's beginning-of-sequence id.
        add_sep: put the tokenizer's separator id between them.
        add_eos: end with the end-of-sequence id.
        keeps_end: what truncation keeps: the end of a text instead of its beginning.
    """

    prompt_column: str = "input"
    completion_column: str = "output"
    template: str = "{prompt}"
    separator: str = " "
    trains_all: bool = False
    strips: bool = True
    add_bos: bool = False
    add_sep: bool = False
    add_eos: bool = True
    keeps_end: bool = False


@dataclass(frozen=True, kw_only=True)
class ChatFormat:
    """Rows with messages, laid out by a chat template.

    Attributes:
        trains: `assistant` (every answer), `last_turn` or `full`.
    """

    trains: str = "assistant"


@dataclass(frozen=True, kw_only=True)
class FinetuneSpec:
    """The fine-tuning data of one run.

    Attributes:
        train: training rows.
        validation: validation rows, or None.
        test: test rows, or None.
        held_out: share of the training rows that is held out for validation instead, or None.
        form: how a row becomes tokens.
        seq_length: tokens of a sequence.
        multiple: unpacked batches are padded to a multiple of this.
        pads_whole: pad to `seq_length` instead of the longest row of the batch.
        packing: or None for one row per sequence.
        max_train_samples: sequences of training that an epoch has instead, or None for all of them, each once.
        drops_last: leave the ragged end of an epoch out; otherwise it is filled up with a row that teaches nothing.
        shuffles: every epoch in an order of its own; otherwise one pass in the rows' order.
        seed: of the order, the held-out rows and the packs.
        num_workers: loader processes per rank and split.
        tokenizer_workers: processes that tokenize; -1 leaves it to the engine.
        rewrite: tokenize anew although a tokenized copy is here.
        root: folder of tokenized copies, or None for the user's cache.
    """

    train: Source
    validation: Source | None
    test: Source | None
    held_out: float | None
    form: PromptFormat | ChatFormat
    seq_length: int
    multiple: int
    pads_whole: bool
    packing: Packing | None
    max_train_samples: int | None
    drops_last: bool
    shuffles: bool
    seed: int
    num_workers: int
    tokenizer_workers: int
    rewrite: bool
    root: Path | None

    @property
    def row_limit(self) -> int:
        """Token ids that a row may have, the last one (which is only predicted) included.

        A chat fills the sequence with what is read; a prompt pair counts the last id too, unless packs align rows.
        """
        longest, aligned = self.seq_length, False
        if self.packing is not None:
            longest = self.packing.longest_row // self.packing.multiple * self.packing.multiple
            aligned = self.packing.multiple > 1
        return longest + 1 if aligned or isinstance(self.form, ChatFormat) else longest

    def render(self) -> str:
        """Return one line for the user."""
        kind = "chats" if isinstance(self.form, ChatFormat) else "prompts and completions"
        laid = f"packed to {self.packing.length} tokens" if self.packing else f"one to a sequence of {self.seq_length}"
        rows = (self.packing and self.packing.train_files) or f"{self.train.render()}, {kind}"
        return f"fine-tuning data: {rows}, {laid}"


def is_finetuning(run: RunConfig) -> bool:
    """Return whether a configuration's data is for fine-tuning."""
    return run.get("dataset._class", None) == CONFIG_CLASS


def read_finetune_spec(run: RunConfig) -> FinetuneSpec:
    """Read the data fields.

    Raises:
        UsageError: every missing, malformed or unsupported field at once.
    """
    problems: list[Problem] = []

    def value(path: str, fallback: Any = None) -> Any:
        found = run.get(f"dataset.{path}", None)
        return fallback if found is None or found is UNKNOWN else found

    _refuse_unsupported(run, problems)
    form = _read_form(run, problems)
    train, validation, test, held_out = _read_sources(run, problems)
    sequence = view_seq_length(run) or 0
    if sequence < 2:
        message, hint = f"{sequence} tokens hold no prediction", "add dataset.seq_length=2048"
        problems.append(Problem(path="dataset.seq_length", code="bad-value", message=message, hint=hint))
    packing = read_packing(run, sequence, problems)
    most = value("max_train_samples")
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
        message, hint = f"{most!r} is not a whole number from 1 on", "use dataset.max_train_samples=1000, or unset it"
        problems.append(Problem(path="dataset.max_train_samples", code="bad-value", message=message, hint=hint))
    needed = layout_multiple(run)
    if packing is None and sequence % needed:
        message = f"{sequence} is not a multiple of {needed}, as context and sequence parallelism cut it"
        hint = f"use dataset.seq_length={max(1, sequence // needed) * needed}"
        problems.append(Problem(path="dataset.seq_length", code="bad-value", message=message, hint=hint))
    if value("dataloader_type") == "single" and value("drop_last", True) is False:
        message, hint = "False fills an epoch up, and dataset.dataloader_type=single has one pass", "set dataset.drop_last=true"
        problems.append(Problem(path="dataset.drop_last", code="contradiction", message=message, hint=hint))
    if problems or train is None:
        raise UsageError(problems)
    root = value("hf_output_root")
    return FinetuneSpec(
        train=train,
        validation=validation,
        test=test,
        held_out=held_out,
        form=form,
        seq_length=sequence,
        multiple=math.lcm(int(_keyword(run, "pad_seq_length_to_mult") or DEFAULT_MULTIPLE), needed),
        pads_whole=_keyword(run, "pad_to_max_length") is True,
        packing=packing,
        max_train_samples=most,
        drops_last=value("drop_last", True) is not False,
        shuffles=value("dataloader_type", "batch") == "batch",
        seed=int(value("seed", 1234)),
        num_workers=int(value("num_workers", 2)),
        tokenizer_workers=int(value("offline_packing_specs.num_tokenizer_workers", -1)),
        rewrite=value("hf_rewrite", False) is True,
        root=Path(str(root)).expanduser() if root else None,
    )


_READ_KEYWORDS = ("pad_to_max_length", "pad_seq_length_to_mult")


def _keyword(run: RunConfig, name: str) -> Any:
    """Return one entry of `dataset.dataset_kwargs`, which is flat or a dictionary."""
    flat = run.get(f"dataset.dataset_kwargs.{name}", None)
    whole = run.get("dataset.dataset_kwargs", None)
    return flat if flat is not None else whole.get(name) if isinstance(whole, Mapping) else None


def _refuse_unsupported(run: RunConfig, problems: list[Problem]) -> None:
    remedies: dict[str, tuple[tuple[Any, ...], str]] = {
        "dataset.dataloader_type": (("batch", "single"), "set dataset.dataloader_type=batch"),
    }
    for path, (neutral, remedy) in remedies.items():
        found = run.get(path, None)
        if found is not None and found is not UNKNOWN and found not in neutral:
            message = f"{found!r} is not in --engine core with fine-tuning data"
            problems.append(
                Problem(path=path, code="engine-unsupported", message=message, hint=f"{remedy}; or add --engine bridge")
            )
    whole = run.get("dataset.dataset_kwargs", None)
    names = [path.removeprefix("dataset.dataset_kwargs.") for path in run.values if path.startswith("dataset.dataset_kwargs.")]
    for name in [*names, *(whole if isinstance(whole, Mapping) else ())]:
        if name not in _READ_KEYWORDS and _keyword(run, name) is not None:
            message = f"{name}={_keyword(run, name)!r} is not read by --engine core"
            hint = f"use {', '.join(_READ_KEYWORDS)} or the fields of dataset.preprocessing; or add --engine bridge"
            problems.append(Problem(path="dataset.dataset_kwargs", code="engine-unsupported", message=message, hint=hint))


def _read_form(run: RunConfig, problems: list[Problem]) -> PromptFormat | ChatFormat:
    kind = run.get("dataset.preprocessing._class", None)
    if kind is None or kind is UNKNOWN:
        from_hub = run.get("dataset.hf_dataset._class", None) is not None
        kind = CHAT_CLASS if from_hub else PROMPT_CLASS

    def value(name: str, fallback: Any) -> Any:
        found = run.get(f"dataset.preprocessing.{name}", None)
        return fallback if found is None or found is UNKNOWN else found

    def check(name: str, found: Any, legal: tuple[str, ...]) -> None:
        if found not in legal:
            message, hint = f"{found!r} is not {' or '.join(legal)}", f"use dataset.preprocessing.{name}={legal[0]}"
            problems.append(Problem(path=f"dataset.preprocessing.{name}", code="bad-value", message=message, hint=hint))

    if kind == CHAT_CLASS:
        mode = value("loss_mode", "assistant")
        check("loss_mode", mode, ("assistant", "last_turn", "full"))
        return ChatFormat(trains=mode)
    if kind != PROMPT_CLASS:
        message, hint = f"{kind!r} is not in --engine core", f"use {PROMPT_CLASS} or {CHAT_CLASS}"
        problems.append(Problem(path="dataset.preprocessing", code="engine-unsupported", message=message, hint=hint))
    mode, keeps = value("loss_mode", "completion"), value("truncation_method", "right")
    check("loss_mode", mode, ("completion", "full"))
    check("truncation_method", keeps, ("right", "left"))
    template = str(value("prompt_template", "{prompt}"))
    if not _is_template(template):
        message = f"{template!r} must hold {{prompt}} and no other field"
        hint = "such as 'dataset.preprocessing.prompt_template=\"Question: {prompt}\"'"
        problems.append(Problem(path="dataset.preprocessing.prompt_template", code="bad-value", message=message, hint=hint))
    has_section = run.get("dataset.preprocessing._class", None) is not None
    return PromptFormat(
        prompt_column=str(value("prompt_column", "prompt" if has_section else "input")),
        completion_column=str(value("completion_column", "completion" if has_section else "output")),
        template=template,
        separator=str(value("separator", "" if has_section else " ")),
        trains_all=mode == "full",
        strips=value("strip_whitespace", True) is True,
        add_bos=value("add_bos", False) is True,
        add_sep=value("add_sep", False) is True,
        add_eos=value("add_eos", True) is True,
        keeps_end=keeps == "left",
    )


def _is_template(template: str) -> bool:
    try:
        fields = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
    except ValueError:
        return False
    return bool(fields) and all(name == "prompt" for name in fields)


def _read_sources(run: RunConfig, problems: list[Problem]) -> tuple[Source | None, Source | None, Source | None, float | None]:
    """Return training, validation and test sources, and the held-out share."""

    def section(name: str) -> dict[str, Any]:
        prefix = f"dataset.{name}."
        return {path.removeprefix(prefix): value for path, value in run.values.items() if path.startswith(prefix)}

    validates, tests = run.get("dataset.do_validation", None) is not False, run.get("dataset.do_test", None) is not False
    root, hub = run.get("dataset.dataset_root", None), section("hf_dataset")
    if root is not None and root is not UNKNOWN and not hub:
        return *_read_root(Path(str(root)).expanduser(), validates=validates, tests=tests), None
    if root is not None and root is not UNKNOWN:
        message, hint = (
            f"{root!r} and dataset.hf_dataset are both set",
            "set dataset.hf_dataset=null, or dataset.dataset_root=null",
        )
        problems.append(Problem(path="dataset.dataset_root", code="contradiction", message=message, hint=hint))
        return None, None, None, None
    if not hub:
        message, hint = "is not set, nor is dataset.hf_dataset", "add --dataset-path FOLDER_OR_FILE, or --dataset squad"
        problems.append(Problem(path="dataset.dataset_root", code="missing-value", message=message, hint=hint))
        return None, None, None, None
    train = resolve_source(hub, path="dataset.hf_dataset", problems=problems)
    share = run.get("dataset.hf_validation_proportion", None)
    share = None if share is None or share is UNKNOWN or not validates else float(share)
    if share is not None and not 0.0 < share < 1.0:
        message, hint = f"{share!r} is not between 0 and 1", "use dataset.hf_validation_proportion=0.1"
        problems.append(Problem(path="dataset.hf_validation_proportion", code="bad-value", message=message, hint=hint))
    validation = None
    if validates and share is None:
        own = section("hf_validation_dataset")
        path = "dataset.hf_validation_dataset" if own else "dataset.hf_dataset"
        validation = resolve_source(own or {**hub, "split": None}, path=path, problems=problems, split="validation")
    test = None
    if tests:
        own = section("hf_test_dataset")
        path = "dataset.hf_test_dataset" if own else "dataset.hf_dataset"
        test = resolve_source(own or {**hub, "split": None}, path=path, problems=problems, split="test")
    return train, validation, test, share


def _read_root(root: Path, *, validates: bool, tests: bool) -> tuple[Source, Source | None, Source | None]:
    """Return the three files of a folder; a single file is training data."""
    if root.is_file():
        return Source(path=str(root)), None, None
    found = {name: Source(path=str(root / file)) for name, file in FILES.items()}
    validation = found["validation"] if validates and (root / FILES["validation"]).exists() else None
    test = found["test"] if tests and (root / FILES["test"]).exists() else None
    return found["train"], validation, test
