"""Reads and writes the data files: JSON Lines, sorted, one record a line, so that a diff can be read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from autorecipe.errors import EnvironmentProblem, Problem

FilePath: TypeAlias = str | os.PathLike[str]

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
"""Folder of the data that ships with the package. A text: importing `pathlib` takes as long as reading what an answer needs."""


def data_file(name: str) -> str:
    """Return the path of a file that ships with the package."""
    return os.path.join(DATA, name)


def render_line(record: Mapping[str, Any]) -> str:
    """Render one record as a line of JSON, keys in the given order."""
    return json.dumps(record, ensure_ascii=False, separators=(", ", ": "))


def write_lines(path: FilePath, records: Iterable[Mapping[str, Any]]) -> None:
    """Write records, one a line."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{render_line(record)}\n" for record in records)


def read_lines(path: FilePath) -> Iterator[dict[str, Any]]:
    """Yield records of a file.

    Raises:
        EnvironmentProblem: the file is missing or damaged.
    """
    lines = split_lines(read_text(path))
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

    def __init__(self, path: FilePath, key: str) -> None:
        self._path = path
        start = f'{{"{key}": "'
        self._lines: dict[str, tuple[int, str]] = {}
        for number, line in enumerate(split_lines(read_text(path)), start=1):
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


def split_lines(text: str) -> list[str]:
    """Return the lines of a JSON Lines text; separators inside strings, such as U+2028, end no line."""
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return lines


def read_json(path: FilePath) -> Any:
    """Return the content of a JSON file.

    Raises:
        EnvironmentProblem: the file is missing or damaged.
    """
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise damaged(path, f"line {error.lineno}: {error.msg}") from None


def read_text(path: FilePath) -> str:
    """Return the text of a data file.

    Raises:
        EnvironmentProblem: the file cannot be read.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise damaged(path, str(error)) from None


def parse_line(line: str, *, path: FilePath, number: int) -> dict[str, Any]:
    """Parse one line of a data file."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise damaged(path, f"line {number}: {error.msg}") from None
    if not isinstance(record, dict):
        raise damaged(path, f"line {number}: not an object")
    return record


def damaged(path: FilePath, why: str) -> EnvironmentProblem:
    """Return the error for a data file that cannot be read."""
    return EnvironmentProblem(
        Problem(
            code="catalog-data",
            path=os.fspath(path),
            message=f"the catalog file cannot be read: {why}",
            hint="reinstall autorecipe, or rebuild the release with `autorecipe catalog build --bridge WHEEL --out DIR`",
        )
    )
