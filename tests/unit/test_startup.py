"""What a recommendation imports: nothing that is slow to load and not needed for the answer."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {
    "dataclasses",
    "torch",
    "omegaconf",
    "hydra",
    "rich",
    "numpy",
    "yaml",
    "matplotlib",
    "transformers",
    "importlib.metadata",
    "asyncio",
}
QUESTIONS = {
    "recommend": ["recommend", "Llama 3 8B", "--gpus", "8", "--gpu", "h100", "--goal", "pretrain"],
    "first run": ["recommend", "--first-run"],
    "help": ["--help"],
    "help of a command": ["recommend", "--help"],
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_it_imports_nothing_heavy(name: str) -> None:
    program = (
        "import sys\n"
        "from autorecipe.cli.main import execute\n"
        f"code = execute({QUESTIONS[name]!r})\n"
        "print('modules', *sorted(sys.modules), file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    listed = next(line for line in done.stderr.splitlines() if line.startswith("modules"))
    assert "autorecipe.cli.main" in listed.split()
    assert done.stdout
    assert HEAVY & set(listed.split()) == set()


@pytest.mark.parametrize("name", ["recommend", "first run"])
def test_an_answer_needs_no_parser_and_no_paths(name: str) -> None:
    program = f"import sys, autorecipe.cli.main as main; main.execute({QUESTIONS[name]!r}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-X", "utf8", "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert {"click", "inspect", "difflib", "ast", "pathlib"} & loaded == set()
    assert [name for name in loaded if "japanese" in name or name.endswith("_ja")] == []  # an English answer


def test_help_reads_no_catalog_and_no_rules() -> None:
    program = "import sys, autorecipe.cli.main as main; main.execute(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stderr.split() if name.startswith("autorecipe.")}
    assert loaded <= {"autorecipe.cli", "autorecipe.cli.main", "autorecipe.cli.group", "autorecipe.errors", "autorecipe.record"}
