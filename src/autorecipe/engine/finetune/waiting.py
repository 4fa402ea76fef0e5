"""Lets one process do long work while the others wait without a collective, whose timeout it could outlast."""

from __future__ import annotations

import datetime
import itertools
import pickle
from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from autorecipe.errors import AutorecipeError, InternalError

Result = TypeVar("Result")
PATIENCE = datetime.timedelta(days=2)
"""The launcher ends waiting ranks when the working one dies; this only bounds what nobody ends."""

_numbers = itertools.count()


def let_one_do(work: Callable[[], Result], is_here: Callable[[Result], bool], *, rank: int, local_rank: int) -> Result:
    """Run work on rank 0, and again on the first rank of each machine that does not see its result.

    Args:
        work: returns something small.
        is_here: whether a result can be used on this machine.
        rank: global rank.
        local_rank: rank on this machine.

    Returns:
        the result, on every rank.

    Raises:
        AutorecipeError: what the work raised, on every rank alike.
    """
    store: Any = dist.distributed_c10d._get_default_store()
    name = f"autorecipe/shared/{next(_numbers)}"
    result: Result = _do_or_wait(store, name, work, does=rank == 0)

    def repeat() -> Result:
        return result if is_here(result) else work()

    return _do_or_wait(store, f"{name}/{rank - local_rank}", repeat, does=local_rank == 0)


def _do_or_wait(store: Any, key: str, work: Callable[[], Result], *, does: bool) -> Result:
    if not does:
        store.wait([key], PATIENCE)
        answer = pickle.loads(store.get(key))
        if isinstance(answer, AutorecipeError):
            raise answer
        return answer
    try:
        result = work()
    except AutorecipeError as error:
        store.set(key, pickle.dumps(error))
        raise
    except BaseException as error:
        store.set(key, pickle.dumps(InternalError(f"rank 0 failed: {type(error).__name__}: {error}")))
        raise
    store.set(key, pickle.dumps(result))
    return result
