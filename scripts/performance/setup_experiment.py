#!/usr/bin/env python3
"""Benchmark a model by selectors: family, model, task, GPU count and type, precision; sizes and data may be replaced.

    python scripts/performance/setup_experiment.py -m qwen -mr qwen3_30b_a3b --task pretrain -ng 16 -g h100 -c bf16 \
        -a ACCOUNT -p PARTITION -i IMAGE --dryrun

An exact benchmark recipe is taken where one is written for this count; otherwise the nearest count is, and what that means
for the global batch is said. Any override makes the measurement non-canonical. Same code and exit codes as `autorecipe launch`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # this checkout, not one that is installed

from autorecipe.cli.programs.benchmark import run
from autorecipe.cli.programs.submission import run_program

if __name__ == "__main__":
    sys.exit(run_program(run))
