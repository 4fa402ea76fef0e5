"""Kills a 2-process training run with SIGKILL at random moments and resumes it, until so many kills are done.

Prints one row per run: kills survived, iterations done again, and whether every number of its trace (loss, gradient norm,
learning rate, evaluation; full precision) equals the uninterrupted run's. Not a speed measurement.

    python bench/kills.py [--kills 30] [--seed 0]
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.e2e.conftest import read_trace, start_trainer  # noqa: E402
from tests.e2e.test_kill_and_resume import LAYOUT  # noqa: E402


def last_iteration(folder: Path) -> int:
    """Return the last iteration in a trace, 0 where there is none."""
    return max((row["iteration"] for row in read_trace(folder)), default=0) if (folder / "metrics.jsonl").exists() else 0


def main() -> int:
    """Run the kills and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    generator = random.Random(given.seed)
    kills, number, broken = 0, 0, 0
    print(f"{'run':>3}  {'save':>5}  {'kills':>5}  {'iterations done again':>21}  identical")
    with start_trainer() as train, tempfile.TemporaryDirectory() as scratch:
        wholes = {}
        while kills < given.kills:
            asynchronous = number % 2 == 1
            values = {**LAYOUT, "checkpoint.async_save": asynchronous}
            if asynchronous not in wholes:
                folder = Path(scratch) / f"whole-{asynchronous}"
                outcome = train(folder, ranks=2, values=values)
                assert outcome.codes == [0, 0], outcome.log
                wholes[asynchronous] = (read_trace(folder), outcome.seconds)
            trace, seconds = wholes[asynchronous]
            folder = Path(scratch) / f"killed-{number}"
            done, again = 0, 0
            while True:
                before = last_iteration(folder)
                if done < -(-given.kills // 2) and kills + done < given.kills:
                    moment = generator.uniform(0.0, seconds)
                    outcome = train(folder, ranks=2, values=values, signal=int(signal.SIGKILL), signal_at=moment)
                else:
                    outcome = train(folder, ranks=2, values=values)
                resumed = outcome.log.rpartition("RESUMING from ")[2].partition(": iteration ")[2].partition(",")[0]
                again += max(0, before - int(resumed)) if resumed else 0
                if outcome.codes == [0, 0]:
                    break
                assert all(code == -signal.SIGKILL for code in outcome.codes), outcome.log
                done += 1
            same = read_trace(folder) == trace
            broken += not same
            kills += done
            print(f"{number:>3}  {'async' if asynchronous else 'sync':>5}  {done:>5}  {again:>21}  {same}", flush=True)
            number += 1
    print(f"{kills} kills, {number} runs, {number - broken} identical ({(number - broken) / number:.2f} of all)")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
