"""Each parallelism and each architecture variant trains like one process: ten steps, same initial weights, same data."""

import re
from pathlib import Path

import parallel_cases
import pytest

import tolerances

DOCS = Path(__file__).resolve().parents[3] / "docs" / "reference" / "engine-support.md"


@pytest.mark.parametrize("case", parallel_cases.ALL, ids=lambda case: case.name)
def test_trains_like_the_reference(rank_server, case):
    loss, norm = rank_server.compare(case)
    bound = tolerances.TRAINING[case.bound]
    assert loss <= bound.loss
    assert norm <= bound.grad_norm


def test_names_are_unique():
    names = [case.name for case in parallel_cases.ALL]
    assert len(set(names)) == len(names)


def test_the_reference_page_lists_every_case():
    rows = re.findall(r"^\| (.+?) \| \d+ \|", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert rows == [case.name for case in parallel_cases.ALL]


def test_a_wrong_layer_is_noticed(rank_server):
    """The bounds are tight enough: another rotary base, which changes little, is far outside."""
    case = parallel_cases.case("another rotary base", 1, rotary_base=20000)
    loss, _ = rank_server.compare(case)
    assert loss > 10 * tolerances.TRAINING["fp32"].loss
