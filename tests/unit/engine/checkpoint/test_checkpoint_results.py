"""Results reach the rank from itself and from a forked writer, however large, and a writer never waits for a dead rank."""

import os
import queue
import signal
import time

import pytest

from autorecipe.engine.checkpoint import results


def test_results_arrive_from_the_rank_itself() -> None:
    box = results.ResultsQueue()
    box.put({0: ["written"]})
    assert box.get_nowait() == {0: ["written"]}


def test_results_larger_than_a_pipe_arrive_from_a_forked_writer() -> None:
    box = results.ResultsQueue()
    child = os.fork()
    if child == 0:
        box.put({0: "x" * 10_000_000})
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert len(box.get_nowait()[0]) == 10_000_000


def test_a_writer_that_left_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "WAIT_SECONDS", 0.05)
    with pytest.raises(queue.Empty):
        results.ResultsQueue().get_nowait()


def test_a_writer_ends_although_its_rank_was_killed() -> None:
    reader, writer = os.pipe()
    rank = os.fork()
    if rank == 0:
        box = results.ResultsQueue()
        if os.fork() == 0:
            parent = os.getppid()
            os.write(writer, b"begun")
            while os.getppid() == parent:
                time.sleep(0.01)
            box.put("x" * 10_000_000)
            os.write(writer, b"ended")
            os._exit(0)
        time.sleep(60)
    assert os.read(reader, 5) == b"begun"
    os.kill(rank, signal.SIGKILL)
    os.waitpid(rank, 0)
    os.close(writer)
    assert os.read(reader, 5) == b"ended"
    os.close(reader)


def test_a_waiting_writer_leaves_with_its_killed_rank() -> None:
    reader, writer = os.pipe()
    rank = os.fork()
    if rank == 0:
        results._bind_forks(os.getpid())
        if os.fork() == 0:
            os.write(writer, b"begun")
            time.sleep(600)
        time.sleep(600)
    os.close(writer)
    assert os.read(reader, 5) == b"begun"
    os.kill(rank, signal.SIGKILL)
    os.waitpid(rank, 0)
    assert os.read(reader, 5) == b""  # nobody holds the other end any more
    os.close(reader)
