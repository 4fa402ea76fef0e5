"""One process works and the others wait, on machines that share a disk and on those that do not. Ranks are forked processes."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from autorecipe.engine.finetune.waiting import let_one_do
from autorecipe.errors import NegativeAnswer

RANKS_PER_MACHINE = 2


@pytest.fixture
def on_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], str], bool], list[str]]:
    """Give a function that lets four ranks of two machines do work, and returns what each has then."""

    def rank_main(rank: int, work: Callable[[int], str], shares_disk: bool, answer: Connection) -> None:
        store = dist.FileStore(str(tmp_path / "store"), 4)
        monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: store)
        local_rank = rank % RANKS_PER_MACHINE

        def is_here(_: str) -> bool:
            return shares_disk or rank < RANKS_PER_MACHINE

        try:
            answer.send(let_one_do(lambda: work(rank), is_here, rank=rank, local_rank=local_rank))
        except Exception as error:
            answer.send(f"{type(error).__name__}: {error}")

    def run(work: Callable[[int], str], shares_disk: bool) -> list[str]:
        context: Any = multiprocessing.get_context("fork")
        pipes = [context.Pipe(duplex=False) for _ in range(4)]
        ranks = [context.Process(target=rank_main, args=(rank, work, shares_disk, pipes[rank][1])) for rank in range(4)]
        for process in ranks:
            process.start()
        answers = [pipe[0].recv() if pipe[0].poll(30) else "nothing" for pipe in pipes]
        for process in ranks:
            process.join(10)
        return answers

    return run


def test_rank_0_works_for_every_machine_that_sees_its_result(on_ranks: Callable[..., list[str]]) -> None:
    assert on_ranks(lambda rank: f"by {rank}", True) == ["by 0"] * 4


def test_a_machine_with_its_own_disk_works_once_more(on_ranks: Callable[..., list[str]]) -> None:
    assert on_ranks(lambda rank: f"by {rank}", False) == ["by 0", "by 0", "by 2", "by 2"]


def test_what_stops_the_worker_stops_everyone(on_ranks: Callable[..., list[str]]) -> None:
    def refuse(rank: int) -> str:
        raise NegativeAnswer(f"bad row, says {rank}")

    answers = on_ranks(refuse, True)
    assert len(set(answers)) == 1 and answers[0].startswith("NegativeAnswer") and "bad row, says 0" in answers[0]


def test_an_unforeseen_end_of_the_worker_is_named_to_those_that_wait(on_ranks: Callable[..., list[str]]) -> None:
    def fail(rank: int) -> str:
        raise OSError(f"disk full on {rank}")

    first, *others = on_ranks(fail, True)
    assert first == "OSError: disk full on 0"
    assert len(set(others)) == 1 and others[0].startswith("InternalError") and "OSError: disk full on 0" in others[0]
