"""Declaring rules: one call per constraint.

`requires` states a condition and what it needs; `adjusts` states what upstream changes by itself; `computes` wraps a
function. The first two read predicates of `expression.py`. Messages name the failing parts and the values they have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from autorecipe.rules.context import Context
from autorecipe.rules.expression import Expression, compile_node, evaluate, paths_of
from autorecipe.rules.rule import Breach, Check, Declaration, Missing, Rule, Verdict
from autorecipe.rules.syntax import Join
from autorecipe.schema import Evidence, Fix, Severity, Stage
from autorecipe.schema.value import UNKNOWN

ALWAYS = "True"


class Requirement(Rule):
    """A condition and what it needs.

    Args:
        rule_id: stable id.
        aliases: names of the same constraint elsewhere, space-separated.
        title: what must hold.
        need: predicates, all of which must hold; each failing one is named.
        bad: example situation that breaks it.
        good: change that mends the example.
        source: upstream file:line; `+` separates several.
        why: what happens otherwise.
        when: predicate that makes the rule apply.
        severity: of a breach.
        stage: when upstream would notice.
        frameworks: empty to read them off the aliases (MLM-*, BR-*, else both).
        core: core releases, such as `>=0.16` or `<0.16`.
        bridge: Bridge releases, likewise.
        fixes: further ways out, tried first.
        note: added to each fix.
        legal: legal values by path, where they are constant.
        evidence: how strong the rule is.
        hint: one thing to do next.
        derive_fixes: whether ways out may be derived from the predicates.
    """

    def __init__(
        self,
        rule_id: str,
        aliases: str,
        title: str,
        *,
        need: str | Iterable[str],
        bad: str,
        good: str,
        source: str,
        why: str,
        when: str = ALWAYS,
        severity: Severity = Severity.ERROR,
        stage: Stage = Stage.FINALIZE,
        frameworks: tuple[str, ...] = (),
        core: str = "",
        bridge: str = "",
        fixes: Iterable[Mapping[str, Any]] = (),
        note: str = "",
        legal: Mapping[str, Any] | None = None,
        evidence: Evidence = Evidence.ENFORCED_UPSTREAM,
        hint: str = "",
        derive_fixes: bool = True,
    ) -> None:
        declared: Declaration = {
            "severity": severity,
            "stage": stage,
            "why": why,
            "source": source,
            "evidence": evidence,
            "frameworks": frameworks,
            "core": core,
            "bridge": bridge,
            "bad": bad,
            "good": good,
        }
        super().__init__(rule_id, aliases, title, declared)
        self._when = when
        self._needs = (need,) if isinstance(need, str) else tuple(need)
        self._fixes = fixes
        self._note = note
        self._legal = legal
        self._hint = hint
        self._derive_fixes = derive_fixes

    @property
    def predicates(self) -> tuple[str, ...]:
        """The condition and the needs, as written."""
        return (self._when, *self._needs)

    def check(self, context: Context) -> Iterable[Verdict]:
        """Return a breach that names the failing needs, or what is not known."""
        if self._when != ALWAYS and not evaluate(self._when, context):
            return ()
        failing, unknown = [], []
        for text in self._needs:
            value = evaluate(text, context)
            if value is UNKNOWN:
                unknown.append(text)
            elif not value:
                failing.append(text)
        if failing:
            return (self._breach([Expression(text) for text in failing], context),)
        if unknown:
            paths = dict.fromkeys(path for text in unknown for path in Expression(text).paths)
            return (Missing(paths=tuple(path for path in paths if _is_unknown(path, context)) or tuple(paths)),)
        return ()

    def _breach(self, failing: list[Expression], context: Context) -> Breach:
        fixes = tuple(Fix(overrides=dict(change), note=self._note) for change in self._fixes)
        if self._derive_fixes:
            fixes = _unique(fixes + self._derived_fixes(failing, context))
        return Breach(
            message=self.title + "".join(f"{mark} {text}" for mark, text in _reasons(failing, context)),
            legal=self._legal or {},
            fixes=fixes,
            hint=self._hint,
            facts={"failing": [expression.text for expression in failing]} if len(self._needs) > 1 else {},
        )

    def _derived_fixes(self, failing: list[Expression], context: Context) -> tuple[Fix, ...]:
        from autorecipe.rules.repair import propose_fixes

        when = None if self._when == ALWAYS else Expression(self._when).node
        proposals = propose_fixes(when, [expression.node for expression in failing], context)
        return tuple(Fix(overrides=fix.overrides, note=self._note) for fix in proposals)

    @cached_property
    def formula(self) -> str:
        """The condition and the needs, in words."""
        from autorecipe.rules.wording import render_condition

        needs = "; ".join(render_condition(Expression(text).node) for text in self._needs)
        return needs if self._when == ALWAYS else f"{render_condition(Expression(self._when).node)} -> {needs}"

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Paths of the condition and the needs."""
        return tuple(dict.fromkeys(path for text in self.predicates for path in Expression(text).paths))


