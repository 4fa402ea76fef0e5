"""Checkpoints as folders: names, manifest, integrity, retention. No torch; every change on disk is atomic.

A checkpoint is written as `iter_0000010.partial-TOKEN`, gets its manifest last, and is then renamed to `iter_0000010`: a
folder under its final name is complete. The token differs for every attempt, because writer processes outlive a rank that is
killed, and must not write into the next attempt's folder. `latest_checkpointed_iteration.txt` is kept for upstream's tools; we
trust the manifests. Leaves out: what is inside the tensors (`content`), who decides to save (`saver`).
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

MANIFEST = "autorecipe.json"
TRACKER = "latest_checkpointed_iteration.txt"
FORMAT = 1
CHECKSUM_LIMIT_BYTES = 2 * 1024**3
"""Checkpoints above this size are checked by file sizes alone, unless asked for more: one rank would read them all."""

_NAME = re.compile(r"^iter_(\d{7,})$")
_LEFTOVER = re.compile(r"^iter_\d{7,}\.(partial-\w+|removing)$")


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """One file of a checkpoint.

    Attributes:
        size: bytes.
        crc32: checksum, or None where the checkpoint was too large to read again.
    """

    size: int
    crc32: int | None


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a checkpoint says about itself, readable without torch.

    Attributes:
        iteration: steps done.
        consumed_train_samples: training samples read.
        consumed_valid_samples: validation samples read.
        skipped_train_samples: samples lost to rounding of a ramped batch.
        world_size: processes that wrote it.
        layout: rendered parallel layout.
        identity: what a model must share with it to resume.
        config: resolved configuration of the run, flat.
        scheduler: the schedule's state.
        core_release: Megatron-Core that wrote it.
        has_optimizer: whether the optimizer's state is inside.
        has_rng: whether the generators' states are inside.
        files: by name.
        format: of this manifest.
        saved_at: local time, ISO 8601.
    """

    iteration: int
    consumed_train_samples: int
    consumed_valid_samples: int
    skipped_train_samples: int = 0
    world_size: int
    layout: str
    identity: Mapping[str, Any]
    config: Mapping[str, Any]
    scheduler: Mapping[str, Any]
    core_release: str
    has_optimizer: bool = True
    has_rng: bool = True
    files: Mapping[str, StoredFile] = field(default_factory=dict)
    format: int = FORMAT
    saved_at: str = ""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A folder that claims to be a checkpoint.

    Attributes:
        path: the folder.
        iteration: from its name.
        manifest: or None where it cannot be read.
        damage: what is wrong with it; empty when it is whole.
    """

    path: Path
    iteration: int
    manifest: Manifest | None
    damage: str = ""


def checkpoint_path(root: Path, iteration: int) -> Path:
    """Return the final folder of an iteration."""
    return root / f"iter_{iteration:07d}"


def open_partial(root: Path, iteration: int) -> Path:
    """Make an empty folder of its own to write an iteration into, and return it."""
    path = root / f"iter_{iteration:07d}.partial-{secrets.token_hex(4)}"
    path.mkdir(parents=True)
    return path


def publish(partial: Path, manifest: Manifest, *, checksums: bool = False) -> Path:
    """Write the manifest, give a partial folder its final name, and point the tracker at it.

    Args:
        partial: what `open_partial` returned, with every file in it.
        manifest: without files; they are listed here.
        checksums: take checksums whatever the size.

    Returns:
        the final folder.
    """
    root = partial.parent
    names = sorted(path for path in partial.iterdir() if path.is_file())
    sizes = {path.name: path.stat().st_size for path in names}
    take = checksums or sum(sizes.values()) <= CHECKSUM_LIMIT_BYTES
    files = {path.name: StoredFile(size=sizes[path.name], crc32=_checksum(path) if take else None) for path in names}
    stamp = datetime.now().astimezone().isoformat(timespec="seconds")
    text = json.dumps({**asdict(manifest), "files": {n: asdict(f) for n, f in files.items()}, "saved_at": stamp}, indent=1)
    _write_durably(partial / MANIFEST, text)
    final = checkpoint_path(root, manifest.iteration)
    if final.exists():
        _remove(final)
    partial.rename(final)
    _sync_folder(root)
    _write_durably(root / TRACKER, str(manifest.iteration))
    return final


def list_checkpoints(root: Path) -> list[Candidate]:
    """Return every folder that claims to be a checkpoint, newest first, each examined by names and sizes."""
    if not root.is_dir():
        return []
    found = [(int(match[1]), path) for path in root.iterdir() if (match := _NAME.match(path.name)) and path.is_dir()]
    return [_examine(path, iteration) for iteration, path in sorted(found, reverse=True)]


def verify_checksums(candidate: Candidate) -> str:
    """Return what is damaged inside the files of a candidate; empty when checksums match or were not taken."""
    if candidate.manifest is None:
        return candidate.damage
    for name, stored in candidate.manifest.files.items():
        if stored.crc32 is not None and _checksum(candidate.path / name) != stored.crc32:
            return f"{name} has changed since it was written (checksum differs)"
    return ""


def list_leftovers(root: Path, *, iteration: int | None = None) -> list[str]:
    """Return the names of folders that a killed run left half-written or half-removed: of one iteration, or of all."""
    if not root.is_dir():
        return []
    start = "iter_" if iteration is None else f"{checkpoint_path(root, iteration).name}."
    return sorted(path.name for path in root.iterdir() if _LEFTOVER.match(path.name) and path.name.startswith(start))


def clear_leftovers(root: Path) -> list[str]:
    """Remove folders that a killed run left half-written or half-removed, and return their names."""
    names = list_leftovers(root)
    for name in names:
        shutil.rmtree(root / name, ignore_errors=True)
    return names


def prune(root: Path, *, keep: int) -> list[str]:
    """Remove all but the newest checkpoints and return the removed names.

    Args:
        root: checkpoint folder of the run.
        keep: how many to retain; negative keeps all.
    """
    if keep < 0:
        return []
    whole = [candidate for candidate in list_checkpoints(root) if not candidate.damage]
    surplus = whole[max(keep, 1) :]
    for candidate in surplus:
        _remove(candidate.path)
    return [candidate.path.name for candidate in surplus]


def set_aside(root: Path) -> Path | None:
    """Move the checkpoints of an earlier run out of the way, deleting nothing; return where to, or None if there are none."""
    if not root.is_dir() or not any(root.iterdir()):
        return None
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    target = root.with_name(f"{root.name}.before-{stamp}")
    number = 1
    while target.exists():
        number += 1
        target = root.with_name(f"{root.name}.before-{stamp}-{number}")
    root.rename(target)
    return target


def free_bytes(root: Path) -> int:
    """Return the free space where a folder is, or will be."""
    existing = root.absolute()
    while not existing.exists():
        existing = existing.parent
    return shutil.disk_usage(existing).free


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a checkpoint folder.

    Raises:
        ValueError: it is missing, is not a manifest, or is of a newer format.
    """
    try:
        row = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if row["format"] > FORMAT:
            raise ValueError(f"{MANIFEST} has format {row['format']}, and this autorecipe reads {FORMAT}")
        files = {str(name): StoredFile(**entry) for name, entry in row.pop("files").items()}
        return Manifest(**row, files=files)
    except FileNotFoundError:
        raise ValueError(f"{MANIFEST} is missing: the folder is not a complete checkpoint") from None
    except (KeyError, TypeError, json.JSONDecodeError, OSError) as error:
        raise ValueError(f"{MANIFEST} cannot be read: {error}") from None


