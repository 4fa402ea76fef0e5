"""Where fine-tuning rows come from: named data sets of a hub, and folders or files on this machine. No torch.

Source of names, splits and columns: Megatron Bridge 0.6.2 data/sources/hf.py. Evidence: enforced-upstream.
Leaves out: reading (`rows`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autorecipe.errors import Problem, unknown_name

LOCAL_COPIES = "AUTORECIPE_DATASETS"
"""Environment variable: a folder of local copies, under the preset's name or its hub id."""


@dataclass(frozen=True, kw_only=True)
class NamedSource:
    """A data set that a name stands for.

    Attributes:
        hub_id: on the Hugging Face hub.
        schema: which columns it has (see `examples`); None for rows that are prompts or chats already.
        splits: that it has; the first is the training split.
        subset: configuration of the data set, or None.
    """

    hub_id: str
    schema: str | None
    splits: tuple[str, ...]
    subset: str | None = None


NAMED: Mapping[str, NamedSource] = {
    "squad": NamedSource(hub_id="rajpurkar/squad", schema="squad", splits=("train", "validation")),
    "tulu3": NamedSource(hub_id="allenai/tulu-3-sft-mixture", schema=None, splits=("train",)),
    "openmathinstruct2": NamedSource(
        hub_id="nvidia/OpenMathInstruct-2",
        schema="openmathinstruct2",
        splits=("train_1M", "train", "train_2M", "train_5M"),
    ),
    "openmathinstruct2_thinking": NamedSource(
        hub_id="nvidia/OpenMathInstruct-2",
        schema="openmathinstruct2_thinking",
        splits=("train_1M", "train", "train_2M", "train_5M"),
    ),
    "gsm8k": NamedSource(hub_id="openai/gsm8k", schema="gsm8k", splits=("train", "test"), subset="main"),
}
"""By the name that `dataset.hf_dataset.dataset_name` holds."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Rows of one split.

    Attributes:
        path: a local file or folder, or a hub id.
        split: expression such as `train[:1000]`; empty for a whole file.
        schema: which columns the rows have; None for prompts or chats.
        subset: configuration of a hub data set, or None.
        load_options: further arguments of `datasets.load_dataset`.
        is_local: whether `path` is on this machine.
        named: name that stood for it, or empty.
    """

    path: str
    split: str = ""
    schema: str | None = None
    subset: str | None = None
    load_options: Mapping[str, Any] = field(default_factory=dict)
    is_local: bool = True
    named: str = ""

    def render(self) -> str:
        """Return what a message calls it."""
        return f"{self.path}[{self.split}]" if self.split else self.path


def find_local_copy(name: str, hub_id: str) -> Path | None:
    """Return the local copy of a named data set in the folder that the environment names, or None."""
    root = os.environ.get(LOCAL_COPIES)
    if not root:
        return None
    candidates = [Path(root).expanduser() / part for part in (name, name.replace("_", "-"), hub_id, hub_id.rsplit("/", 1)[-1])]
    return next((path for path in candidates if path.exists()), None)


def resolve_source(fields: Mapping[str, Any], *, path: str, problems: list[Problem], split: str = "") -> Source | None:
    """Turn one section of a configuration into a source.

    Args:
        fields: `dataset_name`, `path_or_dataset`, `split`, `subset`, `schema_adapter`, `load_kwargs.*` of the section.
        path: of the section, for messages.
        problems: where what is wrong is added.
        split: logical split where the section names none.
    """
    name, place = fields.get("dataset_name"), fields.get("path_or_dataset")
    if (name is None) == (place is None):
        message = f"names {'two sources' if name else 'no source'}: dataset_name={name!r}, path_or_dataset={place!r}"
        hint = (
            f"set {path}.dataset_name=null, or {path}.path_or_dataset=null" if name else "add --dataset squad, or --dataset-path"
        )
        problems.append(Problem(path=path, code="contradiction", message=message, hint=hint))
        return None
    if fields.get("adapter_kwargs"):
        message = f"{fields['adapter_kwargs']!r} is not read by --engine core"
        hint = "unset it, or add --engine bridge"
        problems.append(Problem(path=f"{path}.adapter_kwargs", code="engine-unsupported", message=message, hint=hint))
    options = {key.removeprefix("load_kwargs."): value for key, value in fields.items() if key.startswith("load_kwargs.")}
    options |= dict(fields.get("load_kwargs") or {})
    given = str(fields.get("split") or "") or split
    if name is None:
        local = Path(str(place)).expanduser()
        if not local.exists() and not local.is_absolute():
            local = find_local_copy(str(place), str(place)) or local
            files = options.get("data_files.train")
            if local.is_dir() and isinstance(files, str) and (local / files).is_file():
                local = local / files  # the one file of the data set that the run reads
        return Source(
            path=str(local) if local.exists() else str(place),
            split=given or "train",
            schema=fields.get("schema_adapter"),
            subset=fields.get("subset"),
            load_options=_nested(options),
            is_local=local.exists(),
        )
    named = NAMED.get(str(name))
    if named is None:
        problems.append(unknown_name("dataset", str(name), list(NAMED), hint=f"use one of {', '.join(NAMED)}"))
        return None
    given = given or named.splits[0]
    bad = [part for part in given.split("+") if part.partition("[")[0] not in named.splits]
    if bad:
        message = f"{bad[0]!r} is not a split of {name}: it has {', '.join(named.splits)}"
        problems.append(
            Problem(path=f"{path}.split", code="bad-value", message=message, hint=f"use {path}.split={named.splits[0]}")
        )
        return None
    copy = find_local_copy(str(name), named.hub_id)
    return Source(
        path=named.hub_id if copy is None else str(copy),
        split=given,
        schema=named.schema,
        subset=named.subset if copy is None else None,
        load_options=_nested(options) if copy is None else {},
        is_local=copy is not None,
        named=str(name),
    )


def _nested(options: Mapping[str, Any]) -> dict[str, Any]:
    """Turn `data_files.train` into `{"data_files": {"train": ...}}`."""
    tree: dict[str, Any] = {}
    for path, value in options.items():
        *parents, leaf = path.split(".")
        node = tree
        for part in parents:
            node = node.setdefault(part, {})
        node[leaf] = value
    return tree
