"""Reading TensorBoard event files. The tensorboard package is imported only here, and only when one is read."""

from __future__ import annotations

from pathlib import Path

from autorecipe.errors import EnvironmentProblem, Problem
from autorecipe.parity.metrics import canonical_metric
from autorecipe.parity.tolerance import UNIT_ROUNDOFF
from autorecipe.schema.parity import Framework, LogForm, Precision, Reading, TrainingLog


def find_event_files(path: Path) -> list[Path]:
    """Return the event files at or below a path, oldest first."""
    if path.is_file():
        return [path] if "tfevents" in path.name else []
    return sorted(path.rglob("*tfevents*"))


def load_events(path: Path) -> TrainingLog:
    """Load the scalars of an event file, or of every event file below a folder.

    Scalars are stored in single precision, whatever they were computed in.

    Where two files hold the same iteration (a resumed run) the later file counts. The scalars are those of each iteration: no
    framework averages what it writes there.

    Raises:
        EnvironmentProblem: the tensorboard package is not installed.
    """
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError as error:
        raise EnvironmentProblem(
            Problem(
                code="missing-package",
                path=str(path),
                message="reading TensorBoard event files needs the tensorboard package",
                hint="pip install tensorboard",
            )
        ) from error
    steps: dict[int, dict[str, Reading]] = {}
    for file in find_event_files(path):
        accumulator = EventAccumulator(str(file), size_guidance={"scalars": 0, "tensors": 0})
        accumulator.Reload()
        for tag in accumulator.Tags()["scalars"]:
            if tag.endswith(" vs samples"):
                continue
            for event in accumulator.Scalars(tag):
                steps.setdefault(int(event.step), {})[canonical_metric(tag)] = Reading(
                    value=float(event.value), resolution=abs(float(event.value)) * UNIT_ROUNDOFF[Precision.FP32]
                )
    return TrainingLog(
        name=str(path),
        form=LogForm.TENSORBOARD,
        framework=Framework.UNKNOWN,
        framework_reason="event files do not name a program",
        steps=dict(sorted(steps.items())),
    )
