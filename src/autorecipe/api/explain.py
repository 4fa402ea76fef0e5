"""Explain a rule or a configuration field: joins rules, catalog and configuration."""

from __future__ import annotations

from autorecipe.config.explain import FieldPage, explain_field
from autorecipe.errors import Problem, UsageError, near_misses
from autorecipe.record import dataclass
from autorecipe.rules.pages import RulePage, rule_page
from autorecipe.rules.registry import all_rules, rules_by_alias


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What a name stands for.

    Attributes:
        name: as asked.
        rules: pages of the rules of that name.
        field: page of the field of that path, or None.
        related: rules that read the field.
    """

    name: str
    rules: tuple[RulePage, ...] = ()
    field: FieldPage | None = None
    related: tuple[RulePage, ...] = ()


def explain_name(name: str, *, release: str | None = None) -> Explanation:
    """Return the page of a rule or of a field.

    Args:
        name: rule id, alias, or configuration path.
        release: Bridge release whose schema names the fields.

    Raises:
        UsageError: neither, with near misses of both.
    """
    rules = rules_by_alias().get(name.upper())
    if rules is not None:
        return Explanation(name=name, rules=tuple(rule_page(rule) for rule in rules))
    from autorecipe.catalog.store import open_catalog

    schema = open_catalog(release).schema()
    try:
        page = explain_field(name, schema)
    except UsageError as error:
        close = near_misses(name.upper(), list(rules_by_alias()))
        hint = f"rules of a similar name: {', '.join(close)}" if close else "`autorecipe explain --list` lists all rules"
        looks_like_rule = "." not in name and any(letter.isdigit() for letter in name)
        if looks_like_rule:
            raise UsageError(Problem(code="unknown-rule", message=f"unknown rule {name!r}", hint=hint)) from None
        raise UsageError([*error.problems, Problem(code="unknown-rule", message=f"no rule {name!r} either", hint=hint)]) from None
    related = tuple(rule_page(rule) for rule in all_rules() if name in rule.paths)
    return Explanation(name=name, field=page, related=related)


def list_rules() -> tuple[RulePage, ...]:
    """Return the page of every rule."""
    return tuple(rule_page(rule) for rule in all_rules())
