"""One code, one home: what `error[CODE]` says means one thing, and a rule's id means that rule."""

import ast
import re
from collections import defaultdict
from pathlib import Path

from autorecipe.config.traps import TRAPS
from autorecipe.errors import SHARED_CODES
from autorecipe.rules.check import NOT_CHECKED
from autorecipe.rules.registry import all_rules, rules_by_alias

SOURCES = Path(__file__).resolve().parents[2] / "src" / "autorecipe"
RULE_ID = re.compile(r"[A-Z]{3}\d{3}")


def literals(path):
    """Yield (text, whether it is the code of an error) of every string in a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    codes = {
        id(keyword.value)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Problem"
        for keyword in call.keywords
        if keyword.arg == "code"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, id(node) in codes


def homes():
    """Return the modules that write each code."""
    found = defaultdict(set)
    for path in SOURCES.rglob("*.py"):
        for text, is_code in literals(path):
            if is_code:
                found[text].add(str(path.relative_to(SOURCES)))
    return found


def test_a_code_of_several_modules_is_a_shared_one():
    several = {code for code, modules in homes().items() if len(modules) > 1}
    assert several <= set(SHARED_CODES), "another meaning needs a name of its own; the same one, a line in errors.SHARED_CODES"


def test_shared_codes_are_used():
    assert set(SHARED_CODES) <= set(homes())


def test_a_code_is_a_rule_or_no_name_of_one():
    numbered = {name.upper() for name in rules_by_alias()} | {trap.id for trap in TRAPS}
    for code in homes():
        if code != code.lower():
            assert code in numbered, f"{code} looks like a rule, and there is none"
        else:
            assert code.upper() not in numbered


def test_ids_of_rules_are_written_for_rules_alone():
    known = {rule.id for rule in all_rules()} | {NOT_CHECKED}
    written = {
        text
        for path in SOURCES.rglob("*.py")
        if "families" not in path.parts
        for text, _ in literals(path)
        if RULE_ID.fullmatch(text)
    }
    assert written and written <= known


def test_no_alias_is_the_id_of_another_rule():
    by_id = {rule.id: rule for rule in all_rules()}
    assert not [(rule.id, alias) for rule in all_rules() for alias in rule.aliases if by_id.get(alias, rule) is not rule]
