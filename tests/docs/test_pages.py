"""Documentation is executed: every `$ autorecipe ...` line of a `console` block runs, and every relative link leads somewhere.

An HTML comment right before a block changes what is expected: `<!-- exit: 1 -->`, or `<!-- not run: reason -->`.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from autorecipe.cli.main import execute

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"(?:<!--\s*(?P<note>[^>]*?)\s*-->\s*\n)?^```console\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?!https?:|mailto:|#)(?P<target>[^)#\s]+)(?:#[^)]*)?\)")


@dataclass(frozen=True)
class Command:
    page: str
    line: str
    expected: int


def commands():
    found = []
    for page in PAGES:
        for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
            note = block["note"] or ""
            if note.startswith("not run:"):
                continue
            expected = int(note.removeprefix("exit:")) if note.startswith("exit:") else 0
            body = block["body"].replace("\\\n", " ")
            found += [
                Command(str(page.relative_to(ROOT)), line[2:].strip(), expected)
                for line in body.splitlines()
                if line.startswith("$ autorecipe")
            ]
    return found


@pytest.mark.parametrize("command", commands(), ids=lambda command: f"{command.page}: {command.line}"[:100])
def test_documented_command_runs(command, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("AUTORECIPE_DOCS_TMP", str(tmp_path))
    monkeypatch.setenv("AUTORECIPE_CACHE", str(tmp_path / "cache"))
    words = [word.replace("$TMP", str(tmp_path)) for word in shlex.split(command.line, comments=True)]
    code = execute(words[1:])
    printed = capsys.readouterr()
    assert code == command.expected, printed.err or printed.out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page):
    missing = [
        match["target"]
        for match in LINK.finditer(page.read_text(encoding="utf-8"))
        if not (page.parent / match["target"]).exists()
    ]
    assert not missing


def _commands(page: str) -> list[str]:
    """Return the lines of a page's code blocks, without comments and `--lang ja`."""
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line.partition("  #")[0].replace(" --lang ja", "").rstrip() for block in blocks for line in block.splitlines()]


def test_the_japanese_readme_has_the_same_commands() -> None:
    japanese = _commands("README.ja.md")
    assert len(japanese) > 15
    assert japanese == _commands("README.md")
