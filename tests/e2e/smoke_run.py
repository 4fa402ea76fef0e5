"""Two smoke steps of one recipe, as `run_recipe.py --recipe NAME --dataset mock --shrink` would train them. Not a test."""

import json
import re
import sys
from pathlib import Path
from typing import Any

from autorecipe.api.mode import infer_mode
from autorecipe.api.train import TrainRequest, prepare_training
from autorecipe.engine.train import TrainOptions, train

SHORT = (
    "dataset.blend=null",
    "dataset.blend_per_split=null",
    "train.train_iters=2",
    "validation.eval_iters=0",
    "logger.tensorboard_dir=null",
    "logger.wandb_project=null",
)


def two_steps(request: dict[str, Any]) -> list[float]:
    """Train a recipe's smoke run, save it, hold `--dry-run`'s count of parameters to the model, and return the losses."""
    recipe, metrics = request["recipe"], Path(request["metrics"])
    plan = prepare_training(
        TrainRequest(
            recipe=recipe,
            overrides=(*SHORT, f"checkpoint.save={metrics.parent}/checkpoints", *request.get("overrides", ())),
            mode=infer_mode(recipe) or "pretrain",
            dataset="mock",
            shrink=True,
            check_memory=False,
        )
    )
    code = train(plan.run, TrainOptions(metrics_path=metrics))
    assert code == 0, f"exit code {code}"
    sys.stdout.flush()
    [counted] = re.findall(r"number of parameters on .*: (\d+)", Path(request["log"]).read_text())
    assert int(counted) == plan.stages[0].parameters, f"{counted} parameters, {plan.stages[0].parameters} by --dry-run"
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [row["lm loss"] for row in rows if "lm loss" in row]
