"""Answers to questions that people ask, read by a person before they were committed.

`AUTORECIPE_UPDATE_GOLDEN=1 pytest tests/golden/recommend` writes them anew; read the difference as a user would.
Memory figures and findings of other rules are left out of the comparison: they have tests of their own.
"""

import contextlib
import functools
import io
import json
import os
import re
from pathlib import Path

import pytest

from autorecipe.cli.main import execute

HERE = Path(__file__).parent
QUESTIONS = [json.loads(line) for line in (HERE / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
MAIN = [question for question in QUESTIONS if int(question["id"][:2]) <= 99]


@functools.cache
def run(args):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = execute(["recommend", *args, "--bridge", "0.6.2"])
    return status, out.getvalue(), err.getvalue()


def answer(question, *extra):
    return run(tuple(word.replace("{here}", str(HERE)) for word in question["args"]) + extra)


def compared(text):
    """Mask memory figures, and drop the lines of findings."""
    lines = [line for line in text.splitlines() if not re.match(r"\s+(?:- \S+\[[A-Z]+\d+\]|\+ \d+:)", line)]
    return re.sub(r"\d+\.\d GiB", "N GiB", "\n".join(lines))


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question["id"])
def test_the_answer_is_the_one_that_was_read(question):
    status, out, err = answer(question)
    assert status in (0, 1, 2), err
    shown = f"$ autorecipe recommend {' '.join(question['args'])}\n# exit status {status}\n{out}{err}".replace(
        str(HERE), "{here}"
    )
    path = HERE / "answers" / f"{question['id']}.txt"
    if os.environ.get("AUTORECIPE_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown, encoding="utf-8")
    assert compared(shown) == compared(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("question", MAIN, ids=lambda question: question["id"])
def test_both_languages_carry_the_same_facts(question):
    plain = {"id": question["id"], "args": [word for word in question["args"] if word not in ("--lang", "ja", "en")]}
    english, japanese = (answer(plain, "--lang", lang)[1] for lang in ("en", "ja"))
    assert facts_of(english) == facts_of(japanese)


def facts_of(text):
    """Return every number, path, recipe name, option and command word."""
    found = re.findall(
        r"[A-Za-z_][\w.]*=[\w.,\[\]/-]+|--[a-z-]+|\b[a-z0-9]+(?:_[a-z0-9]+)+\b|\b\d+(?:\.\d+)?(?: GiB)?", compared(text)
    )
    return {fact.rstrip(".,") for fact in found}


COMMAND = re.compile(r"`[^`]*`|'[^']*'|\b(?:uv run|python -m|autorecipe \w+|rm -rf) .*")


@pytest.mark.parametrize("question", MAIN, ids=lambda question: question["id"])
def test_no_sentence_of_a_japanese_answer_is_english(question):
    plain = {"id": question["id"], "args": [word for word in question["args"] if word not in ("--lang", "ja", "en")]}
    _, out, _ = answer(plain, "--lang", "ja")
    prose = [COMMAND.sub("", line) for line in out.splitlines()]
    assert [line for line in prose if re.search(r"(?<![\w./=-])[a-z]{2,}(?: [a-z]{2,}){2,}", line)] == []


@pytest.mark.parametrize("question", MAIN, ids=lambda question: question["id"])
def test_the_checklist_is_in_every_answer(question):
    status, out, _ = answer(question)
    if status == 2 or not out:
        pytest.skip("nothing was answered")
    for number in range(1, 7):
        assert re.search(rf"^  {number}\. ", out, re.MULTILINE)
    for word in ("scripts/training/run_recipe.py", "perf_recipes", "llama3_8b_pretrain_config", "tulu3", "micro_batch_size"):
        assert word in out


@pytest.mark.parametrize("question", MAIN, ids=lambda question: question["id"])
def test_json_has_the_same_pick_and_command(question):
    status, out, _ = answer(question, "--format", "json")
    if status == 2 or not out:
        pytest.skip("nothing was answered")
    for item in json.loads(out)["answers"]:
        assert item["pick"]["name"] in (item["command"] or item["pick"]["name"])
        assert bool(item["command"]) == (item["sizing"]["verdict"] != "does-not-fit")
        assert all(statement["text"] for statement in item["summary"] + item["rules"] + item["checklist"])
        for override in item["overrides"]:
            assert override["layer"] in ("convergence", "execution", "fingerprint", "benchmark_only", "io")


def test_the_published_question_has_its_published_answers():
    published = next(question for question in QUESTIONS if question["id"] == "08-published-four")
    answers = json.loads(answer(published, "--format", "json")[1])["answers"]
    picks = [(item["pick"]["name"], item["dataset"]["preset"]) for item in answers]
    assert picks == [
        ("qwen3_30b_a3b_sft_config", "tulu3"),
        ("qwen3_235b_a22b_peft_config", "tulu3"),
        ("llama3_8b_128k_pretrain_config", "mock"),
        ("llama3_8b_pretrain_config", "mock"),
    ]
    assert [item["sizing"]["num_gpus"] for item in answers] == [16, 16, 64, 8]
    assert answers[1]["sizing"]["data_parallel_size"] == 1
    index = [note["facts"] for note in answers[2]["notes"] if note["code"] == "note.index"]
    assert {"column": "GPUs (min)", "index_value": "16", "code_value": "64"} in index
