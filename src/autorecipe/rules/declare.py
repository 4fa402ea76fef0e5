"""Declaring rules: one call per constraint.

`requires` states a condition and what it needs; `adjusts` states what upstream changes by itself; `computes` wraps a
function. All read predicates of `expression.py`. Messages name the failing parts and the values they have.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from autorecipe.rules.context import Context
from autorecipe.rules.expression import Expression, compile_expression, compile_node
from autorecipe.rules.release import ReleaseRange
from autorecipe.rules.repair import propose_fixes
from autorecipe.rules.rule import BRIDGE, FRAMEWORKS, MBR, MEGATRON_LM, MLM, Breach, Check, Example, Missing, Rule, Verdict
from autorecipe.rules.wording import render_condition, render_value_of
from autorecipe.schema import Evidence, Fix, Severity, Stage
from autorecipe.schema.value import UNKNOWN

FILES = {
    "tc": "lm:megatron/core/transformer/transformer_config.py",
    "ar": "lm:megatron/training/arguments.py",
    "oc": "lm:megatron/core/optimizer/optimizer_config.py",
    "dc": "lm:megatron/core/distributed/distributed_data_parallel_config.py",
    "bc": "br:src/megatron/bridge/training/config.py",
    "bs": "br:src/megatron/bridge/training/setup.py",
    "bk": "br:src/megatron/bridge/training/checkpointing.py",
    "bo": "br:src/megatron/bridge/training/comm_overlap.py",
    "bm": "br:src/megatron/bridge/training/mixed_precision.py",
    "rr": "br:scripts/training/run_recipe.py",
    "rn": "br:scripts/training/recipe_runner.py",
}
"""Short names of the files that most rules come from."""


def requires(
    rule_id: str,
    aliases: str,
    title: str,
    *,
    need: str | Iterable[str],
    bad: str,
    good: str,
    source: str,
    why: str,
    when: str = "True",
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
) -> Rule:
    """Declare that `need` (one or several predicates) must hold when `when` does.

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
    condition = compile_expression(when)
    needs = [compile_expression(text) for text in ([need] if isinstance(need, str) else need)]
    stated = tuple(Fix(overrides=dict(change), note=note) for change in fixes)

    def check(context: Context) -> Iterable[Verdict]:
        if not condition.evaluate(context):
            return
        failing, unknown = [], []
        for expression in needs:
            value = expression.evaluate(context)
            if value is UNKNOWN:
                unknown.append(expression)
            elif not value:
                failing.append(expression)
        if failing:
            yield Breach(
                message=title + "".join(f"{mark} {text}" for mark, text in _reasons(failing, context)),
                legal=legal or {},
                fixes=_unique(stated + _derived_fixes(condition, failing, context, note)) if derive_fixes else stated,
                hint=hint,
                facts={"failing": [expression.text for expression in failing]} if len(needs) > 1 else {},
            )
        elif unknown:
            paths = dict.fromkeys(path for expression in unknown for path in expression.paths)
            yield Missing(paths=tuple(path for path in paths if _is_unknown(path, context)) or tuple(paths))

    def state() -> str:
        formula = "; ".join(render_condition(expression.node) for expression in needs)
        return formula if when == "True" else f"{render_condition(condition.node)} -> {formula}"

    def reads() -> tuple[str, ...]:
        return tuple(dict.fromkeys([*condition.paths, *(path for item in needs for path in item.paths)]))

    return make_rule(
        rule_id,
        aliases,
        title,
        check=check,
        severity=severity,
        stage=stage,
        state=state,
        why=why,
        source=source,
        evidence=evidence,
        frameworks=frameworks,
        core=core,
        bridge=bridge,
        reads=reads,
        bad=bad,
        good=good,
    )


