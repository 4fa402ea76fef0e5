"""Overrides: from texts to checked path-value pairs, and back.

Every problem of every text is reported at once. A key must exist in the release's schema (or be a key inside one of its
dictionaries), a value must fit its type. Leaves out: precedence (see `resolve`). Start reading at `parse_overrides`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from autorecipe.config.annotations import TypeSpec, check_value, describe_type
from autorecipe.config.grammar import PREFIXES, Assignment, GrammarError, Operation, parse_assignment, render_value
from autorecipe.config.keys import KeyKind, Located, locate_key, suggest_keys
from autorecipe.config.sections import NULLABLE_SECTIONS
from autorecipe.errors import Problem, UsageError
from autorecipe.record import dataclass, replace
from autorecipe.schema.field import ConfigSchema
from autorecipe.schema.value import FieldValue

MAX_TEXT = 20_000
"""Characters in one override; longer ones are refused rather than handed to a recursive parser."""


@dataclass(frozen=True, kw_only=True)
class Override:
    """One checked override of one path.

    Attributes:
        text: as typed.
        path: dotted path.
        value: plain value in the catalog's spelling; None for a deletion.
        operation: set, add, force-add or delete.
        has_value: whether a value was written (`~KEY` has none).
        kind: what the path names.
    """

    text: str
    path: str
    value: FieldValue
    operation: Operation = Operation.SET
    has_value: bool = True
    kind: KeyKind = KeyKind.FIELD


def parse_overrides(
    texts: Sequence[str],
    schema: ConfigSchema,
    *,
    base: Mapping[str, FieldValue] | None = None,
) -> tuple[Override, ...]:
    """Parse and check overrides, in order.

    Args:
        texts: such as `model.num_layers=2`, `+env_vars.NAME=1`, `model.recompute_modules=[core_attn,mlp]`.
        schema: schema of the release.
        base: resolved fields of the recipe that they apply to; adds keys that only its classes have.

    Returns:
        one override per path; a dictionary given to a section becomes one per field.

    Raises:
        UsageError: every unknown key (with near misses), wrong type (with what is legal) and text outside the grammar.
    """
    problems: list[Problem] = []
    overrides: list[Override] = []
    for text in texts:
        if len(text) > MAX_TEXT:
            problems.append(
                Problem(code="override-syntax", path=text[:40] + "...", message=f"is longer than {MAX_TEXT} characters")
            )
            continue
        try:
            assignment = parse_assignment(text)
        except GrammarError as error:
            problems.append(_syntax_problem(text, str(error)))
            continue
        found, wrong = _check(assignment, schema, base)
        overrides += found
        problems += wrong
    if problems:
        raise UsageError(problems)
    return tuple(overrides)


def override_problems(texts: Sequence[str], schema: ConfigSchema) -> tuple[Problem, ...]:
    """Return every problem of these overrides instead of raising."""
    try:
        parse_overrides(texts, schema)
    except UsageError as error:
        return error.problems
    return ()


def _check(
    assignment: Assignment, schema: ConfigSchema, base: Mapping[str, FieldValue] | None
) -> tuple[list[Override], list[Problem]]:
    located = locate_key(assignment.key, schema, base)
    if located.kind is KeyKind.UNKNOWN:
        return [], [unknown_key(assignment.key, schema, base)]
    if located.kind is KeyKind.SECTION:
        return _check_section(assignment, schema, base)
    override = Override(
        text=assignment.text,
        path=assignment.key,
        value=assignment.value,
        operation=assignment.operation,
        has_value=assignment.has_value,
        kind=located.kind,
    )
    if assignment.operation is Operation.DELETE or _is_interpolation(assignment.value):
        return [override], []
    checked = check_value(located.spec, assignment.value)
    if not checked.legal:
        return [], [_type_problem(assignment, located)]
    return [replace(override, value=checked.value)], []


def _check_section(
    assignment: Assignment, schema: ConfigSchema, base: Mapping[str, FieldValue] | None
) -> tuple[list[Override], list[Problem]]:
    """A whole section: null, a preset name (`mixed_precision`), or a dictionary that is merged field by field."""
    path, value = assignment.key, assignment.value
    spec = locate_key(path, schema, base).spec
    nullable = NULLABLE_SECTIONS.get(path)
    takes_null = nullable is not None or ("." in path and spec.first("none") is not None)
    takes_name = (nullable is not None and nullable.takes_name) or ("." in path and spec.first("str") is not None)
    whole = Override(
        text=assignment.text,
        path=path,
        value=value,
        operation=assignment.operation,
        has_value=assignment.has_value,
        kind=KeyKind.SECTION,
    )
    if assignment.operation is Operation.DELETE:
        return [whole], []
    if isinstance(value, dict) and value:
        overrides: list[Override] = []
        problems: list[Problem] = []
        for key, item in value.items():
            if key == "_target_" and isinstance(item, str):
                mark = replace(whole, path=f"{path}._class", value=item.rsplit(".", 1)[-1], kind=KeyKind.SECTION)
                overrides.append(mark)
                continue
            found, wrong = _check(replace(assignment, key=f"{path}.{key}", value=item), schema, base)
            overrides += found
            problems += wrong
        return overrides, problems
    if value == {} or (value is None and takes_null) or (isinstance(value, str) and takes_name):
        return [whole], []
    legal = ["a dictionary of its fields", *(["null"] if takes_null else []), *(["the name of a preset"] if takes_name else [])]
    example = next(iter(sorted(name for name in schema if name.startswith(path + "."))), f"{path}.FIELD")
    return [], [
        Problem(
            code="wrong-type",
            path=path,
            message=f"is a section, and {render_for_message(value)} is not {' or '.join(legal)}",
            hint=f"set one of its fields, such as {example}=VALUE; `autorecipe config schema {path}` lists them",
        )
    ]


def unknown_key(path: str, schema: ConfigSchema, base: Mapping[str, FieldValue] | None = None) -> Problem:
    """Describe a key that does not exist, with its near misses."""
    close = suggest_keys(path, schema, base)
    text = f"unknown key {path!r}" if path else "the key before '=' is empty"
    if close:
        text += f"; did you mean {', '.join(repr(name) for name in close)}?"
    return Problem(code="unknown-key", path=path, message=text, hint=hint_at_keys(path, schema))


def hint_at_keys(path: str, schema: ConfigSchema) -> str:
    """Say which command lists the keys of a path's section."""
    section = path.split(".", 1)[0]
    command = f"autorecipe config schema {section}" if section in schema.parents else "autorecipe config schema"
    return f"`{command}` lists the keys" + (f" of release {schema.release}" if schema.release else "")


