"""Mixed-precision presets of a release, and what upstream overwrites with one at start.

The presets are data (`data/precision_presets.jsonl`), evaluated from the release by `scripts/build_precision_presets.py`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path

from autorecipe.config.keys import CLASS_MARK
from autorecipe.config.overrides import render_section
from autorecipe.config.sections import NULLABLE_SECTIONS
from autorecipe.config.state import Resolution, show
from autorecipe.config.traps import PRECISION_FIELDS, PRECISION_TARGETS
from autorecipe.errors import Problem, UsageError, unknown_name
from autorecipe.schema.run import Origin, OriginKind
from autorecipe.schema.value import FieldValue

SECTION = "mixed_precision"
_PAIRS = {"fp8_param": "fp8_param_gather", "fp8_param_gather": "fp8_param", "fp4_param": "fp4_param_gather"}
_PAIRS["fp4_param_gather"] = "fp4_param"


@functools.cache
def _all_presets() -> dict[str, dict[str, Mapping[str, FieldValue]]]:
    text = (Path(__file__).parents[1] / "data" / "precision_presets.jsonl").read_text(encoding="utf-8")
    presets: dict[str, dict[str, Mapping[str, FieldValue]]] = {}
    for line in text.splitlines():
        row = json.loads(line)
        presets.setdefault(row["release"], {})[row["name"]] = row["fields"]
    return presets


def load_presets(release: str) -> Mapping[str, Mapping[str, FieldValue]]:
    """Return the presets of a release by name; of the newest release known where this one is not."""
    presets = _all_presets()
    newest = max(presets, key=lambda name: tuple(int(part) for part in name.split(".") if part.isdecimal()))
    return presets.get(release, presets[newest])


def apply_precision(state: Resolution) -> None:
    """Build the preset and write its fields over model, optimizer and ddp, as upstream does at start.

    Raises:
        UsageError: a name that is not a registered preset.
    """
    name = state.get(SECTION)
    if isinstance(name, str):
        _expand_preset(state, name)
    elif not state.has_section(SECTION):
        return
    _keep_pairs_equal(state)
    label = name if isinstance(name, str) else "the mixed_precision object"
    for field in PRECISION_FIELDS:
        source = f"{SECTION}.{field}"
        if source not in state.values:
            continue
        value = state.values[source]
        for section in PRECISION_TARGETS:
            path = f"{section}.{field}"
            if not state.has(path):
                continue
            state.overrule(
                path,
                value,
                trap="TRAP-MP",
                kind=OriginKind.PRESET,
                detail=f"mixed_precision={label} writes {field} over {section}",
                remedy=_remedy(state, field, path),
            )


def _expand_preset(state: Resolution, name: str) -> None:
    presets = load_presets(state.schema.release or state.recipe.release)
    fields = presets.get(name.replace("-", "_"))
    if fields is None:
        problem = unknown_name("precision preset", name, list(presets), hint="write mixed_precision=NAME with one of these: ")
        listed = ", ".join(sorted(presets))
        raise UsageError(Problem(code=problem.code, path=SECTION, message=problem.message, hint=f"{problem.hint}{listed}"))
    for field, value in fields.items():
        path = f"{SECTION}.{field}"
        if state.values.get(path) != value or path not in state.values:
            state.values[path] = value
        if state.origins.get(path) is None or state.origins[path].kind is not OriginKind.OVERRIDE:
            state.origins[path] = Origin(kind=OriginKind.PRESET, detail=name)
    state.values.setdefault(SECTION + CLASS_MARK, "MixedPrecisionConfig")
    state.origins.setdefault(SECTION + CLASS_MARK, Origin(kind=OriginKind.PRESET, detail=name))


def _keep_pairs_equal(state: Resolution) -> None:
    """`fp8_param` and `fp8_param_gather` follow each other, the one written last wins (likewise fp4)."""
    order = list(state.typed)
    for field in ("fp8_param", "fp4_param"):
        first, second = f"{SECTION}.{field}", f"{SECTION}.{_PAIRS[field]}"
        if first not in state.values or second not in state.values or state.values[first] == state.values[second]:
            continue
        if state.values[first] is None:
            leader, follower = second, first
        else:
            typed = [path for path in order if path in (first, second)]
            leader = typed[-1] if typed else second
            follower = first if leader == second else second
        state.replace(follower, state.values[leader], kind=OriginKind.DERIVED, detail=f"kept equal to {leader}")


def _remedy(state: Resolution, field: str, path: str) -> str:
    wanted = show(state.get(path))
    if isinstance(state.get(SECTION), str):
        keep = {name: state.get(f"{SECTION}.{name}") for name in ("bf16", "fp16", "params_dtype", "pipeline_dtype")}
        fields = {**{name: value for name, value in keep.items() if value}, field: state.get(path)}
        return (
            f"put the field on a mixed_precision object: '{render_section(SECTION, NULLABLE_SECTIONS[SECTION].target, fields)}'"
        )
    return f"set {SECTION}.{field}={wanted}"
