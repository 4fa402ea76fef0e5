"""Writes checkpoints: sharded, atomic, beside training where asked, and never more than to be kept.

Purpose: a failed save costs a message, not the run; the last good checkpoint stays. Leaves out: when to save (the loop).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial as partial_call
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from autorecipe.engine import compat
from autorecipe.engine.checkpoint import folder, results
from autorecipe.engine.checkpoint.content import build_content, content_bytes, sharding_metadata
from autorecipe.engine.checkpoint.folder import Manifest

SPACE_MARGIN = 1.05
"""Free space wanted above the tensors' own bytes: file headers and metadata."""


@dataclass
class SaveOutcome:
    """How the last save of a run ended.

    Attributes:
        iteration: last iteration that is safely on disk, or None.
        failure: why the last attempt failed; empty after a success.
    """

    iteration: int | None = None
    failure: str = ""


class CheckpointSaver:
    """Saves one run's checkpoints; every method is called by every rank."""

    def __init__(
        self,
        root: Path,
        *,
        keep: int,
        asynchronous: bool,
        with_optimizer: bool,
        with_rng: bool,
        checksums: bool,
        say: Callable[[str], None],
    ) -> None:
        """Prepare.

        Args:
            root: checkpoint folder of the run.
            keep: checkpoints to retain; negative for all.
            asynchronous: write beside training.
            with_optimizer: include the optimizer's state.
            with_rng: include the generators' states.
            checksums: take checksums however large the files are.
            say: prints a line once, on rank 0.
        """
        self.root = root
        self.keep = keep
        self.asynchronous = asynchronous
        self.with_optimizer = with_optimizer
        self.with_rng = with_rng
        self.checksums = checksums
        self.outcome = SaveOutcome()
        self._say = say
        self._queue: Any = None

    def save(self, chunks: Sequence[Any], optimizer: Any, manifest: Manifest) -> bool:
        """Save, or start saving; a failure is reported and leaves earlier checkpoints as they are.

        Returns:
            whether the checkpoint is on disk, or on its way there.
        """
        from megatron.core import dist_checkpointing

        self.finish(blocking=True)
        content = build_content(
            chunks,
            optimizer if self.with_optimizer else None,
            common={"iteration": manifest.iteration, "checkpoint_version": 3.0, "opt_param_scheduler": dict(manifest.scheduler)},
            with_rng=self.with_rng,
            is_loading=False,
        )
        shortage = self._shortage(content)
        if shortage:
            return self._fail(manifest.iteration, shortage)
        partial: Path | None = None
        try:
            partial = self._on_rank_zero(lambda: folder.open_partial(self.root, manifest.iteration))
            metadata = {key: value for key, value in sharding_metadata().items() if key != "dp_cp_group"}
            results.install()
            request = dist_checkpointing.save(
                content,
                str(partial),
                async_sharded_save=self.asynchronous,
                content_metadata=metadata,
                **compat.accepted(dist_checkpointing.save, async_strategy="mcore"),
            )
            if request is None:
                self._publish(partial, manifest)
            else:
                request.add_finalize_fn(partial_call(self._publish, partial, manifest))
                self._async_queue().schedule_async_request(request)
        except Exception as error:  # every rank reaches this: core shares write failures, and _on_rank_zero shares the rest
            self._discard(partial)
            return self._fail(manifest.iteration, _first_line(error))
        return True

    def finish(self, *, blocking: bool) -> None:
        """Complete saves that run beside training; with `blocking`, wait for them."""
        if self._queue is None or self._queue.get_num_unfinalized_calls() == 0:
            return
        try:
            self._queue.maybe_finalize_async_calls(blocking=blocking)
        except Exception as error:  # the writer's own failure, shared by core with every rank
            self._fail(None, _first_line(error))

    def close(self) -> None:
        """Wait for every save and stop the writer."""
        self.finish(blocking=True)
        if self._queue is not None:
            self._queue.close()
            self._queue = None

    def _publish(self, partial: Path, manifest: Manifest) -> None:
        def publish() -> None:
            path = folder.publish(partial, manifest, checksums=self.checksums)
            self._say(f"checkpoint: saved iteration {manifest.iteration} to {path}")
            for name in folder.prune(self.root, keep=self.keep):
                self._say(f"checkpoint: removed {name} (checkpoint.most_recent_k={self.keep})")

        self._on_rank_zero(publish)
        self.outcome = SaveOutcome(iteration=manifest.iteration)

    def _on_rank_zero(self, action: Callable[[], Any]) -> Any:
        """Run an action on rank 0 and return its result on every rank; every rank raises where it failed."""
        answer: list[Any] = [None]
        if dist.get_rank() == 0:
            try:
                answer = [action()]
            except OSError as error:
                answer = [OSError(_first_line(error))]
        dist.broadcast_object_list(answer, src=0)
        if isinstance(answer[0], OSError):
            raise answer[0]
        return answer[0]

    def _shortage(self, content: dict[str, Any]) -> str:
        """Return why a checkpoint cannot fit on the disk; empty where it can. Every rank returns the same."""
        held = torch.tensor([float(content_bytes(content))], dtype=torch.float64, device=_collective_device())
        dist.all_reduce(held, op=dist.ReduceOp.MAX)
        largest = held.item()
        answer: list[str] = [""]
        if dist.get_rank() == 0:
            # Replicas are written once, so the largest rank alone is a lower bound, certain not to refuse what would fit.
            needed, free = largest * SPACE_MARGIN, folder.free_bytes(self.root)
            if needed > free:
                answer = [f"the disk is full: at least {_mib(needed)} are needed and {_mib(free)} are free"]
        dist.broadcast_object_list(answer, src=0)
        return answer[0]

    def _fail(self, iteration: int | None, reason: str) -> bool:
        last = "none yet" if self.outcome.iteration is None else f"iteration {self.outcome.iteration}"
        what = "a checkpoint" if iteration is None else f"iteration {iteration}"
        self.outcome = SaveOutcome(iteration=self.outcome.iteration, failure=reason)
        self._say(
            f"error[checkpoint-save]: {self.root}: {what} was NOT saved: {reason}; the last good checkpoint is {last}; "
            "training goes on\nhint: free space there; the next save tries again"
        )
        return False

    def _discard(self, partial: Path | None) -> None:
        if partial is not None and dist.get_rank() == 0:
            shutil.rmtree(partial, ignore_errors=True)

    def _async_queue(self) -> Any:
        if self._queue is None:
            from megatron.core.dist_checkpointing.strategies.async_utils import AsyncCallsQueue

            self._queue = AsyncCallsQueue()
        return self._queue


def _collective_device() -> torch.device:
    return torch.device("cuda") if dist.get_backend() == "nccl" else torch.device("cpu")


def _mib(size_bytes: float) -> str:
    mib = size_bytes / 1024**2
    return f"{mib:.1f} MiB" if mib < 1024 else f"{mib / 1024:.2f} GiB"


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    if isinstance(error, OSError) and error.errno is not None:
        text = f"{os.strerror(error.errno)} ({error.filename})" if error.filename else os.strerror(error.errno)
    return text.splitlines()[0]
