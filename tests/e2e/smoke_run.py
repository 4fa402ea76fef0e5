"""Two smoke steps of one recipe, as `run_recipe.py --recipe NAME --dataset mock --shrink` would train them. Not a test."""

import json
from pathlib import Path
from typing import Any

from autorecipe.api.train import TrainRequest, infer_mode, prepare_training
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
    """Train a recipe's smoke run, save it, and return the loss of each step."""
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
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [row["lm loss"] for row in rows if "lm loss" in row]