def _examine(path: Path, iteration: int) -> Candidate:
    try:
        manifest = read_manifest(path)
    except ValueError as error:
        return Candidate(path=path, iteration=iteration, manifest=None, damage=str(error))
    damage = _first_damage(path, manifest.files)
    if not damage and manifest.iteration != iteration:
        damage = f"the manifest says iteration {manifest.iteration}"
    return Candidate(path=path, iteration=iteration, manifest=manifest, damage=damage)


def _first_damage(path: Path, files: Mapping[str, StoredFile]) -> str:
    for name, stored in files.items():
        file = path / name
        if not file.is_file():
            return f"{name} is missing"
        size = file.stat().st_size
        if size != stored.size:
            return f"{name} has {size} bytes, and {stored.size} were written"
    return ""


def _checksum(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            value = zlib.crc32(block, value)
    return value


def _remove(path: Path) -> None:
    """Remove a folder such that a kill half-way leaves nothing that looks complete."""
    doomed = path.with_name(f"{path.name}.removing")
    if doomed.exists():
        shutil.rmtree(doomed)
    path.rename(doomed)
    shutil.rmtree(doomed)


def _write_durably(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.new")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def describe_damage(damaged: Sequence[Candidate]) -> list[str]:
    """Return one line per damaged folder, for the user."""
    return [f"{candidate.path} is damaged: {candidate.damage}" for candidate in damaged]
