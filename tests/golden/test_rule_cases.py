"""Problems of real users and of the frameworks, with the right answer. Each row names its public source.

A row holds a situation in words (or a recipe with overrides), findings that must come out, and rules that must stay silent.
"""

import json
from pathlib import Path

import pytest

from autorecipe.api.check import CheckRequest, check_run
from autorecipe.rules.check import judge
from autorecipe.rules.registry import find_rules
from autorecipe.rules.situation import read_situation

FOLDER = Path(__file__).parent / "cases"
ROWS = [json.loads(line) for path in sorted(FOLDER.glob("*.jsonl")) for line in path.read_text(encoding="utf-8").splitlines()]
ANY_SIZE = "h100"


def findings_of(row):
    if "situation" in row:
        return judge(read_situation(row["situation"]))
    request = CheckRequest(target=row["recipe"], overrides=tuple(row["overrides"]), gpus=row["gpus"], gpu=row.get("gpu"))
    return check_run(request).findings


def matches(finding, wanted):
    ids = {rule.id for rule in find_rules(wanted["rule"])}
    return finding.rule in ids and finding.severity.value == wanted["severity"] and explains(finding, wanted) == []


def explains(finding, wanted):
    """Return what a finding lacks of a wanted one."""
    verified = [dict(fix.overrides) for fix in finding.fixes if fix.verified]
    lacks = []
    if "stage" in wanted and finding.stage.value != wanted["stage"]:
        lacks.append(f"stage is {finding.stage.value}")
    lacks += [
        f"legal {path} is {finding.legal.get(path)}"
        for path, value in wanted.get("legal", {}).items()
        if finding.legal.get(path) != value
    ]
    for path, value in wanted.get("legal_contains", {}).items():
        legal = finding.legal.get(path, [])
        if value not in legal and not set(map(str, value)) <= set(map(str, legal)):
            lacks.append(f"legal {path} is {legal}")
    for name in ("facts", "effective"):
        have = getattr(finding, name)
        lacks += [f"{name} {key} is {have.get(key)}" for key, value in wanted.get(name, {}).items() if have.get(key) != value]
    lacks += [f"no verified fix {fix}; there are {verified}" for fix in wanted.get("fixes", []) if fix not in verified]
    for path, value in wanted.get("fix_paths", []):
        if not any(dict(fix.overrides).get(path) == value for fix in finding.fixes):
            lacks.append(f"no fix {path}={value}")
    if "note" in wanted and not any(wanted["note"] in fix.note for fix in finding.fixes):
        lacks.append(f"no note {wanted['note']!r}")
    lacks += [f"message lacks {text!r}" for text in wanted.get("message", []) if text not in finding.message]
    if wanted.get("hint", "") not in finding.hint:
        lacks.append(f"hint is {finding.hint!r}")
    return lacks


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"].replace(" ", "-"))
def test_case(row):
    findings = findings_of(row)
    for wanted in row["find"]:
        ids = {rule.id for rule in find_rules(wanted["rule"])}
        near = [(item.rule, item.severity.value, explains(item, wanted)) for item in findings if item.rule in ids]
        assert any(matches(finding, wanted) for finding in findings), near or [item.rule for item in findings]
    silent = {rule.id for name in row["silent"] for rule in find_rules(name)}
    assert [(item.rule, item.message) for item in findings if item.rule in silent and item.severity.value == "error"] == []


def test_every_row_says_something_and_names_its_source():
    for row in ROWS:
        assert row["source"], row["name"]
        assert row["find"] or row["silent"], row["name"]