class Adjustment(Rule):
    """What upstream replaces by itself when a condition holds.

    Args:
        when: predicate.
        effective: path -> value that upstream will use; a text that starts with `=` is an expression.
        (others): as in `Requirement`.
    """

    def __init__(
        self,
        rule_id: str,
        aliases: str,
        title: str,
        *,
        when: str,
        effective: Mapping[str, Any],
        bad: str,
        good: str,
        source: str,
        why: str,
        severity: Severity = Severity.AUTO_FIX,
        stage: Stage = Stage.FINALIZE,
        frameworks: tuple[str, ...] = (),
        core: str = "",
        bridge: str = "",
        hint: str = "",
        fixes: Iterable[Mapping[str, Any]] = (),
        evidence: Evidence = Evidence.ENFORCED_UPSTREAM,
    ) -> None:
        declared: Declaration = {
            "severity": severity,
            "stage": stage,
            "why": why,
            "source": source,
            "evidence": evidence,
            "frameworks": frameworks,
            "core": core,
            "bridge": bridge,
            "bad": bad,
            "good": good,
        }
        super().__init__(rule_id, aliases, title, declared)
        self._when = when
        self._effective = effective
        self._fixes = fixes
        self._hint = hint

    @property
    def predicates(self) -> tuple[str, ...]:
        """The condition and the computed values, as written."""
        return (self._when, *(value[1:] for value in self._effective.values() if _is_computed(value)))

    def check(self, context: Context) -> Iterable[Verdict]:
        """Return what upstream will use where the condition holds."""
        if not evaluate(self._when, context):
            return ()
        values: dict[str, Any] = {}
        for path, value in self._effective.items():
            result = evaluate(value[1:], context) if _is_computed(value) else value
            values[path] = "unknown" if result is UNKNOWN else result
        shown = ", ".join(f"{path}={show(value)}" for path, value in values.items())
        message = f"{self.title}: upstream uses {shown}" if shown else self.title
        fixes = tuple(Fix(overrides=dict(change)) for change in self._fixes)
        return (Breach(message=message, effective=values, fixes=fixes, hint=self._hint),)

    @cached_property
    def formula(self) -> str:
        """The condition and the values, in words."""
        from autorecipe.rules.wording import render_condition

        return f"{render_condition(Expression(self._when).node)} -> {_assigned(self._effective)}"

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Paths of the condition, and those that are replaced."""
        return tuple(dict.fromkeys([*Expression(self._when).paths, *self._effective]))


class Computation(Rule):
    """A function that looks at the context itself.

    Args:
        function: gives verdicts.
        formula: what it checks, in words or symbols.
        reads: paths, space-separated.
        (others): as in `Rule`.
    """

    def __init__(
        self, rule_id: str, aliases: str, title: str, declared: Declaration, *, function: Check, formula: str, reads: str
    ) -> None:
        super().__init__(rule_id, aliases, title, declared)
        self._function = function
        self._formula = formula
        self._reads = reads

    def check(self, context: Context) -> Iterable[Verdict]:
        """Return what the function finds."""
        return self._function(context)

    @cached_property
    def formula(self) -> str:
        """As declared."""
        return self._formula

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """As declared; bare names are model fields."""
        return tuple(path if "." in path else f"model.{path}" for path in self._reads.split())


requires = Requirement
adjusts = Adjustment


def computes(
    rule_id: str,
    aliases: str,
    title: str,
    *,
    formula: str,
    paths: str,
    bad: str,
    good: str,
    source: str,
    why: str,
    severity: Severity = Severity.ERROR,
    stage: Stage = Stage.FINALIZE,
    frameworks: tuple[str, ...] = (),
    core: str = "",
    bridge: str = "",
    evidence: Evidence = Evidence.ENFORCED_UPSTREAM,
) -> Callable[[Check], Rule]:
    """Turn a function of a context into a rule; arguments as in `Requirement`, `paths` space-separated."""
    declared: Declaration = {
        "severity": severity,
        "stage": stage,
        "why": why,
        "source": source,
        "evidence": evidence,
        "frameworks": frameworks,
        "core": core,
        "bridge": bridge,
        "bad": bad,
        "good": good,
    }
    return lambda check: Computation(rule_id, aliases, title, declared, function=check, formula=formula, reads=paths)


def _is_computed(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("=")


def _assigned(effective: Mapping[str, Any]) -> str:
    from autorecipe.rules.wording import render_value_of

    texts = []
    for path, value in effective.items():
        texts.append(f"{path} := {render_value_of(Expression(value[1:]).node) if _is_computed(value) else show(value)}")
    return ", ".join(texts) or "upstream adapts"


def show(value: Any) -> str:
    """Show a value as it would be typed in an override."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ",".join(show(item) for item in value) + "]"
    return str(value)


