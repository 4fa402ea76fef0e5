"""Runs the sides of parity experiments on forked ranks: a second each, where a process group of its own takes ten. Not a test."""

from pathlib import Path
from typing import Any

from autorecipe.errors import NegativeAnswer, Problem
from autorecipe.parity.experiment import SideRun, prepare_folder
from autorecipe.schema.parity import RunOutcome


def forked(trainer: Any) -> Any:
    """Give what stands in for `run_side`: the same folders, log and outcome."""

    def run(side: SideRun, output: Path, *, say: Any, timeout_s: float | None = None) -> RunOutcome:
        folder, log = (output / side.name).absolute(), (output / f"{side.name}.log").absolute()
        prepare_folder(folder, say=say)
        log.write_text("".join(f"# {line}\n" for line in side.header))
        outcome = trainer.program(side.program, ranks=side.processes, folder=folder, log=log)
        if any(outcome.codes):
            raise NegativeAnswer(
                Problem(code="run-failed", path=str(log), message=f"ended with {outcome.codes}\n{outcome.log[-1500:]}")
            )
        return RunOutcome(name=side.name, log=str(log), command=side.program, seconds=outcome.seconds, processes=side.processes)

    return run
