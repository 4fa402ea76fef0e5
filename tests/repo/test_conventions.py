"""Conventions that a reader relies on, checked on the tree itself."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src" / "autorecipe").rglob("*.py"))
RATCHET = 600


def tracked(*suffixes):
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.splitlines() if name.endswith(suffixes) and (ROOT / name).exists()]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_source_files_stay_small(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= RATCHET


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_says_what_it_is_for(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_no_catch_all_module_names():
    banned = {"utils.py", "helpers.py", "common.py", "manager.py", "misc.py"}
    assert not [path for path in SOURCES if path.name in banned]


def test_planning_dependencies_pull_no_torch():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    heavy = re.compile(r"^(torch|megatron|transformers|numpy|matplotlib)\b")
    assert not [requirement for requirement in project["dependencies"] if heavy.match(requirement)]


def test_import_layers_hold():
    linter = Path(sys.executable).with_name("lint-imports")
    if not linter.exists():
        pytest.skip("import-linter is not installed")
    result = subprocess.run([str(linter), "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_help_imports_nothing_heavy():
    script = (
        "import sys, autorecipe.cli.main as main\n"
        "code = main.execute(['--help'])\n"
        "heavy = {'torch', 'omegaconf', 'hydra', 'rich', 'numpy', 'yaml', 'matplotlib'} & set(sys.modules)\n"
        "print('HEAVY', sorted(heavy))\n"
        "sys.exit(code)\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=_environment())
    assert result.returncode == 0, result.stderr
    assert "HEAVY []" in result.stdout


def test_every_command_in_the_table_exists_and_helps():
    script = (
        "import click, autorecipe.cli.group as group\n"
        "context = click.Context(group.cli)\n"
        "for name in group.cli.list_commands(context):\n"
        "    command = group.cli.get_command(context, name)\n"
        "    assert command is not None and command.help, name\n"
        "    assert group.COMMANDS[name].short_help, name\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=_environment())
    assert result.returncode == 0, result.stderr


def test_tracked_text_names_no_machine_paths():
    pattern = re.compile(r"/(?:work|root|farm)/|\.library\b")
    offenders = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked(".py", ".md", ".sh", ".toml", ".yaml", ".yml", ".json", ".jsonl", ".csv", ".txt", ".log")
        if path != Path(__file__).resolve()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not offenders


def _environment():
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT / "src")}
