"""Prompts are completed with what training taught: any layout, adapters with their base, and clear refusals."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import Outcome, Trainer

from autorecipe.cli.main import execute
from autorecipe.engine import compat
from autorecipe.engine.data.index import write_index
from autorecipe.engine.data.tokenizer import ByteTokenizer

pytestmark = pytest.mark.xdist_group("ranks")

FUNCTION = "autorecipe.engine.generation.__main__:generate"
STEPS = 30
VALUES: dict[str, Any] = {
    "model.position_embedding_type": "rope",
    "model.normalization": "RMSNorm",
    "model.add_bias_linear": False,
    "model.attention_dropout": 0.0,
    "model.hidden_dropout": 0.0,
    "tokenizer.tokenizer_type": "ByteTokenizer",
    "tokenizer.vocab_size": None,
    "tokenizer.use_tokenizer_vocab_size": True,
    "dataset.split": "1,0,0",
    "train.train_iters": STEPS,
    "train.global_batch_size": 8,
    "scheduler.lr_decay_iters": STEPS,
    "validation.eval_iters": 0,
}


def corpus(folder: Path, name: str, text: str) -> dict[str, Any]:
    compat.prepare()
    source = folder / f"{name}.jsonl"
    source.write_text("".join(json.dumps({"text": text * 50}) + "\n" for _ in range(8)))
    write_index([source], str(folder / name), tokenizer=ByteTokenizer())
    return {"dataset.blend": [[str(folder / name)], None], "dataset.path_to_cache": str(folder / "cache")}


@pytest.fixture(scope="module")
def taught(train_ranks: Callable[..., Outcome], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Give a folder whose model learned one text at TP 2, and one whose adapter learned another on top of it."""
    folder = tmp_path_factory.mktemp("taught")
    layout = {"model.tensor_model_parallel_size": 2, "model.sequence_parallel": True}
    first = train_ranks(folder / "first", ranks=2, values={**VALUES, **layout, **corpus(folder, "one", "abcdefgh")})
    assert first.codes == [0, 0], first.log
    adapter = {"peft._class": "DoRA", "peft.dim": 8, "peft.alpha": 32, "optimizer.lr": 3e-2}
    base = {"checkpoint.pretrained_checkpoint": str(folder / "first" / "checkpoints")}
    second = train_ranks(folder / "second", values={**VALUES, **adapter, **base, **corpus(folder, "two", "ahgfedcb")})
    assert second.codes == [0], second.log
    return folder / "first" / "checkpoints", folder / "second" / "checkpoints"


def ask(train_ranks: Trainer, folder: Path, checkpoint: Path, **request: Any) -> dict[str, Any]:
    given = {"checkpoint": str(checkpoint), "prompts": ["abcdefghabcd"], "limit": 8, **request}
    return train_ranks.call(FUNCTION, given, folder / "log.txt")


def test_a_model_continues_what_it_learned(train_ranks: Trainer, taught: tuple[Path, Path], tmp_path: Path) -> None:
    answer = ask(train_ranks, tmp_path, taught[0])
    assert answer["code"] == 0, answer
    [row] = answer["result"]["completions"]
    assert row["completion"]["text"] == "efghabcd" and row["prompt_tokens"] == 12
    assert not row["completion"]["ended"] and min(row["completion"]["probabilities"]) > 0.3
    assert answer["result"]["iteration"] == STEPS and answer["result"]["adapter"] is None


def test_an_adapter_is_loaded_with_its_base_and_compared_with_it(
    train_ranks: Trainer, taught: tuple[Path, Path], tmp_path: Path
) -> None:
    answer = ask(train_ranks, tmp_path, taught[1], prompts=["abcdefgh", "ahgfedcbahgf"], compare=True)
    assert answer["code"] == 0, answer
    one, two = answer["result"]["completions"]
    assert one["before"]["text"] == "abcdefgh"
    assert two["completion"]["text"] == "edcbahgf"
    assert "DoRA" in answer["result"]["adapter"] and answer["result"]["base"].endswith("iter_0000030")


def test_what_does_not_fit_is_said(train_ranks: Trainer, taught: tuple[Path, Path], tmp_path: Path) -> None:
    empty = ask(train_ranks, tmp_path, tmp_path / "nowhere")
    assert empty["code"] == 3 and "holds no checkpoint of this engine" in empty["error"]
    wrong = ask(train_ranks, tmp_path, taught[0], tokenizer="NullTokenizer", prompts=["", "1 2", "x"])
    assert wrong["code"] == 2 and "NullTokenizer reads numbers only" in wrong["error"]
    void = ask(train_ranks, tmp_path, taught[0], prompts=[""])
    assert void["code"] == 2 and "'' has no token" in void["error"]
    alone = ask(train_ranks, tmp_path, taught[0], compare=True)
    assert alone["code"] == 2 and "does not say which weights it started from" in alone["error"]
    missing = ask(train_ranks, tmp_path, taught[1], base=str(tmp_path / "gone"))
    assert missing["code"] == 3 and "gone" in missing["error"] and "--base" in missing["error"]


def test_learned_positions_bound_the_text(train_ranks: Trainer, tmp_path: Path) -> None:
    values = {"train.train_iters": 1, "scheduler.lr_decay_iters": 3, "validation.eval_iters": 0}
    outcome = train_ranks(tmp_path, values=values)
    assert outcome.codes == [0], outcome.log
    checkpoint = tmp_path / "checkpoints"
    fits = ask(train_ranks, tmp_path, checkpoint, prompts=["1 2 3"], limit=61)
    assert fits["code"] == 0, fits
    assert len(fits["result"]["completions"][0]["completion"]["ids"]) <= 61
    longer = ask(train_ranks, tmp_path, checkpoint, prompts=["1 2 3"], limit=62)
    assert longer["code"] == 2 and "--max-new-tokens 61" in longer["error"]


@pytest.mark.slow
def test_the_command_prints_json(taught: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    command = ["generate", "--checkpoint", str(taught[0]), "--prompt", "abcdefghabcd", "--max-new-tokens", "4"]
    assert execute([*command, "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["completions"][0]["completion"]["text"] == "efgh"
