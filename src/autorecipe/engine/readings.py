"""Numbers of a step that the host reads while the GPU still updates parameters.

Losses and the gradient norm are known before the update. Reading them after it would leave the GPU without work until the host
has logged them and started the next step; here the host waits for the moment before the update only. Start reading at `fetch`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

_marked: list[torch.cuda.Event] = []
_streams: list[torch.cuda.Stream] = []


def mark() -> None:
    """Note that what has been launched by now is all that `fetch` must wait for; the first mark of a step holds."""
    if torch.cuda.is_available() and not _marked:
        event = torch.cuda.Event()
        event.record()
        _marked.append(event)


def fetch(values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copy tensors to the host, once the work before the last mark is done (all work, where nothing was marked).

    Args:
        values: tensors that were complete at the mark; those on the host are returned as they are.
    """
    if not any(value.is_cuda for value in values.values()):
        _marked.clear()
        return dict(values)
    mark()
    if not _streams:
        _streams.append(torch.cuda.Stream())
    stream = _streams[0]
    stream.wait_event(_marked.pop())
    with torch.cuda.stream(stream):
        found = {name: value.to("cpu", non_blocking=True) for name, value in values.items()}
    stream.synchronize()
    return found
