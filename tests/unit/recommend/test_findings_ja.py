"""Findings that answers print are Japanese in a Japanese answer, and carry the same numbers and paths."""

import json
import re
from pathlib import Path

import pytest

from autorecipe.cli.main import execute
from autorecipe.recommend.findings_ja import SENTENCES, TITLES, say_finding
from autorecipe.rules.pages import example_message
from autorecipe.rules.registry import find_rules
from autorecipe.schema.finding import Finding, Severity, Stage

QUESTIONS = Path(__file__).parents[2] / "golden" / "recommend" / "questions.jsonl"
ENGLISH = re.compile(r"(?<![\w./=-])[a-z]{2,}(?: [a-z]{2,}){2,}")


def finding(rule, message):
    return Finding(rule=rule, severity=Severity.WARN, message=message, stage=Stage.NEVER)


def numbers(text):
    return sorted(re.findall(r"\d+(?:\.\d+)?", text))


@pytest.mark.parametrize("rule", [*TITLES, *SENTENCES])
def test_the_example_of_a_rule_is_said_in_japanese_with_its_facts(rule):
    english = example_message(find_rules(rule)[0])
    japanese = say_finding(finding(rule, english))
    if japanese is None:
        assert rule in SENTENCES, english  # the example breaks the rule in another way than recipes do
        return
    assert re.search("[\u3040-\u9fff]", japanese)
    assert set(re.findall(r"[a-z_]+\.[a-z_.]+=\S+", english)) <= set(re.findall(r"[a-z_]+\.[a-z_.]+=[^\s)]+", japanese))
    assert ENGLISH.search(japanese) is None


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("BAT001", "global_batch_size=144 is not a multiple of micro_batch_size=1 x DP=96 = 96"),
        ("MOE005", "many experts want a router in higher precision: needs moe_router_dtype set, but model.moe_router_dtype=null"),
        ("PIP001", "num_layers=92 do not split evenly over PP=8: 92 % 8 = 4"),
        ("PIP003", "the pipeline layout is not legal: 16 stages over PP=4 give VP=4, but VP=2 is set"),
        ("PIT002", "PP=4 without virtual stages and 16 microbatches has a bubble of 19% of the compute time; VP=5 makes it 4%"),
        ("PIT002", "PP=16 without virtual stages and 16 microbatches has a bubble of 94% of the compute time"),
        ("PIT003", "EP=8 leaves 64 of 512 experts on each rank"),
        ("PIT004", "a sequence of 16384 tokens without context parallelism"),
        (
            "SCH002",
            "warmup of 512 iters does not end before decay after 50 iters: Bridge caps it there, and the rate never decays",
        ),
    ],
)
def test_the_numbers_are_the_same(rule, message):
    japanese = say_finding(finding(rule, message))
    assert japanese is not None
    assert numbers(japanese) == numbers(message)
    assert ENGLISH.search(japanese) is None


def test_no_finding_of_the_golden_answers_is_english_in_japanese(capsys):
    found = 0
    for line in QUESTIONS.read_text(encoding="utf-8").splitlines():
        words = [word for word in json.loads(line)["args"] if "{here}" not in word]
        execute(["recommend", *words, "--lang", "ja"])
        for shown in capsys.readouterr().out.splitlines():
            if re.search(r"\[[A-Z]{3}\d{3}\]", shown):
                found += 1
                assert ENGLISH.search(shown) is None, shown
    assert found > 5


def test_a_rule_without_a_japanese_sentence_says_so():
    assert say_finding(finding("XYZ001", "something else")) is None
    assert say_finding(finding("PIT004", "worded otherwise")) is None
