"""Apply checked overrides to the fields of a recipe, with the semantics of Hydra and OmegaConf that upstream relies on.

Reproduced: dictionaries merge, lists are replaced, `+` refuses a key that is already set, a section that is null or a preset
name has no fields to set, and a deleted field comes back (only keys of dictionaries can be deleted). Leaves out: what
upstream does to the values afterwards (see `resolve`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from autorecipe.config.annotations import check_value, describe_type
from autorecipe.config.grammar import Operation, render_value
from autorecipe.config.keys import CLASS_MARK, KeyKind, has_children, locate_key
from autorecipe.config.overrides import Override, hint_at_keys, render_for_message, render_section
from autorecipe.config.sections import NULLABLE_SECTIONS
from autorecipe.config.state import Resolution
from autorecipe.errors import Problem, UsageError
from autorecipe.schema.run import Origin, OriginKind
from autorecipe.schema.value import FieldValue

COMPLETE_MODEL_FIELDS = 50
"""A recipe that knows fewer model fields was evaluated without its model class: an absent model path then proves nothing."""


def apply_overrides(state: Resolution, overrides: Sequence[Override]) -> None:
    """Apply overrides in order.

    Raises:
        UsageError: every override that upstream would refuse on this recipe.
    """
    problems: list[Problem] = []
    for override in overrides:
        problem = _apply(state, override)
        if problem is not None:
            problems.append(problem)
    problems += _resolve_interpolations(state, overrides)
    if problems:
        raise UsageError(problems)


def _apply(state: Resolution, override: Override) -> Problem | None:
    if override.kind is KeyKind.SECTION:
        return _apply_section(state, override)
    closed = _closed_section(state, override)
    if closed is not None:
        return closed
    if override.operation is Operation.DELETE:
        return _delete(state, override)
    if override.kind is KeyKind.ITEM:
        return _set_item(state, override)
    taken = _already_set(state, override)
    if taken is not None:
        return taken
    if override.kind is KeyKind.FREE:
        _set_free(state, override)
        return None
    absent = _absent_from_class(state, override)
    if absent is not None:
        return absent
    if isinstance(override.value, dict) and override.value:
        _merge(state, override)
        return None
    for child in state.children(override.path):
        del state.values[child]
        state.origins.pop(child, None)
    _write(state, override.path, override.value, override.text)
    return None


def _already_set(state: Resolution, override: Override) -> Problem | None:
    """`+KEY=VALUE` refuses a key that has a value; dictionaries and lists merge instead."""
    current = state.get(override.path)
    is_set = current is not None or (override.kind is KeyKind.SECTION and state.has_section(override.path))
    if override.operation is not Operation.ADD or not is_set or isinstance(override.value, dict | list):
        return None
    return Problem(
        code="already-set",
        path=override.path,
        message=f"+{override.path} adds a key, but it is already {render_for_message(current) if current is not None else 'set'}",
        hint=f"write {override.path}={render_value(override.value)}",
    )


def _write(state: Resolution, path: str, value: FieldValue, text: str) -> None:
    before = state.get(path)
    state.values[path] = value
    state.origins[path] = Origin(kind=OriginKind.OVERRIDE, detail=text, replaced=before)
    state.typed[path] = text


def _closed_section(state: Resolution, override: Override) -> Problem | None:
    """Fields of an optional section that is null, or that is a preset's name, cannot be set one by one."""
    section = override.path.split(".", 1)[0]
    nullable = NULLABLE_SECTIONS.get(section)
    if nullable is None or section == override.path:
        return None
    current = state.get(section)
    is_open = f"{section}{CLASS_MARK}" in state.values if isinstance(current, str) else state.has_section(section)
    if is_open and not isinstance(current, str):
        return None
    leaf = override.path.split(".", 1)[1]
    wanted = {leaf: override.value}
    if isinstance(current, str):
        kept = {name: state.get(f"{section}.{name}") for name in ("bf16", "fp16", "params_dtype", "pipeline_dtype")}
        built = render_section(section, nullable.target, {**{name: item for name, item in kept.items() if item}, **wanted})
        return Problem(
            code="TRAP-MPNAME",
            path=override.path,
            message=f"{section} is the preset name {current!r} here, which has no fields to set",
            hint=f'replace the name by an object: "{built}"',
        )
    return Problem(
        code="unset-section",
        path=override.path,
        message=f"{section} is null in this recipe, so it has no fields to set",
        hint=f'build it: "{render_section(section, nullable.target, wanted)}", or start from a recipe that has it',
    )


