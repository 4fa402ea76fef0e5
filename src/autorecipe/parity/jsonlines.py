"""Reading metrics stored as one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from autorecipe.parity.metrics import ITERATION_KEYS, canonical_metric
from autorecipe.schema.parity import Framework, LogForm, Precision, Reading, TrainingLog

_FRAMEWORKS = {
    "autorecipe": Framework.AUTORECIPE,
    "megatron-lm": Framework.MEGATRON_LM,
    "mlm": Framework.MEGATRON_LM,
    "bridge": Framework.BRIDGE,
}


def looks_like_json_lines(text: str) -> bool:
    """Return whether the first line that is not empty is a JSON object."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    if not first.lstrip().startswith("{"):
        return False
    try:
        return isinstance(json.loads(first), dict)
    except json.JSONDecodeError:
        return False


def parse_json_lines(text: str, *, name: str) -> TrainingLog:
    """Parse a metrics file.

    Objects with an iteration (`iteration`, `step` ...) are steps: several for one iteration are merged, nested objects are
    flattened. Objects without one are facts about the run; `framework`, `precision`, `train_iters` and `num_parameters` are
    understood.
    """
    steps: dict[int, dict[str, Reading]] = {}
    facts: dict[str, str] = {}
    broken = 0
    for line in text.splitlines():
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            broken += 1
            continue
        if not isinstance(row, dict):
            broken += 1
            continue
        flat = dict(_flatten(row))
        number = next((flat[key] for key in ITERATION_KEYS if isinstance(flat.get(key), int)), None)
        if number is None:
            facts.update({key: str(value) for key, value in flat.items()})
            continue
        readings = {
            canonical_metric(key): Reading(value=float(value))
            for key, value in flat.items()
            if key not in ITERATION_KEYS and isinstance(value, int | float) and not isinstance(value, bool)
        }
        steps.setdefault(number, {}).update(readings)
    notes = [f"{broken} lines are not JSON objects and were left out"] if broken else []
    framework = _FRAMEWORKS.get(facts.get("framework", facts.get("engine", "")).lower(), Framework.UNKNOWN)
    precision = facts.get("precision", "")
    return TrainingLog(
        name=name,
        form=LogForm.JSON_LINES,
        framework=framework,
        framework_reason="the metrics file says so" if framework is not Framework.UNKNOWN else "the metrics file does not say",
        steps={number: row for number, row in sorted(steps.items()) if row},
        announced_iterations=_int(facts.get("train_iters", facts.get("train.train_iters"))),
        precision=Precision(precision) if precision in tuple(Precision) else None,
        num_parameters=_int(facts.get("num_parameters")),
        facts=facts,
        notes=tuple(notes),
    )


def _int(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _flatten(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, "" if key in ("metrics", "data") else f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
