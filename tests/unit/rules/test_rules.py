"""Every declared rule, tried on its own examples: none can be removed or broken without a failure here."""

import dataclasses
import functools

import pytest

from autorecipe.rules.check import judge
from autorecipe.rules.registry import FAMILIES, all_rules, rules_by_alias
from autorecipe.rules.situation import read_situation


def situation_of(rule, example):
    situation = read_situation(example)
    if situation.framework not in rule.frameworks:
        situation = dataclasses.replace(situation, framework=rule.frameworks[0])
    return situation


@functools.cache
def judge_bad(rule_id):
    rule = next(rule for rule in all_rules() if rule.id == rule_id)
    return judge(situation_of(rule, rule.bad))


def found(rule, example):
    situation = situation_of(rule, example)
    context = situation.context()
    assert rule.holds_in(framework=context.framework, core=context.core, bridge=context.bridge)
    findings = judge_bad(rule.id) if example is rule.bad else judge(situation, verify=False)
    return [finding for finding in findings if finding.rule == rule.id]


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.id)
def test_rule_finds_its_bad_example(rule):
    findings = found(rule, rule.bad)
    assert findings
    for finding in findings:
        assert finding.message
        assert finding.source


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.id)
def test_rule_is_silent_on_its_good_example(rule):
    assert found(rule, rule.bad.merged(rule.good)) == []


def test_rules_say_what_where_and_why():
    for rule in all_rules():
        assert rule.title, rule.id
        assert rule.why.endswith("."), rule.id
        assert rule.formula, rule.id
        assert rule.source, rule.id
        assert rule.aliases, rule.id
        assert rule.paths, rule.id
        assert rule.frameworks, rule.id
        assert rule.id[:3] in FAMILIES, rule.id
        assert rule.id[3:].isdigit(), rule.id


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.id)
def test_verified_fix_makes_the_finding_go_away(rule):
    situation = situation_of(rule, rule.bad)
    for finding in judge_bad(rule.id):
        for fix in finding.fixes:
            if fix.verified:
                after = judge(situation.changed(fix.overrides), verify=False)
                assert (finding.rule, finding.severity) not in {(item.rule, item.severity) for item in after}


def test_aliases_reach_their_rule():
    assert [rule.id for rule in rules_by_alias()["MC-WORLD-02"]] == ["PAR002"]
