"""The model of a run without storage: names, shapes, and places in a checkpoint, at the cost of no memory.

Conversions walk over it and stream the tensors. Leaves out: models that compute (`saved`). Start reading at `abstract_model`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from autorecipe.engine import build, parallel
from autorecipe.engine.saved import process_of_one
from autorecipe.errors import InternalError
from autorecipe.schema.run import RunConfig

_META = torch.device("meta")


class _WithoutStorage(TorchFunctionMode):
    """Sends every tensor that is made for a named device to torch's device without storage."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if named.get("device") is not None and func is not torch.Generator:
            named["device"] = _META
        return func(*args, **named)


@contextmanager
def abstract_model(run: RunConfig) -> Iterator[Any]:
    """Build the whole model of a run on this process without storage, and leave the process groups at the end.

    Raises:
        UsageError: a launcher has started several processes, or the engine does not build the model.
    """
    with process_of_one():
        context = dataclasses.replace(parallel.initialize(run, starts_weights=False), device=_META)
        with _META, _WithoutStorage():
            [chunk] = build.build_bare_model(run, context)
        stored = [name for name, tensor in chunk.state_dict().items() if torch.is_tensor(tensor) and not tensor.is_meta]
        if stored:
            raise InternalError(f"tensors with storage in a model without: {', '.join(stored[:3])}")
        yield chunk
