"""Mixed-precision presets, and what upstream overwrites with one at start.

The presets are data of the release (`presets.jsonl`), evaluated with its catalog; the schema carries them.
"""

from __future__ import annotations

from autorecipe.config.origins import CLASS_MARK
from autorecipe.config.sections import NULLABLE_SECTIONS
from autorecipe.config.state import Resolution, show
from autorecipe.config.traps import PRECISION_FIELDS, PRECISION_TARGETS
from autorecipe.errors import UsageError, unknown_name
from autorecipe.record import replace
from autorecipe.schema.run import Origin, OriginKind

SECTION = "mixed_precision"
_PAIRS = {"fp8_param": "fp8_param_gather", "fp8_param_gather": "fp8_param", "fp4_param": "fp4_param_gather"}
_PAIRS["fp4_param_gather"] = "fp4_param"


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
    presets = state.schema.presets
    fields = presets.get(name.replace("-", "_"))
    if fields is None:
        listed = f"write mixed_precision=NAME with one of these: {', '.join(sorted(presets))}"
        none = f"release {state.schema.release} was evaluated without its presets; build its catalog again"
        raise UsageError(
            replace(unknown_name("precision preset", name, list(presets), hint=listed if presets else none), path=SECTION)
        )
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
        from autorecipe.config.overrides import render_section

        keep = {name: state.get(f"{SECTION}.{name}") for name in ("bf16", "fp16", "params_dtype", "pipeline_dtype")}
        fields = {**{name: value for name, value in keep.items() if value}, field: state.get(path)}
        return (
            f"put the field on a mixed_precision object: '{render_section(SECTION, NULLABLE_SECTIONS[SECTION].target, fields)}'"
        )
    return f"set {SECTION}.{field}={wanted}"
