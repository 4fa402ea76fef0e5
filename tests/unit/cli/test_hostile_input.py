"""Input and surroundings that nobody means: a clear error or an orderly end, never a traceback."""

import io
import os
import subprocess
import sys

import pytest

from autorecipe.cli.main import execute

RECIPE = "llama3_8b_pretrain_config"
BINARY = b"\xff\xfe\x00\x81"
NESTED = b"[" * 100_000
HUGE = "9" * 30
ENDLESS = "9" * 6000  # more digits than Python converts


@pytest.mark.parametrize(
    ("words", "said", "status"),
    [
        (("check", "FILE.yaml", BINARY), "is no text", 3),
        (("check", "FILE.json", NESTED), "cannot be parsed", 2),
        (("config", "diff", RECIPE, "FILE.json", NESTED), "neither JSON nor YAML", 2),
        (("models", "show", "--hf-config", "FILE.json", NESTED), "not JSON", 3),
        (("recommend", "--goal", "sft", "--gpus", "8", "--model", "FILE.json", NESTED), "is no JSON", 2),
        (("estimate", "memory", "--gpus", "8", "--gpu", "h100", "--model", "FILE.json", NESTED), "cannot be read", 3),
        (("check", RECIPE, "--gpus", HUGE), "--gpus", 2),
        (("plan", RECIPE, "--gpus", HUGE), "1000000 at most", 2),
        (("recommend", "qwen3 8b", "--goal", "sft", "--gpus", HUGE), "--gpus", 2),
        (("recommend", "qwen3 8b", "--goal", "sft", "--gpus", ENDLESS), "--gpus", 2),
        (("recommend", f"sft qwen3 8b on {ENDLESS} h100"), "digits", 2),
        (("recommend", "sft qwen3 8b on 8000000 h100"), "no cluster has more", 2),
        (("launch", "local", RECIPE, "--nodes", "900000", "--gpus-per-node", "8"), "1000000 at most", 1),
        (("check", RECIPE, "--core", "banana"), "'banana' is no release", 2),
    ],
)
def test_what_nobody_means_is_named(capsys, tmp_path, words, said, status):
    arguments = [word for word in words if isinstance(word, str)]
    for index, word in enumerate(arguments):
        if word.startswith("FILE."):
            (tmp_path / word).write_bytes(words[-1])
            arguments[index] = str(tmp_path / word)
    assert execute(arguments) == status
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error


@pytest.mark.parametrize("core", ["main", "core_v0.16.1", "d98e8a64", "0.17"])
def test_names_of_releases_are_taken(capsys, core):
    assert execute(["check", RECIPE, "--gpus", "8", "--gpu", "h100", "--core", core]) == 0


class _Pipe(io.StringIO):
    def write(self, text):
        raise BrokenPipeError(32, "Broken pipe")


@pytest.mark.parametrize(
    "words",
    [
        ("recipes", "list"),
        ("explain", "--list"),
        ("recommend", "--first-run"),
        ("plan", RECIPE, "--gpus", "8"),
        ("config", "diff", RECIPE, f"{RECIPE} optimizer.lr=1"),
    ],
)
def test_a_reader_that_goes_away_ends_the_program_quietly_and_not_with_a_yes(monkeypatch, capsys, words):
    monkeypatch.setattr(sys, "stdout", _Pipe())
    assert execute(list(words)) == 141
    assert not capsys.readouterr().err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_the_machine_s_fault():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "autorecipe", "explain", "PAR002"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, "Traceback" in done.stderr) == (3, False)


def test_a_terminal_without_japanese_shows_escapes():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    words = [sys.executable, "-m", "autorecipe", "recommend", "--first-run", "--lang", "ja", "--brief"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "\\u5b66" in done.stdout
