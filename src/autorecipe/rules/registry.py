"""Every rule, by id and by alias."""

from __future__ import annotations

import importlib
from functools import lru_cache

from autorecipe.errors import UsageError, unknown_name
from autorecipe.rules.rule import Rule

FAMILIES = {
    "PAR": ("parallel", "divisors"),
    "PIP": ("pipeline", "interleaving"),
    "BAT": ("batch",),
    "MOE": ("moe", "dispatch"),
    "REC": ("recompute", "offload"),
    "CUD": ("graphs", "graph_options"),
    "FSD": ("fsdp", "buffers"),
    "OVL": ("overlap",),
    "PRC": ("precision", "lowprecision"),
    "SCH": ("schedule",),
    "CKP": ("resume", "checkpoint"),
    "SEQ": ("sequence",),
    "PCK": ("packing",),
    "DAT": ("data",),
    "HYB": ("hybrid",),
    "MDL": ("model", "activation"),
    "OPT": ("optimizer",),
    "ORD": ("order",),
    "LCH": ("launch", "processes"),
    "LOG": ("reporting",),
    "ARG": (),
    "MIM": (),
    "PIT": ("pitfalls",),
}
"""Topic of an id -> modules of `rules.families`."""


@lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """Return every rule, sorted by id."""
    rules: list[Rule] = []
    for module in (module for modules in FAMILIES.values() for module in modules):
        rules += importlib.import_module(f"autorecipe.rules.families.{module}").RULES
    rules.sort(key=lambda rule: rule.id)
    seen: set[str] = set()
    for rule in rules:
        assert rule.id not in seen, f"rule id {rule.id} is used twice"
        seen.add(rule.id)
    return tuple(rules)


@lru_cache(maxsize=32)
def applicable_rules(framework: str, core: str, bridge: str) -> tuple[Rule, ...]:
    """Return the rules that hold in these releases."""
    return tuple(rule for rule in all_rules() if rule.holds_in(framework=framework, core=core, bridge=bridge))


@lru_cache(maxsize=1)
def rules_by_alias() -> dict[str, tuple[Rule, ...]]:
    """Return rules by upper-case id or alias; one upstream constraint may have become several rules."""
    found: dict[str, list[Rule]] = {}
    for rule in all_rules():
        for name in (rule.id, *rule.aliases):
            found.setdefault(name.upper(), []).append(rule)
    return {name: tuple(rules) for name, rules in found.items()}


def find_rules(name: str) -> tuple[Rule, ...]:
    """Return the rules that an id or alias stands for.

    Raises:
        UsageError: unknown, with near misses.
    """
    rules = rules_by_alias().get(name.upper())
    if rules is None:
        raise UsageError(unknown_name("rule", name, list(rules_by_alias()), hint="`autorecipe explain --list` lists all rules"))
    return rules
