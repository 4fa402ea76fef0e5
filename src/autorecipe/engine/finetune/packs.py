"""What a configuration says about packs: their length, the alignment of rows, and packs that were made before. No torch.

Source of names and defaults: Megatron Bridge 0.6.2 data/packing/config.py. Leaves out: which rows share a pack (`packing`), and
reading packs from files (`prebuilt`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from autorecipe.config.views import view_layout
from autorecipe.errors import Problem
from autorecipe.schema.run import RunConfig
from autorecipe.schema.value import UNKNOWN

SPECS = "dataset.offline_packing_specs"


@dataclass(frozen=True, kw_only=True)
class Packing:
    """Several rows end to end in one sequence.

    Attributes:
        length: tokens of a pack.
        multiple: each row is padded to a multiple of this many tokens.
        longest_row: tokens that a single row may have.
        pads_boundaries: list as many boundaries for every pack, the last one repeated, as captured CUDA graphs need.
        train_files: packs of training that were made before: a file, a folder or a pattern; None makes them from rows.
        validation_files: those of validation.
    """

    length: int
    multiple: int
    longest_row: int
    pads_boundaries: bool = False
    train_files: str | None = None
    validation_files: str | None = None


def layout_multiple(run: RunConfig) -> int:
    """Return what context and sequence parallelism need a sequence to be a multiple of."""
    layout = view_layout(run)
    return math.lcm(2 * layout.cp if layout.cp > 1 else 1, layout.tp * layout.cp if layout.sequence_parallel else 1)


def read_packing(run: RunConfig, sequence: int, problems: list[Problem]) -> Packing | None:
    """Read the fields of packing; None where each row has a sequence to itself.

    Args:
        run: a resolved configuration.
        sequence: tokens of a sequence.
        problems: where what is wrong is added.
    """
    if run.get("dataset.enable_offline_packing", None) is not True:
        return None

    def value(name: str) -> Any:
        found = run.get(f"{SPECS}.{name}", None)
        return None if found is UNKNOWN else found

    def whole(name: str, fallback: int) -> int:
        found = value(name)
        if found is None:
            return fallback
        if not isinstance(found, int) or isinstance(found, bool) or found < 1:
            message, hint = f"{found!r} is not a whole number from 1 on", f"use {SPECS}.{name}={fallback}"
            problems.append(Problem(path=f"{SPECS}.{name}", code="bad-value", message=message, hint=hint))
            return fallback
        return found

    length, multiple = whole("packed_sequence_size", sequence), whole("pad_seq_to_mult", 1)
    layout, needed = view_layout(run), layout_multiple(run)
    if layout.cp > 1 and multiple % (2 * layout.cp):
        message = f"{multiple} is not a multiple of 2 x context_parallel_size={layout.cp}: each row is cut into that many chunks"
        hint = f"use {SPECS}.pad_seq_to_mult={math.lcm(multiple, needed)}"
        problems.append(Problem(path=f"{SPECS}.pad_seq_to_mult", code="bad-value", message=message, hint=hint))
    if length % math.lcm(multiple, needed):
        wanted = math.lcm(multiple, needed)
        message = f"{length} is not a multiple of {wanted}, to which rows are padded for this layout"
        hint = f"use dataset.seq_length={max(1, length // wanted) * wanted}"
        problems.append(Problem(path=f"{SPECS}.packed_sequence_size", code="bad-value", message=message, hint=hint))
    longest = whole("max_single_sequence_length", sequence)
    if longest > length:
        message, hint = f"{longest} is longer than a pack of {length}", f"use {SPECS}.max_single_sequence_length={length}"
        problems.append(Problem(path=f"{SPECS}.max_single_sequence_length", code="bad-value", message=message, hint=hint))
    for path in ("train.micro_batch_size", "validation.eval_micro_batch_size"):
        size = run.get(path, None)
        if isinstance(size, int) and size != 1:
            message = f"{size} with packing: a micro batch is one pack"
            hint = f"use {path}=1, and a longer dataset.seq_length for as many tokens"
            problems.append(Problem(path=path, code="BR-PACK-02", message=message, hint=hint))
    return Packing(
        length=length,
        multiple=multiple,
        longest_row=longest,
        pads_boundaries=value("pad_cu_seqlens") is True,
        train_files=_read_files("packed_train_data_path", value("packed_train_data_path"), problems),
        validation_files=_read_files("packed_val_data_path", value("packed_val_data_path"), problems),
    )


def _read_files(name: str, found: Any, problems: list[Problem]) -> str | None:
    """Return a file, a folder or a pattern of packs."""
    if found is None:
        return None
    text = str(found)
    if text.lower().endswith(".npy"):
        message = f"{text!r} is NumPy's pickled form, which runs code of its own when it is read: not in --engine core"
        hint = (
            "convert it to Parquet with columns input_ids, seq_start_id, loss_mask; or unset it, and packs are made from the rows"
        )
        problems.append(Problem(path=f"{SPECS}.{name}", code="engine-unsupported", message=message, hint=hint))
    return text
