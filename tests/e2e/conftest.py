"""Starts training runs of several ranks; the ranks share one warm process per test session."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

TINY: dict[str, Any] = {
    "model.num_layers": 2,
    "model.hidden_size": 32,
    "model.num_attention_heads": 4,
    "model.ffn_hidden_size": 64,
    "model.num_query_groups": None,
    "model.position_embedding_type": "learned_absolute",
    "model.normalization": "LayerNorm",
    "model.activation_func": "torch.nn.functional:gelu",
    "model.add_bias_linear": True,
    "model.share_embeddings_and_output_weights": True,
    "model.attention_dropout": 0.1,
    "model.hidden_dropout": 0.1,
    "model.seq_length": 64,
    "dataset.seq_length": 64,
    "dataset.random_seed": 1234,
    "tokenizer.tokenizer_type": "NullTokenizer",
    "tokenizer.vocab_size": 256,
    "train.train_iters": 12,
    "train.global_batch_size": 4,
    "train.micro_batch_size": 2,
    "validation.eval_interval": 6,
    "validation.eval_iters": 1,
    "optimizer.lr": 1e-2,
    "optimizer.min_lr": 1e-3,
    "optimizer.adam_beta1": 0.9,
    "optimizer.adam_beta2": 0.95,
    "optimizer.adam_eps": 1e-8,
    "optimizer.clip_grad": 1.0,
    "optimizer.weight_decay": 0.1,
    "ddp.use_distributed_optimizer": True,
    "scheduler.lr_decay_style": "cosine",
    "scheduler.lr_warmup_iters": 2,
    "logger.log_interval": 1,
    "rng.seed": 1234,
}
"""A GPT of 20,000 parameters with dropout, so that resumed generators matter."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended: exit code of each rank, and its log."""

    codes: list[int]
    log: str
    seconds: float


class Trainer:
    """Runs configurations on forked ranks."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def __call__(self, folder: Path, *, ranks: int = 1, values: dict[str, Any] | None = None, **command: Any) -> Outcome:
        """Train in a folder: checkpoints and metrics go there, the log of this run is returned."""
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.glob("log*.txt")))
        log = folder / f"log{number}.txt"
        own = {"checkpoint.save": str(folder / "checkpoints")}
        command.update(ranks=ranks, values={**TINY, **own, **(values or {})}, log=str(log))
        answer = self._ask(command)
        return Outcome(codes=answer["codes"], log=log.read_text(errors="replace"), seconds=answer["seconds"])

    def program(self, words: Sequence[str], *, ranks: int, folder: Path, log: Path) -> Outcome:
        """Run a script on forked ranks, each in a folder, as the process launcher would start it."""
        answer = self._ask({"program": list(words), "ranks": ranks, "folder": str(folder), "log": str(log)})
        return Outcome(codes=answer["codes"], log=log.read_text(errors="replace"), seconds=answer["seconds"])

    def call(self, function: str, request: Any, log: Path) -> dict[str, Any]:
        """Call `module:function` with one request on a forked process; `code`, and `result` or `error`."""
        return self._ask({"call": function, "request": request, "log": str(log)})

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(command), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, "the rank server died"
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def start_trainer() -> Iterator[Trainer]:
    """Start the process that forks ranks."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(Path(__file__).with_name("rank_server.py"))]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None and process.stdin is not None and process.stderr is not None
        ready = process.stdout.readline()
        assert ready, process.stderr.read()
        yield Trainer(process)
        process.stdin.close()


@pytest.fixture(scope="session")
def train_ranks() -> Iterator[Callable[..., Outcome]]:
    """Give a function that trains TINY with changed values on forked ranks."""
    with start_trainer() as trainer:
        yield trainer


def read_trace(folder: Path) -> list[dict[str, Any]]:
    """Return the numbers of a run that must not depend on kills: everything but time."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timing = ("iteration-time", "throughput", "tokens-per-second")
    steps = [row for row in rows if "iteration" in row]
    return [{name: value for name, value in row.items() if name not in timing} for row in steps]