def _absent_from_class(state: Resolution, override: Override) -> Problem | None:
    """A field of the release that this recipe's own classes lack is unknown to upstream as well."""
    path = override.path
    if path in state.values or has_children(path, state.values):
        return None
    section = path.split(".", 1)[0]
    if not state.has_section(section):
        return None
    if section == "model" and len(list(state.children("model"))) < COMPLETE_MODEL_FIELDS:
        return None
    holder = path
    while "." in holder and not (has_children(holder, state.values) or holder in state.values):
        holder = holder.rpartition(".")[0]
    class_name = state.get(holder + CLASS_MARK)
    declared = state.schema.get(path)
    classes = (
        f" (a field of {', '.join(declared.config_classes[:4])})" if declared is not None and declared.config_classes else ""
    )
    if holder in state.values and not isinstance(class_name, str):
        message = f"{holder} is {render_for_message(state.values[holder])} in this recipe, so it has no such field{classes}"
        target = _declared_class(state, holder, declared.config_classes if declared is not None else ())
        if target is not None:
            built = render_section(holder, target, {path.removeprefix(f"{holder}."): override.value})
            return Problem(code="unset-section", path=path, message=message, hint=f'build it: "{built}"')
    else:
        owner = class_name if isinstance(class_name, str) else f"the {section} section"
        message = f"{owner}, which this recipe uses for {holder}, has no such field{classes}"
    return Problem(code="unknown-key", path=path, message=message, hint=hint_at_keys(path, state.schema))


def _declared_class(state: Resolution, holder: str, class_names: Sequence[str]) -> str | None:
    """Return the import path of the one class that an unset object may have, as its annotation names it."""
    declared = state.schema.get(holder)
    named = re.findall(r"[\w.]+", declared.type if declared is not None else "")
    found = [name for name in named if name.rpartition(".")[2] in class_names and "." in name]
    return found[0] if len(found) == 1 else None


def _apply_section(state: Resolution, override: Override) -> Problem | None:
    path, value = override.path, override.value
    if path.endswith(CLASS_MARK):
        _build_section(state, path.removesuffix(CLASS_MARK), str(value), override.text)
        return None
    if override.operation is Operation.DELETE:
        return _delete_section(state, override)
    refused = _closed_section(state, override) or _already_set(state, override) or _absent_from_class(state, override)
    if refused is not None:
        return refused
    if value == {} and not state.has_section(path):
        nullable = NULLABLE_SECTIONS.get(path)
        target = nullable.target if nullable is not None else "CLASS"
        hint = f'give the class: "{render_section(path, target, {})}"'
        message = f"is {render_for_message(state.get(path))} here, and an empty dictionary builds nothing"
        return Problem(code="unset-section", path=path, message=message, hint=hint)
    if value == {}:
        state.note("TRAP-DELETE", f"{override.text} has no effect: it merges nothing into {path}", remedy=f"set fields of {path}")
        return None
    for child in state.children(path):
        del state.values[child]
        state.origins.pop(child, None)
    _write(state, path, value, override.text)
    return None


def _delete_section(state: Resolution, override: Override) -> Problem | None:
    path = override.path
    if override.has_value and override.value is not None:
        return _not_deletable(path, "it is a section, which no value equals", f"write {path}=null where it may be unset")
    if not state.has_section(path) and state.get(path) is None:
        return _not_deletable(path, "it is not set", f"drop {override.text} from the overrides")
    state.note("TRAP-DELETE", f"{override.text} has no effect: Megatron Bridge keeps the section", remedy=f"set {path}=null")
    return None


def _not_deletable(path: str, why: str, hint: str) -> Problem:
    return Problem(code="wrong-value", path=path, message=f"cannot be deleted: {why}", hint=hint)


def _build_section(state: Resolution, section: str, class_name: str, text: str) -> None:
    """`SECTION={_target_: CLASS, ...}` starts from the class defaults."""
    for child in state.children(section):
        del state.values[child]
        state.origins.pop(child, None)
    state.values.pop(section, None)
    state.origins.pop(section, None)
    _write(state, section + CLASS_MARK, class_name, text)
    for path, declared in state.schema.items():
        belongs = not declared.config_classes or class_name in declared.config_classes
        if path.startswith(section + ".") and belongs:
            state.values[path] = None if declared.default == "<required>" else declared.default
            state.origins[path] = Origin(kind=OriginKind.DEFAULT, detail=class_name)


def _set_free(state: Resolution, override: Override) -> None:
    """A key inside a dictionary field; the empty dictionary gives way to its keys."""
    located = locate_key(override.path, state.schema, state.values)
    holder = located.field.path if located.field is not None else override.path.rpartition(".")[0]
    is_new = override.path not in state.values
    inside = state.get(holder)
    if isinstance(inside, dict) and inside:
        state.values[holder] = _with_key(inside, located.tail, override.value)
        state.origins[holder] = Origin(kind=OriginKind.OVERRIDE, detail=override.text, replaced=inside)
        state.typed[holder] = override.text
        return
    if inside is None or isinstance(inside, dict):
        state.values.pop(holder, None)
        state.origins.pop(holder, None)
    if is_new and override.operation is Operation.SET:
        _note_new_key(state, override.path, holder, f"+{override.path}={render_value(override.value)}")
    _write(state, override.path, override.value, override.text)


