"""Loads the weights that fine-tuning starts from: `checkpoint.pretrained_checkpoint`. Start reading at `find_pretrained`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autorecipe.engine.checkpoint import folder
from autorecipe.engine.checkpoint.content import load_content
from autorecipe.engine.checkpoint.folder import MANIFEST, Candidate
from autorecipe.engine.checkpoint.identity import compare_identity
from autorecipe.errors import EnvironmentProblem, NegativeAnswer, Problem
from autorecipe.record import replace
from autorecipe.schema.run import RunConfig
from autorecipe.schema.value import UNKNOWN

PATH = "checkpoint.pretrained_checkpoint"


def find_pretrained(run: RunConfig, *, identity: Mapping[str, Any]) -> Candidate | None:
    """Look for the checkpoint that a run starts from; None where it names none. See `find_checkpoint`."""
    value = run.get(PATH, None)
    if value is None or value is UNKNOWN:
        return None
    return find_checkpoint(Path(str(value)).expanduser(), identity=identity, asked_by=PATH)


def find_checkpoint(root: Path, *, identity: Mapping[str, Any], asked_by: str) -> Candidate:
    """Look for a checkpoint of a model; touches no tensor.

    Args:
        root: a checkpoint, or a folder of them.
        identity: of the model, its adapter left out.
        asked_by: field or option that named the folder, for messages.

    Returns:
        the newest whole checkpoint of the folder, or the folder itself where it is one.

    Raises:
        EnvironmentProblem: nothing whole is there.
        NegativeAnswer: it is of another model.
    """
    candidate = find_whole(root, asked_by=asked_by)
    assert candidate.manifest is not None
    problems = compare_identity(candidate.manifest.identity, identity)
    if problems:
        message, hint = "belongs to another model:", f"set {asked_by} to one of this model"
        head = Problem(path=str(candidate.path), code="other-model", message=message, hint=hint)
        saved = candidate.manifest.identity
        raise NegativeAnswer([*(_advise(problem, saved, identity) for problem in problems), head])
    return candidate


def _advise(problem: Problem, saved: Mapping[str, Any], current: Mapping[str, Any]) -> Problem:
    """Return a difference with what a user can do about it, where that is known."""
    name = problem.path.removeprefix("model.")
    before, now = saved.get(name), current.get(name)
    hint = ""
    if name == "vocab_size" and before and now:
        hint = f"set model.vocab_size={before}, where the tokenizer has no more ids"
        if now > before:
            hint += f"; otherwise import the weights with --vocab-size {now}"
    elif name == "mtp_num_layers" and not before:
        hint = "set model.mtp_num_layers=null: an import leaves the layers that predict further tokens out"
    return replace(problem, hint=hint) if hint else problem


def find_whole(root: Path, *, asked_by: str) -> Candidate:
    """Look for the newest whole checkpoint of any model; touches no tensor.

    Args:
        root: a checkpoint, or a folder of them.
        asked_by: field or option that named the folder, for messages.

    Returns:
        the newest whole checkpoint of the folder, or the folder itself where it is one; its manifest is there.

    Raises:
        EnvironmentProblem: nothing whole is there.
    """
    single = (root / MANIFEST).is_file()
    found = folder.list_checkpoints(root.parent if single else root)
    if single:
        found = [candidate for candidate in found if candidate.path.name == root.name]
    damaged = []
    for candidate in found:
        damage = candidate.damage or folder.verify_checksums(candidate)
        if not damage and candidate.manifest is not None:
            return candidate
        damaged.append(f"{candidate.path.name}: {damage}")
    message = f"holds no whole checkpoint ({'; '.join(damaged)})" if damaged else "holds no checkpoint of this engine"
    hint = f"set {asked_by} to a folder that training has saved to, or that `autorecipe checkpoint import` made"
    raise EnvironmentProblem(Problem(path=str(root), code="pretrained-missing", message=message, hint=hint))


def load_pretrained(candidate: Candidate, chunks: Sequence[Any]) -> None:
    """Fill bare models with the weights of a checkpoint written at any layout; called by every rank, before wrapping.

    Raises:
        EnvironmentProblem: it does not load.
    """
    try:
        load_content(str(candidate.path), chunks, None, with_rng=False)
    except Exception as error:  # a damaged file raises whatever its reader raises
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise EnvironmentProblem(
            Problem(path=str(candidate.path), code="checkpoint-damaged", message=f"does not load: {text}")
        ) from error
