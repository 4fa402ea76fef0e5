"""The client side of `parallel_ranks.py`: starts it once, sends cases, remembers references."""

import json
import os
import subprocess
import sys
from pathlib import Path

import parallel_models as models

STEPS = 10


class RankServer:
    """Runs cases in forked ranks and compares each with its reference."""

    def __init__(self):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("parallel_ranks.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._remembered = {}

    def run(self, values, ranks, packed=False, steps=STEPS):
        """Train and return `losses` and `norms`; raises with the rank's traceback where one failed."""
        text = json.dumps({"values": values, "ranks": ranks, "packed": packed, "steps": steps}, sort_keys=True)
        if text not in self._remembered:
            self._process.stdin.write(text + "\n")
            self._process.stdin.flush()
            self._remembered[text] = json.loads(self._process.stdout.readline())
        result = self._remembered[text]
        if "error" in result:
            raise AssertionError(result["error"])
        return result

    def compare(self, case):
        """Return the largest difference in loss, and the largest relative difference in gradient norm, over all steps."""
        reference = self.run(models.make_values(case.family, **case.both), 1, packed=case.packed and case.packed_reference)
        actual = self.run(models.make_values(case.family, **{**case.both, **case.only}), case.ranks, packed=case.packed)
        loss = max(abs(a - b) for a, b in zip(actual["losses"], reference["losses"], strict=True))
        norm = max(abs(a - b) / b for a, b in zip(actual["norms"], reference["norms"], strict=True))
        return loss, norm

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=30)
