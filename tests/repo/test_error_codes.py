"""One code, one home: what `error[CODE]` says means one thing, and a rule's id means that rule."""

import ast
import re
from collections import defaultdict
from pathlib import Path

from autorecipe.api.explain import explain_name
from autorecipe.codes import NAMED_KINDS, OWN_CODES
from autorecipe.config.traps import all_traps
from autorecipe.errors import SHARED_CODES
from autorecipe.rules.check import NOT_CHECKED
from autorecipe.rules.registry import all_rules, rules_by_alias

SOURCES = Path(__file__).resolve().parents[2] / "src" / "autorecipe"
RULE_ID = re.compile(r"[A-Z]{3}\d{3}")
CODE = re.compile(r"[a-z]+(-[a-z]+)+|[A-Z]+(-[A-Z]+)*-?\d+|TRAP-[A-Z]+")


REFUSALS = {"refuse", "_refuse", "_refused"}
"""Functions that take the code of the error they raise as one of their words."""


def called(call):
    return getattr(call.func, "id", "") or getattr(call.func, "attr", "")


def code_words(call):
    """Return the nodes of a call that are the code of an error."""
    if called(call) == "Problem":
        return [keyword.value for keyword in call.keywords if keyword.arg == "code"]
    if called(call) in REFUSALS:
        return [word for word in call.args if isinstance(word, ast.Constant) and CODE.fullmatch(str(word.value))]
    return []


def calls(path):
    return [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]


def literals(path):
    """Yield (text, whether it is the code of an error) of every string in a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    codes = {id(word) for call in ast.walk(tree) if isinstance(call, ast.Call) for word in code_words(call)}
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
    several = {code for code, modules in homes().items() if len(modules) > 1 and code == code.lower()}
    assert several <= set(SHARED_CODES), "another meaning needs a name of its own; the same one, a line in errors.SHARED_CODES"


def test_shared_codes_are_used():
    assert set(SHARED_CODES) <= set(homes())


def test_a_code_of_one_module_says_what_it_means_and_is_written_there():
    written = {code for code in homes() if code == code.lower() and not code.startswith("unknown-")}
    assert written - set(SHARED_CODES) == set(OWN_CODES), "codes.OWN_CODES has one line for each"


def test_every_kind_of_unknown_name_is_listed():
    asked = [call.args[0] for path in SOURCES.rglob("*.py") for call in calls(path) if called(call) == "unknown_name"]
    assert {kind.value for kind in asked if isinstance(kind, ast.Constant)} <= set(NAMED_KINDS)


def test_explain_knows_every_code_that_is_written():
    for code in [*homes(), *(trap.id for trap in all_traps()), NOT_CHECKED]:
        found = explain_name(code)
        assert found.rules or found.traps or found.meaning, code
        assert found.field is None, f"{code} is a field as well"


def test_a_code_is_a_rule_or_no_name_of_one():
    numbered = {name.upper() for name in rules_by_alias()} | {trap.id for trap in all_traps()}
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
