#!/usr/bin/env python3
"""Submit a training experiment: the launcher that Megatron Bridge users already type, on the same code as `autorecipe launch`.

    ./scripts/training/setup_experiment.py --nodes 1 --gpus-per-node 8 --account A --partition P --container-image IMAGE \
        --recipe llama3_8b_pretrain_config --mode pretrain --dataset mock --dry-run

Options of this launcher describe the submission. All other arguments go to scripts/training/run_recipe.py unchanged. Exit codes:
0 submitted (or shown), 1 the recipe does not lie on the allocation or a rule finds an error, 2 usage, 3 no Slurm here.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # this checkout, not one that is installed

from autorecipe.cli.programs.experiment import run
from autorecipe.cli.programs.submission import run_program

if __name__ == "__main__":
    sys.exit(run_program(run))
