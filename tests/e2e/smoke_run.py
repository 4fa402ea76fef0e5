"""Two smoke steps of one recipe, as `run_recipe.py --recipe NAME --shrink` would train them. Not a test.

Pretraining reads `--dataset mock`. Fine-tuning keeps the recipe's own data, packing and adapter, and reads local copies of it.
"""

import json
import os
import random
import re
import sys
from pathlib import Path
from typing import Any

from autorecipe.api.mode import infer_mode
from autorecipe.api.train import TrainRequest, prepare_training
from autorecipe.engine.train import TrainOptions, train

ALWAYS = (
    "train.train_iters=2",
    "validation.eval_iters=0",
    "logger.tensorboard_dir=null",
    "logger.wandb_project=null",
)
MOCK = ("dataset.blend=null", "dataset.blend_per_split=null")
ROWS = 60


def write_sets(folder: Path) -> None:
    """Write local copies of the data sets that the library's recipes name, in the hub's columns."""
    source = random.Random(0)
    words = ["".join(source.choices("abcdef", k=source.randint(1, 9))) for _ in range(ROWS)]
    rows = {
        "squad": [{"context": word, "question": "say?", "answers": {"text": [word], "answer_start": [0]}} for word in words],
        "openmathinstruct2": [
            {"problem": f"say {word}", "generated_solution": f"it is \\boxed{{{word}}}", "expected_answer": word}
            for word in words
        ],
        "tulu3": [
            {"messages": [{"role": "user", "content": f"say {word}"}, {"role": "assistant", "content": word}]} for word in words
        ],
    }
    rows["openmathinstruct2_thinking"] = rows["openmathinstruct2"]
    rows["nvidia/Nemotron-Cascade-2-SFT-Data"] = rows["tulu3"]
    for name, given in rows.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in given))


def two_steps(request: dict[str, Any]) -> list[float]:
    """Train a recipe's smoke run, save it, hold `--dry-run`'s count of parameters to the model, and return the losses."""
    recipe, metrics = request["recipe"], Path(request["metrics"])
    mode = request.get("mode") or infer_mode(recipe) or "pretrain"
    pretrains = mode == "pretrain"
    if not pretrains:
        os.environ.update(AUTORECIPE_DATASETS=str(metrics.parent / "sets"), AUTORECIPE_CACHE=str(metrics.parent / "cache"))
        write_sets(metrics.parent / "sets")
    saved = metrics.parent / "checkpoints"  # to be read as well: the recipe's own folder may hold another run's
    own = (*(MOCK if pretrains else ()), *ALWAYS, f"checkpoint.save={saved}", f"checkpoint.load={saved}")
    plan = prepare_training(
        TrainRequest(
            recipe=recipe,
            overrides=(*own, *request.get("overrides", ())),
            mode=mode,
            dataset="mock" if pretrains else None,
            shrink=True,
            check_memory=False,
        )
    )
    code = train(plan.run, TrainOptions(metrics_path=metrics, from_scratch=not pretrains))
    assert code == 0, f"exit code {code}"
    sys.stdout.flush()
    [counted] = re.findall(r"number of parameters on .*: (\d+)", Path(request["log"]).read_text())
    assert int(counted) == plan.stages[0].parameters, f"{counted} parameters, {plan.stages[0].parameters} by --dry-run"
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [row["lm loss"] for row in rows if "lm loss" in row]
