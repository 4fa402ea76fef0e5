import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "switch_mcore.sh"
IDENTITY = {
    "GIT_AUTHOR_NAME": "t",
    "GIT_AUTHOR_EMAIL": "t@t",
    "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@t",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "protocol.file.allow",
    "GIT_CONFIG_VALUE_0": "always",
}


def git(folder, *words):
    environment = dict(os.environ) | IDENTITY
    return subprocess.run(
        ["git", "-C", str(folder), *words], check=True, env=environment, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def outer(tmp_path):
    """A repository with the script and a submodule that has a main and a dev branch."""
    upstream = tmp_path / "megatron"
    upstream.mkdir()
    git(upstream, "init", "-q", "-b", "main")
    for branch, text in (("main", "recorded"), ("main", "newer main"), ("dev", "new feature")):
        if branch == "dev":
            git(upstream, "checkout", "-q", "-b", "dev")
        (upstream / "file").write_text(text)
        git(upstream, "add", "file")
        git(upstream, "commit", "-q", "-m", text)
    git(upstream, "checkout", "-q", "main")
    outer = tmp_path / "outer"
    (outer / "scripts").mkdir(parents=True)
    shutil.copy(SCRIPT, outer / "scripts")
    git(outer, "init", "-q", "-b", "main")
    git(outer, "submodule", "add", "-q", str(upstream), "3rdparty/Megatron-LM")
    git(outer / "3rdparty/Megatron-LM", "checkout", "-q", "HEAD~1")
    git(outer, "add", ".")
    git(outer, "commit", "-q", "-m", "outer")
    return outer


def switch(outer, *words, **variables):
    environment = dict(os.environ) | IDENTITY | variables
    return subprocess.run(
        ["bash", str(outer / "scripts/switch_mcore.sh"), *words], env=environment, capture_output=True, text=True, check=False
    )


def content(outer):
    return (outer / "3rdparty/Megatron-LM/file").read_text()


def test_dev_and_back_to_the_recorded_commit(outer):
    assert switch(outer, "status").stdout.splitlines()[-1] == "on        main (the recorded commit)"
    done = switch(outer, "dev")
    assert (done.returncode, content(outer)) == (0, "new feature")
    assert "without --locked" in done.stdout
    assert switch(outer, "status").stdout.splitlines()[-1] == "on        dev"
    done = switch(outer, "main")
    assert (done.returncode, content(outer)) == (0, "recorded")


def test_a_plain_clone_goes_to_the_main_branch(outer, tmp_path):
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(tmp_path / "megatron"), str(clone))
    done = switch(outer, "main", MCORE_DIR=str(clone))
    assert done.returncode == 0
    assert (clone / "file").read_text() == "newer main"
    assert switch(outer, "status", MCORE_DIR=str(clone)).stdout.splitlines()[-1] == "on        main"


def test_local_edits_stop_a_switch(outer):
    (outer / "3rdparty/Megatron-LM/file").write_text("edited")
    done = switch(outer, "dev")
    assert done.returncode == 1
    assert "never edited" in done.stderr
    assert content(outer) == "edited"


def test_a_missing_checkout_is_an_environment_problem(outer):
    shutil.rmtree(outer / "3rdparty/Megatron-LM")
    (outer / "3rdparty/Megatron-LM").mkdir()
    done = switch(outer, "status")
    assert done.returncode == 3
    assert "git submodule update --init" in done.stderr


@pytest.mark.parametrize("words", [(), ("upstream",)])
def test_another_word_is_a_usage_error(outer, words):
    assert switch(outer, *words).returncode == 2
