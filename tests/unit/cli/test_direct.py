"""A plain line is read alike with and without click; what is not plain is left to click."""

from __future__ import annotations

import io
import sys
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autorecipe.cli.direct import OPTIONS, read_directly
from autorecipe.cli.main import execute
from autorecipe.cli.recommend import recommend


def read_by_click(words: list[str]) -> dict[str, Any]:
    return recommend.make_context("recommend", list(words)).params


@pytest.fixture(autouse=True)
def utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    monkeypatch.delenv("_AUTORECIPE_COMPLETE", raising=False)


values = st.sampled_from(
    [
        "8",
        "0",
        "-1",
        "+8",
        " 8",
        "1_000",
        "٣",
        "h100",
        "sft",
        "pretrain",
        "SFT",
        "ja",
        "json",
        "",
        "--",
        "-",
        "--gpus",
        "x=y",
        "-h",
        "a b",
    ]
)
flags = st.sampled_from([option.flag for option in OPTIONS] + ["--gpuz", "--model-x", "-V", "--help", "-h", "--"])
words = st.one_of(flags, values, st.builds("{}={}".format, flags, values), st.text(max_size=6))


@settings(max_examples=400, deadline=None)
@given(st.lists(words, max_size=6))
def test_what_is_read_directly_is_what_click_reads(line: list[str]) -> None:
    read = read_directly(line)
    if read is not None:
        assert read == read_by_click(line)


@pytest.mark.parametrize(
    "line",
    [
        ["Llama 3 8B", "--gpus", "8", "--gpu", "h100", "--goal", "pretrain"],
        ["--first-run"],
        ["qwen3", "8b", "--lang=ja", "--brief", "--format", "json", "--seq-length=8192"],
        ["--bridge", "0.5", "--dataset", "squad", "x", "--gpus", "4", "--gpus", "8"],
    ],
)
def test_plain_lines_are_read(line: list[str]) -> None:
    assert read_directly(line) == read_by_click(line)


@pytest.mark.parametrize(
    "line",
    [
        [],
        ["--help"],
        ["-h"],
        ["x", "--gpus"],
        ["x", "--gpus", "0"],
        ["x", "--goal", "train"],
        ["x", "--gpux", "8"],
        ["--", "x"],
        ["--brief=1"],
    ],
)
def test_the_rest_is_left_to_click(line: list[str]) -> None:
    assert read_directly(line) is None


def test_completion_and_odd_terminals_are_left_to_click(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_directly(["x"]) is not None
    monkeypatch.setenv("_AUTORECIPE_COMPLETE", "bash_source")
    assert read_directly(["x"]) is None
    monkeypatch.delenv("_AUTORECIPE_COMPLETE")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert read_directly(["x"]) is None


def test_mistakes_are_told_as_click_tells_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["recommend", "x", "--gpus", "0"]) == 2
    assert "0 is not in the range x>=1" in capsys.readouterr().err
    assert execute(["recommend", "x", "--gpuss", "8"]) == 2
    assert "--gpus" in capsys.readouterr().err


def test_every_option_is_declared_once() -> None:
    declared = [param.opts[0] for param in recommend.params if isinstance(param, click.Option)]
    assert declared == [option.flag for option in OPTIONS]
