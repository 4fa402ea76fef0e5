"""The argument lists of the recorded GPU runs, trained here on one process and on two, print what Megatron-LM prints.

tests/golden/mlm_lists.jsonl holds each list of those runs shrunk (two layers, hidden size 64, sequences of 64 tokens, 500 words,
four iterations; every other option as recorded) with what `megatron.training` of Megatron-Core 0.19.2 printed for it on a CPU:
one process, and TP 2 with sequence parallelism. Both layouts start from the recipe's overrides, so the translation decides.
"""

import json
from pathlib import Path

import golden_runs
import pytest
from tests.e2e.conftest import Trainer

import tolerances
from autorecipe.api.train import TrainRequest, prepare_training
from autorecipe.api.translate import MlmSource, to_bridge
from autorecipe.schema.value import UNKNOWN
from autorecipe.translate.render import override_texts

pytestmark = pytest.mark.xdist_group("ranks")

RUNS = [json.loads(line) for line in Path(__file__).parents[1].joinpath("golden", "mlm_lists.jsonl").read_text().splitlines()]
QUICK = {"llama_fp32_np1", "llama_fp32_tp2", "moe_fp32_tp2", "seed_bf16_np1_without_evaluation"}


def parameters():
    for run in RUNS:
        yield pytest.param(run, id=run["name"], marks=() if run["name"] in QUICK else pytest.mark.slow)


@pytest.mark.parametrize("run", parameters())
def test_prints_what_megatron_lm_prints(train_ranks: Trainer, run: dict, tmp_path: Path) -> None:
    translation = to_bridge(MlmSource(words=run["words"]), gpus=run["ranks"])
    assert not translation.lost
    assert not translation.problems
    own = ("checkpoint.save=null", "logger.tensorboard_dir=null")
    overrides = (*override_texts(translation), *own)
    request = TrainRequest(
        recipe=translation.recipe,
        overrides=overrides,
        mode="pretrain",
        dataset="mock",
        world_size=run["ranks"],
        local_world_size=run["ranks"],
    )
    plan = prepare_training(request)
    values = {path: value for path, value in plan.run.values.items() if value is not UNKNOWN}
    outcome = train_ranks(tmp_path, ranks=run["ranks"], values=values)
    assert set(outcome.codes) == {0}, outcome.log
    expected = golden_runs.undo_average([tuple(map(str, line)) for line in run["lines"]])
    actual = golden_runs.read_lines(outcome.log)
    bound = tolerances.MEGATRON_LM_CPU["half" if "--bf16" in run["words"] else "fp32"]
    assert [row[0] for row in actual] == [row[0] for row in expected] == ["1", "2", "3", "4"][: len(expected)]
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours[3] == theirs[3]  # the learning rate as printed
        assert float(ours[1]) == pytest.approx(float(theirs[1]), rel=bound.loss)
        assert float(ours[2]) == pytest.approx(float(theirs[2]), rel=bound.grad_norm)
