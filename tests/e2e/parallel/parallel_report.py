"""Runs the cases and prints the tables of docs/reference/engine-support.md.

`python tests/e2e/parallel/parallel_report.py [words]` runs the cases that contain all the words; `--write` runs every case and
puts the tables into that page.
"""

import re
import sys
import time
from pathlib import Path

import parallel_cases as cases
from parallel_server import RankServer

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "engine-support.md"
HEAD = "| case | processes | loss | gradient norm |\n|---|---|---|---|\n"


def main(arguments):
    write = "--write" in arguments
    words = [word for word in arguments if word != "--write"]
    if write and words:
        sys.exit("--write runs every case: give no words with it")
    server = RankServer()
    tables = {}
    for title, section in cases.SECTIONS.items():
        chosen = [case for case in section if all(word.lower() in f"{title} {case.name}".lower() for word in words)]
        if chosen:
            print(f"\n## {title}\n\n{HEAD}", end="")
            tables[title] = [measure(server, case) for case in chosen]
    server.close()
    if write:
        PAGE.write_text(put_in(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")


def measure(server, case):
    started = time.monotonic()
    try:
        loss, norm = server.compare(case)
        cells = f"{loss:.1e} | {norm:.1e}"
    except AssertionError as error:
        cells = f"fails: {str(error).strip().splitlines()[-1]} |"
    row = f"| {case.name} | {case.ranks} | {cells} |"
    print(row, flush=True)
    print(f"{time.monotonic() - started:6.1f} s  {case.name}", file=sys.stderr, flush=True)
    return row


def put_in(page, tables):
    """Return the page with its tables replaced, each below the heading of its section."""
    for title, rows in tables.items():
        if any("| fails: " in row for row in rows):
            sys.exit(f"{title}: a case fails; the page is left as it is")
        table = HEAD + "".join(row + "\n" for row in rows)
        heading = f"## {title}\n\n"
        begin = page.index(heading) + len(heading)
        end = re.compile(r"(\|.*\n)+").match(page, begin).end()
        page = page[:begin] + table + page[end:]
    return page


if __name__ == "__main__":
    main(sys.argv[1:])
