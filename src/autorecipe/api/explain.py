"""Explain what an answer names: a rule, a trap, the code of an error, or a configuration field."""

from __future__ import annotations

from autorecipe.codes import all_codes, meaning_of
from autorecipe.config.explain import FieldPage, explain_field
from autorecipe.config.traps import Trap, all_traps
from autorecipe.errors import Problem, UsageError, near_misses
from autorecipe.record import dataclass
from autorecipe.rules.check import NOT_CHECKED
from autorecipe.rules.pages import RulePage, rule_page
from autorecipe.rules.registry import all_rules, rules_by_alias

NOT_CHECKED_MEANING = (
    "rules that apply to the run and lack a fact, so that they were neither passed nor broken; the line names the facts"
)


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What a name stands for.

    Attributes:
        name: as asked.
        rules: pages of the rules of that name.
        traps: the trap of that id, on which upstream drops or changes a value that was given.
        meaning: what the code of an error in small letters says, or empty.
        field: page of the field of that path, or None.
        related: rules that read the field.
    """

    name: str
    rules: tuple[RulePage, ...] = ()
    traps: tuple[Trap, ...] = ()
    meaning: str = ""
    field: FieldPage | None = None
    related: tuple[RulePage, ...] = ()


def explain_name(name: str, *, release: str | None = None) -> Explanation:
    """Return the page of a rule, a trap, an error's code or a field.

    Args:
        name: rule id or alias, id of a trap, code of an error, or configuration path.
        release: Bridge release whose schema names the fields.

    Raises:
        UsageError: none of them, with near misses.
    """
    by_alias = rules_by_alias()
    rules = by_alias.get(name.upper(), ())
    traps = tuple(trap for trap in all_traps() if trap.id == name.upper())
    meaning = NOT_CHECKED_MEANING if name.upper() == NOT_CHECKED else meaning_of(name)
    if rules or traps or meaning:
        return Explanation(name=name, rules=tuple(rule_page(rule) for rule in rules), traps=traps, meaning=meaning)
    from autorecipe.catalog.store import open_catalog

    schema = open_catalog(release).schema()
    try:
        page = explain_field(name, schema)
    except UsageError as error:
        close = near_misses(name, [*by_alias, *(trap.id for trap in all_traps()), NOT_CHECKED, *all_codes()])
        if "." in name and not close:
            raise
        hint = f"similar names: {', '.join(close)}" if close else "`autorecipe explain --list` lists all rules"
        unknown = Problem(code="unknown-rule", message=f"no rule, code or field {name!r}", hint=hint)
        fields = [problem for problem in error.problems if "did you mean" in problem.message]
        raise UsageError([*fields, unknown] if not close else unknown) from None
    related = tuple(rule_page(rule) for rule in all_rules() if name in rule.paths)
    return Explanation(name=name, field=page, related=related)


def list_rules() -> tuple[RulePage, ...]:
    """Return the page of every rule."""
    return tuple(rule_page(rule) for rule in all_rules())
