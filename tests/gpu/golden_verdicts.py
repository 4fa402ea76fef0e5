"""Runs the golden configurations on this machine's GPU, and prints one verdict a run.

`python tests/gpu/golden_verdicts.py [NAME ...] [engine.KEY=VALUE ...] [--out FOLDER] [--at-once N]`

Each configuration runs plain, with every activation recomputed, stopped half-way and resumed, and with another micro batch size
where that leaves initial weights alone (rotary positions) and no loss belongs to a micro batch (no experts). Lines go to
FOLDER, as NAME__MODULES.txt for the plain runs: the files of tests/golden/losses. Exit code 1 where one is out of bounds.
"""

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

import golden_runs as golden  # noqa: E402

import tolerances  # noqa: E402

RECOMPUTED = {"model.recompute_granularity": "full", "model.recompute_method": "uniform", "model.recompute_num_layers": 1}
MICRO_BATCH = {"llama_fp32": 4, "llama_bf16": 1}
HALF = 5


@dataclass
class Run:
    """One process after another, and what they printed together."""

    name: str
    variant: str
    commands: list
    log: Path
    process: subprocess.Popen | None = None

    def advance(self):
        """Start the next process when the last has ended well; return whether all are done."""
        if self.process is not None and self.process.poll() is None:
            return False
        if not self.commands or (self.process is not None and self.process.returncode):
            return True
        with self.log.open("a") as file:
            self.process = subprocess.Popen(self.commands.pop(0), stdout=file, stderr=subprocess.STDOUT)
        return False


def plan(names, options, out):
    """Return every run of the chosen configurations, the largest first."""
    runs = []
    for name in sorted(names, key=lambda name: not name.startswith("perf")):
        variants = {"plain": {}, "recomputed": RECOMPUTED}
        if name in MICRO_BATCH:
            variants["micro batch"] = {"train.micro_batch_size": MICRO_BATCH[name]}
        for variant, changes in variants.items():
            if not (name.startswith("perf") and variant == "recomputed"):
                runs.append(Run(name, variant, [command(name, changes, options, out)], out / f"{name}__{variant}.log"))
        if not name.startswith("perf"):
            saves = {"checkpoint.save": str(out / f"{name}-checkpoints"), "checkpoint.save_interval": HALF}
            parts = [command(name, {**saves, **stop}, options, out) for stop in ({"train.exit_interval": HALF}, {})]
            runs.append(Run(name, "resumed", parts, out / f"{name}__resumed.log"))
    return runs


def command(name, changes, options, out):
    return golden.command({**golden.RUNS[name], **changes}, options, out / name)


def judge(run):
    """Return (whether the run is within its bound, the verdict's text)."""
    text = run.log.read_text()
    expected = golden.undo_average([tuple(row.split()) for row in golden.read_reference(run.name)])
    actual = golden.read_lines(text)
    counts = {int(count) for count in golden.COUNT.findall(text)}
    problems = []
    if counts != {golden.PARAMETERS[run.name]}:
        problems.append(f"{counts or 'no'} parameters, not {golden.PARAMETERS[run.name]}")
    if [row[0] for row in actual] != [row[0] for row in expected]:
        problems.append(f"iterations {[row[0] for row in actual]}: {text[-300:]!r}")
        return False, "; ".join(problems)
    loss = max(abs(float(a[1]) - float(b[1])) / float(b[1]) for a, b in zip(actual, expected, strict=True))
    norm = max(abs(float(a[2]) - float(b[2])) / float(b[2]) for a, b in zip(actual, expected, strict=True))
    if any(a[3] != b[3] for a, b in zip(actual, expected, strict=True)):
        problems.append("another learning rate")
    bound = tolerances.GOLDEN[golden.bound_name(run.name)]
    if loss > bound.loss or norm > bound.grad_norm:
        problems.append(f"outside {bound.loss:g} and {bound.grad_norm:g}")
    same = sum(a[1:] == b[1:] for a, b in zip(actual, expected, strict=True))
    figures = f"loss {loss:.1e}, gradient norm {norm:.1e} (relative), {same} of {len(actual)} lines the same in every digit"
    return not problems, "; ".join([figures, *problems])


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--out", type=Path, default=Path("golden-out"))
    parser.add_argument("--at-once", type=int, default=8, help="processes side by side: all but the largest are small")
    parsed = parser.parse_args(arguments)
    options = [word for word in parsed.words if "=" in word]
    names = [word for word in parsed.words if "=" not in word] or list(golden.RUNS)
    tag = next((option.split("=")[1] for option in options if option.startswith("engine.modules=")), "own")
    parsed.out.mkdir(parents=True, exist_ok=True)
    waiting, running, failed = plan(names, options, parsed.out), [], 0
    while waiting or running:
        while waiting and len(running) < parsed.at_once:
            running.append(waiting.pop(0))
        for run in [run for run in running if run.advance()]:
            running.remove(run)
            good, text = judge(run)
            failed += not good
            print(f"{'ok ' if good else 'BAD'} {run.name} {tag} {run.variant}: {text}", flush=True)
            if run.variant == "plain":
                (parsed.out / f"{run.name}__{tag}.txt").write_text(golden.render(golden.read_lines(run.log.read_text())))
        time.sleep(0.2)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