def _note_new_key(state: Resolution, path: str, holder: str, typed: str) -> None:
    message = f"{path} is a new key of {holder}; Megatron Bridge itself wants a plus sign"
    state.note("TRAP-NEWKEY", message, remedy=f"write {typed} there")


def _with_key(inside: dict[str, Any], tail: Sequence[str], value: FieldValue) -> dict[str, Any]:
    head, *rest = tail
    nested = inside.get(head)
    new = _with_key(nested if isinstance(nested, dict) else {}, rest, value) if rest else value
    return {**inside, head: new}


def _merge(state: Resolution, override: Override) -> None:
    """A dictionary given to a dictionary field merges key by key."""
    path = override.path
    inside = state.get(path)
    if isinstance(inside, dict) and inside:
        _write(state, path, {**inside, **override.value}, override.text)
        return
    state.values.pop(path, None)
    state.origins.pop(path, None)
    for key, item in override.value.items():
        if f"{path}.{key}" not in state.values and override.operation is Operation.SET:
            _note_new_key(state, f"{path}.{key}", path, f"+{path}={render_value(override.value)}")
        _write(state, f"{path}.{key}", item, override.text)


def _set_item(state: Resolution, override: Override) -> Problem | None:
    """`field.0=value`: one item of a list."""
    located = locate_key(override.path, state.schema, state.values)
    assert located.field is not None
    current = state.get(located.field.path)
    items = list(current) if isinstance(current, list | tuple) else []
    index = int(located.tail[0])
    if index >= len(items) or len(located.tail) > 1:
        return Problem(
            code="unknown-key",
            path=override.path,
            message=f"{located.field.path} is {render_for_message(current)}, which has no item {'.'.join(located.tail)}",
            hint=f"set the whole list: {located.field.path}=[...]",
        )
    items[index] = override.value
    _write(state, located.field.path, items, override.text)
    return None


def _delete(state: Resolution, override: Override) -> Problem | None:
    """`~KEY`: removes a key of a dictionary; a declared field is restored by upstream, so it stays and a note says so."""
    current = state.get(override.path)
    if current is None:
        return _not_deletable(override.path, "it is not set", f"drop {override.text} from the overrides")
    if override.has_value and override.value is not None and override.value != current:
        why = f"it is {render_for_message(current)}, not {render_for_message(override.value)}"
        return _not_deletable(override.path, why, f"write ~{override.path}")
    if override.kind is KeyKind.FREE:
        del state.values[override.path]
        state.origins.pop(override.path, None)
        located = locate_key(override.path, state.schema, state.values)
        holder = located.field.path if located.field is not None else ""
        if holder and not has_children(holder, state.values):
            _write(state, holder, {}, override.text)
        return None
    state.note(
        "TRAP-DELETE",
        f"{override.text} has no effect: Megatron Bridge restores a declared field, {override.path} stays "
        f"{render_for_message(current)}",
        remedy=f"set {override.path}=null",
    )
    return None


def _resolve_interpolations(state: Resolution, overrides: Sequence[Override]) -> list[Problem]:
    """Resolve `${other.path}` values once, after all overrides, as upstream does."""
    pending = [item for item in overrides if isinstance(item.value, str) and "${" in item.value and item.path in state.values]
    if not pending:
        return []
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    waiting = {item.path for item in pending}
    config = OmegaConf.create(_tree_of({path: value for path, value in state.values.items() if path not in waiting}))
    problems: list[Problem] = []
    broken: set[str] = set()
    for item in pending:
        try:
            OmegaConf.update(config, item.path, state.values[item.path], force_add=True)
        except OmegaConfBaseException as error:
            problems.append(_interpolation_problem(item, error))
            broken.add(item.path)
    for item in pending:
        if item.path in broken:
            continue
        try:
            value = OmegaConf.select(config, item.path, throw_on_resolution_failure=True)
        except (OmegaConfBaseException, RecursionError, ValueError) as error:
            problems.append(_interpolation_problem(item, error))
            continue
        plain = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        located = locate_key(item.path, state.schema, state.values)
        checked = check_value(located.spec, plain)
        if not checked.legal:
            message = f"{item.value!r} is {render_for_message(plain)}, not {describe_type(located.spec)}"
            problems.append(Problem(code="wrong-type", path=item.path, message=message))
            continue
        state.values[item.path] = checked.value
    return problems


def _interpolation_problem(item: Override, error: Exception) -> Problem:
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    message = f"{item.value!r}: {first}"
    return Problem(code="override-syntax", path=item.path, message=message, hint="use ${section.field} or ${oc.env:NAME}")


def _tree_of(values: Mapping[str, FieldValue]) -> dict[str, Any]:
    """Nest flat values; where a value and fields share a path, the fields count."""
    tree: dict[str, Any] = {}
    for path, value in values.items():
        *parents, leaf = path.split(".")
        node = tree
        for part in parents:
            child = node.get(part)
            if not isinstance(child, dict):
                child = node[part] = {}
            node = child
        if not isinstance(node.get(leaf), dict):
            node[leaf] = list(value) if isinstance(value, tuple) else value
    return tree