def _is_unknown(path: str, context: Context) -> bool:
    space, _, rest = path.partition(".")
    if space == "env":
        return context.env(rest) is UNKNOWN
    return path not in context.values


def _reasons(failing: list[Expression], context: Context) -> list[tuple[str, str]]:
    texts = [_describe(expression, context) for expression in failing if expression.text != "False"]
    return [(":" if index == 0 else ";", text) for index, text in enumerate(texts)]


def _describe(expression: Expression, context: Context) -> str:
    """Say what is needed and which values stand against it, naming failing parts of a conjunction alone."""
    from autorecipe.rules.wording import render_condition

    node = expression.node
    parts = node.parts if isinstance(node, Join) and node.word == "and" else (node,)
    failing = [part for part in parts if compile_node(part)(context) is not UNKNOWN and not compile_node(part)(context)] or parts
    text = " and ".join(render_condition(part) for part in failing)
    values = []
    for path in dict.fromkeys(path for part in failing for path in paths_of(part)):
        value = current(path, context)
        if value is not UNKNOWN:
            values.append(f"{path}={show(value)}")
    return f"needs {text}" + (f", but {', '.join(values)}" if values else "")


def current(path: str, context: Context) -> Any:
    """Return the value that any kind of path has now, `UNKNOWN` where not known."""
    space, _, rest = path.partition(".")
    if space == "env":
        return context.env(rest)
    if space == "given":
        return context.given.get(rest, UNKNOWN)
    if space == "saved":
        return context.saved.get(rest, UNKNOWN)
    if space == "package":
        return context.packages.get(rest, UNKNOWN)
    if path == "gpus":
        return UNKNOWN if context.world is None else context.world
    if path == "gpu":
        return UNKNOWN if context.cluster is None else context.cluster.gpu.name
    return context.read(path)


def _unique(fixes: tuple[Fix, ...]) -> tuple[Fix, ...]:
    kept: list[Fix] = []
    for fix in fixes:
        if all(fix.overrides != other.overrides for other in kept):
            kept.append(fix)
    return tuple(kept)
