"""Decides what a run resumes from, says so, and loads it; a damaged checkpoint falls back to the one before.

Purpose: nothing resumes in silence, and nothing foreign resumes at all. Leaves out: the tensors (`content`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch.distributed as dist

from autorecipe.engine.checkpoint import folder
from autorecipe.engine.checkpoint.content import load_content
from autorecipe.engine.checkpoint.folder import Candidate, Manifest
from autorecipe.engine.checkpoint.identity import compare_identity, describe_changes
from autorecipe.errors import EnvironmentProblem, NegativeAnswer, Problem


@dataclass(kw_only=True)
class ResumePlan:
    """Checkpoints to try, newest first.

    Attributes:
        root: where they are.
        candidates: whole by name, manifest, size and checksum.
        messages: what the user must know before anything is loaded.
    """

    root: Path
    candidates: list[Candidate] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class Resumed:
    """What was loaded.

    Attributes:
        manifest: of the checkpoint.
        generators: random states to restore right before training, or None.
    """

    manifest: Manifest
    generators: dict[str, Any] | None


def plan_resume(root: Path | None, *, identity: Mapping[str, Any], config: Mapping[str, Any]) -> ResumePlan | None:
    """Look for checkpoints of this run; touches no tensor and needs no process group.

    Args:
        root: checkpoint folder, or None.
        identity: of the run's model.
        config: resolved configuration of the run, flat.

    Returns:
        None where there is nothing to resume.

    Raises:
        NegativeAnswer: the newest whole checkpoint is of another model.
        EnvironmentProblem: there are checkpoints, and all are damaged.
    """
    if root is None:
        return None
    found = folder.list_checkpoints(root)
    if not found:
        return None
    plan = ResumePlan(root=root)
    damaged: list[Candidate] = []
    for candidate in found:
        damage = candidate.damage or (folder.verify_checksums(candidate) if not plan.candidates else "")
        if damage:
            damaged.append(Candidate(path=candidate.path, iteration=candidate.iteration, manifest=None, damage=damage))
        else:
            plan.candidates.append(candidate)
    if not plan.candidates:
        raise EnvironmentProblem(
            [
                Problem(
                    path=str(candidate.path),
                    code="checkpoint-damaged",
                    message=candidate.damage,
                    hint="restore it from a copy, or start over with --fresh (nothing is deleted)",
                )
                for candidate in damaged
            ]
        )
    newest = plan.candidates[0]
    assert newest.manifest is not None
    for candidate in damaged:
        if candidate.iteration > newest.iteration:
            plan.messages.append(
                f"WARNING: {candidate.path} is damaged: {candidate.damage}; falling back to iteration {newest.iteration}"
            )
    others = compare_identity(newest.manifest.identity, identity)
    if others:
        hint = "resume with the same model, start over with --fresh (nothing is deleted), or set checkpoint.save=OTHER_FOLDER"
        head = Problem(path=str(newest.path), code="other-model", message="belongs to another model:", hint=hint)
        raise NegativeAnswer([*others, head])
    plan.messages += [f"changed since the checkpoint: {line}" for line in describe_changes(newest.manifest.config, config)]
    return plan


def load_newest(
    plan: ResumePlan,
    chunks: Sequence[Any],
    optimizer: Any,
    *,
    layout: str,
    with_optimizer: bool,
    with_rng: bool,
    say: Callable[[str], None],
) -> Resumed:
    """Load the newest candidate that loads; called by every rank.

    Args:
        plan: the same on every rank.
        chunks: model chunks.
        optimizer: of this run.
        layout: rendered layout of this run.
        with_optimizer: whether its state is to be resumed too; otherwise it only takes over the loaded weights.
        with_rng: whether generators are to be resumed where the layout allows it.
        say: prints a line once, on rank 0.

    Raises:
        EnvironmentProblem: none of them loads.
    """
    failures: list[Problem] = []
    for candidate in plan.candidates:
        manifest = candidate.manifest
        assert manifest is not None
        same_layout = manifest.layout == layout and manifest.world_size == dist.get_world_size()
        wants_optimizer = optimizer if with_optimizer and manifest.has_optimizer else None
        error = ""
        generators = None
        try:
            generators = load_content(
                str(candidate.path), chunks, wants_optimizer, with_rng=with_rng and manifest.has_rng and same_layout
            )
        except Exception as failure:  # a damaged file raises whatever its reader raises
            error = str(failure).splitlines()[0] if str(failure) else type(failure).__name__
        errors: list[str] = [""] * dist.get_world_size()
        dist.all_gather_object(errors, error)
        if not any(errors):
            _announce(candidate, manifest, layout, same_layout=same_layout, with_rng=with_rng, say=say)
            if wants_optimizer is None:
                # Half-precision runs train float32 copies of the weights, which were made before the weights were loaded.
                optimizer.reload_model_params()
            if with_optimizer and wants_optimizer is None:
                say("WARNING: the checkpoint has no optimizer state; the optimizer starts anew")
            return Resumed(manifest=manifest, generators=generators)
        reason = next(text for text in errors if text)
        say(f"WARNING: {candidate.path} does not load: {reason}; trying the checkpoint before it")
        failures.append(Problem(path=str(candidate.path), code="checkpoint-damaged", message=f"does not load: {reason}"))
    last = failures[-1]
    hint = "restore one from a copy, or start over with --fresh (nothing is deleted)"
    raise EnvironmentProblem([*failures[:-1], Problem(path=last.path, code=last.code, message=last.message, hint=hint)])


def _announce(
    candidate: Candidate, manifest: Manifest, layout: str, *, same_layout: bool, with_rng: bool, say: Callable[[str], None]
) -> None:
    say(
        f"RESUMING from {candidate.path}: iteration {manifest.iteration}, {manifest.consumed_train_samples} samples consumed, "
        f"saved {manifest.saved_at} (start over with --fresh)"
    )
    if not same_layout:
        say(f"resharded from {manifest.layout} ({manifest.world_size} processes) to {layout} ({dist.get_world_size()} processes)")
        if with_rng and manifest.has_rng:
            say("random generators start anew: saved states fit only the layout that wrote them (matters with dropout only)")
