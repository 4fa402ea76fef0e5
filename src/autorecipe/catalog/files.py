"""Reads and writes the data files: JSON Lines, sorted, one record a line, so that a diff can be read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from autorecipe.errors import EnvironmentProblem, Problem

DATA = Path(__file__).resolve().parent.parent / "data"
"""Data that ships with the package."""


def render_line(record: Mapping[str, Any]) -> str:
    """Render one record as a line of JSON, keys in the given order."""
    return json.dumps(record, ensure_ascii=False, separators=(", ", ": "))


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write records, one a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{render_line(record)}\n" for record in records), encoding="utf-8")


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield records of a file.

    Raises:
        EnvironmentProblem: the file is missing or damaged.
    """
    lines = read_text(path).splitlines()
    try:
        records = json.loads(f"[{','.join(lines)}]")  # one call for all lines is several times as fast as one for each
    except json.JSONDecodeError:
        records = []
    if len(records) == len(lines) and all(isinstance(record, dict) for record in records):
        yield from records
        return
    for number, line in enumerate(lines, start=1):
        yield parse_line(line, path=path, number=number)  # finds the damaged line


class LineTable(Mapping[str, dict[str, Any]]):
    """Records of a file by the value of their first key; each is parsed when it is asked for.

    An answer looks at a few of a thousand records. Later lines of the same name win.

    Args:
        path: file of JSON Lines.
        key: first key of every record.

    Raises:
        EnvironmentProblem: the file is missing, or a line does not start with the key; from a lookup, when its line is damaged.
    """

    def __init__(self, path: Path, key: str) -> None:
        self._path = path
        start = f'{{"{key}": "'
        self._lines: dict[str, tuple[int, str]] = {}
        for number, line in enumerate(read_text(path).splitlines(), start=1):
            end = line.find('"', len(start))
            if not line.startswith(start) or end < 0 or "\\" in (name := line[len(start) : end]):
                name = str(parse_line(line, path=path, number=number).get(key) or "")
                if not name:
                    raise damaged(path, f"line {number}: no {key!r}")
            self._lines[name] = (number, line)

    def __getitem__(self, name: str) -> dict[str, Any]:
        number, line = self._lines[name]
        return parse_line(line, path=self._path, number=number)

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def __contains__(self, name: object) -> bool:
        return name in self._lines


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        EnvironmentProblem: the file is missing or damaged.
    """
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise damaged(path, f"line {error.lineno}: {error.msg}") from None


def read_text(path: Path) -> str:
    """Return the text of a data file.

    Raises:
        EnvironmentProblem: the file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise damaged(path, str(error)) from None


def parse_line(line: str, *, path: Path, number: int) -> dict[str, Any]:
    """Parse one line of a data file."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise damaged(path, f"line {number}: {error.msg}") from None
    if not isinstance(record, dict):
        raise damaged(path, f"line {number}: not an object")
    return record


def damaged(path: Path, why: str) -> EnvironmentProblem:
    """Return the error for a data file that cannot be read."""
    return EnvironmentProblem(
        Problem(
            code="catalog-data",
            path=str(path),
            message=f"the catalog file cannot be read: {why}",
            hint="reinstall autorecipe, or rebuild the release with `autorecipe catalog build --bridge WHEEL --out DIR`",
        )
    )