def adjusts(
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
) -> Rule:
    """Declare that upstream replaces values when `when` holds.

    Args:
        effective: path -> value that upstream will use; a text that starts with `=` is an expression.
        (others): as in `requires`.
    """
    condition = compile_expression(when)
    computed = {
        path: compile_expression(value[1:]).evaluate if isinstance(value, str) and value.startswith("=") else None
        for path, value in effective.items()
    }
    stated = tuple(Fix(overrides=dict(change)) for change in fixes)

    def check(context: Context) -> Iterable[Verdict]:
        if not condition.evaluate(context):
            return
        values: dict[str, Any] = {}
        for path, value in effective.items():
            function = computed[path]
            result = function(context) if function else value
            values[path] = "unknown" if result is UNKNOWN else result
        shown = ", ".join(f"{path}={show(value)}" for path, value in values.items())
        yield Breach(message=f"{title}: upstream uses {shown}" if shown else title, effective=values, fixes=stated, hint=hint)

    return make_rule(
        rule_id,
        aliases,
        title,
        check=check,
        severity=severity,
        stage=stage,
        state=lambda: f"{render_condition(condition.node)} -> {_assigned(effective)}",
        why=why,
        source=source,
        evidence=evidence,
        frameworks=frameworks,
        core=core,
        bridge=bridge,
        reads=lambda: tuple(dict.fromkeys([*condition.paths, *effective])),
        bad=bad,
        good=good,
    )


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
    """Turn a function of a context into a rule; arguments as in `requires`, `paths` space-separated."""

    def decorate(check: Check) -> Rule:
        return make_rule(
            rule_id,
            aliases,
            title,
            check=check,
            severity=severity,
            stage=stage,
            state=lambda: formula,
            why=why,
            source=source,
            evidence=evidence,
            frameworks=frameworks,
            core=core,
            bridge=bridge,
            reads=lambda: tuple(path if "." in path else f"model.{path}" for path in paths.split()),
            bad=bad,
            good=good,
        )

    return decorate


def make_rule(
    rule_id: str,
    aliases: str,
    title: str,
    *,
    check: Check,
    severity: Severity,
    stage: Stage,
    state: Callable[[], str],
    why: str,
    source: str,
    evidence: Evidence,
    frameworks: tuple[str, ...],
    core: str,
    bridge: str,
    reads: Callable[[], tuple[str, ...]],
    bad: str,
    good: str,
) -> Rule:
    """Build a rule from declared text."""
    names = tuple(aliases.split())
    return Rule(
        id=rule_id,
        title=title,
        severity=severity,
        stage=stage,
        check=check,
        state=state,
        why=why,
        cite=lambda: _source(source),
        evidence=evidence,
        aliases=names,
        frameworks=frameworks or _frameworks(names),
        core=_range(core),
        bridge=_range(bridge),
        reads=reads,
        bad=Example(words=bad),
        good=Example(words=good),
    )


def _assigned(effective: Mapping[str, Any]) -> str:
    texts = []
    for path, value in effective.items():
        computed = isinstance(value, str) and value.startswith("=")
        texts.append(f"{path} := {render_value_of(compile_expression(value[1:]).node) if computed else show(value)}")
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


def _frameworks(aliases: tuple[str, ...]) -> tuple[str, ...]:
    kinds = {alias.split("-")[0] for alias in aliases} & {"MLM", "MC", "BR"}
    if kinds == {"MLM"}:
        return (MEGATRON_LM,)
    if kinds == {"BR"}:
        return (BRIDGE,)
    return FRAMEWORKS


def _source(text: str) -> str:
    parts = []
    for part in text.split("+"):
        part = part.strip()
        short, _, rest = part.partition(":")
        if short in FILES:
            part = f"{FILES[short]}:{rest}"
        if part.startswith("br:"):
            parts.append(f"{part[3:]} @ {MBR}")
        elif part.startswith("lm:"):
            parts.append(f"{part[3:]} @ {MLM}")
        else:
            parts.append(part)
    return "; ".join(parts)


@lru_cache(maxsize=64)
def _range(text: str) -> ReleaseRange:
    since = until = ""
    for part in text.split():
        if part.startswith(">="):
            since = part[2:]
        elif part.startswith("<"):
            until = part[1:]
        else:
            raise ValueError(f"not a release range: {text}")
    return ReleaseRange(since=since, until=until)


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
    node = expression.node
    parts = node.values if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And) else [node]
    failing = [part for part in parts if compile_node(part)(context) is not UNKNOWN and not compile_node(part)(context)] or parts
    text = " and ".join(render_condition(part) for part in failing)
    values = []
    for path in dict.fromkeys(path for part in failing for path in compile_expression(ast.unparse(part)).paths):
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


def _derived_fixes(condition: Expression, failing: list[Expression], context: Context, note: str) -> tuple[Fix, ...]:
    when = None if condition.text == "True" else condition.node
    proposals = propose_fixes(when, [expression.node for expression in failing], context)
    return tuple(Fix(overrides=fix.overrides, note=note) for fix in proposals)