def _syntax_problem(text: str, why: str) -> Problem:
    if "=" not in text and not text.startswith("~"):
        return Problem(
            code="override-syntax",
            path=text,
            message="is not KEY=VALUE",
            hint=f"write {text or 'KEY'}=VALUE, such as model.num_layers=2",
        )
    key, _, value = text.partition("=")
    quoted = "'" + value.replace("'", "\\'") + "'"
    return Problem(
        code="override-syntax",
        path=key,
        message=f"{value!r}: {why}" if "=" in text else why,
        hint=f'quote it for the shell and for the grammar: "{key}={quoted}"',
    )


def _type_problem(assignment: Assignment, located: Located) -> Problem:
    value = assignment.value
    legal = describe_type(located.spec)
    declared = located.field.type if located.field is not None else ""
    hint = f"`autorecipe config schema {located.field.path if located.field is not None else located.path}` shows the field"
    example = _nearest_legal(located.spec, value)
    if example is not None:
        hint = f"write {PREFIXES[assignment.operation]}{assignment.key}={example}"
    return Problem(
        code="wrong-type",
        path=assignment.key,
        message=f"{render_for_message(value)} is not {legal}" + (f" (declared {declared})" if declared else ""),
        hint=hint,
    )


def _nearest_legal(spec: TypeSpec, value: FieldValue) -> str | None:
    """Return the spelling that was probably meant, rendered for the grammar."""
    candidates: list[FieldValue] = []
    if isinstance(value, bool):
        candidates += [int(value), str(value).lower()]
    elif isinstance(value, int):
        candidates += [str(value), *([bool(value)] if value in (0, 1) else [])]
    elif isinstance(value, float):
        candidates += [*([int(value)] if value.is_integer() and abs(value) < 1e18 else []), repr(value)]
    elif isinstance(value, str):
        folded = value.strip().lower()
        words: dict[str, FieldValue] = {"yes": True, "on": True, "no": False, "off": False, "none": None}
        candidates += [words[folded]] if folded in words else []
        candidates += [member for part in spec.members() for member in part.choices if str(member).lower() == folded]
    if not isinstance(value, list | dict):
        candidates.append([value])
    for candidate in candidates:
        if check_value(spec, candidate).legal:
            return render_value(candidate)
    return None


def render_for_message(value: FieldValue) -> str:
    """Render a value for a message, shortened."""
    text = repr(value) if isinstance(value, str) else render_value(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _is_interpolation(value: FieldValue) -> bool:
    return isinstance(value, str) and "${" in value


def render_override(path: str, value: FieldValue, *, operation: Operation = Operation.SET) -> str:
    """Render one override so that parsing gives it back.

    Raises:
        GrammarError: a value that the grammar cannot express.
    """
    return f"{PREFIXES[operation]}{path}={render_value(value)}"


def render_section(section: str, target: str, fields: Mapping[str, FieldValue]) -> str:
    """Render an override that builds a whole section from its class.

    Args:
        section: such as `mixed_precision`.
        target: import path of the class.
        fields: values by field name; dtypes are written so that Bridge builds them.
    """
    parts = [f"_target_:{target}"]
    for name, value in fields.items():
        is_dtype = isinstance(value, str) and value.startswith("torch.")
        parts.append(f"{name}:{{_target_:{value},_call_:false}}" if is_dtype else f"{name}:{render_value(value)}")
    return f"{section}={{{','.join(parts)}}}"


def render_overrides(overrides: Iterable[Override]) -> tuple[str, ...]:
    """Render checked overrides, one text each."""
    return tuple(
        f"{PREFIXES[item.operation]}{item.path}" + (f"={render_value(item.value)}" if item.has_value else "")
        for item in overrides
    )
