"""Runs every case and prints the table of docs/reference/engine-support.md.

`python tests/e2e/parallel/parallel_report.py [words]` runs the cases that contain all the words.
"""

import sys
import time

import parallel_cases as cases
from parallel_server import RankServer


def main(words):
    server = RankServer()
    for title, section in cases.SECTIONS.items():
        chosen = [case for case in section if all(word.lower() in f"{title} {case.name}".lower() for word in words)]
        if not chosen:
            continue
        print(f"\n## {title}\n\n| case | processes | loss | gradient norm |\n|---|---|---|---|")
        for case in chosen:
            started = time.monotonic()
            try:
                loss, norm = server.compare(case)
                cells = f"{loss:.1e} | {norm:.1e}"
            except AssertionError as error:
                cells = f"fails: {str(error).strip().splitlines()[-1]} |"
            print(f"| {case.name} | {case.ranks} | {cells} |", flush=True)
            print(f"{time.monotonic() - started:6.1f} s  {case.name}", file=sys.stderr, flush=True)
    server.close()


if __name__ == "__main__":
    main(sys.argv[1:])
