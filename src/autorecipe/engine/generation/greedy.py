"""Greedy completion: the likeliest token, again and again.

Every step reads the whole text anew, so any model that trains also generates, with the code that trained it. Made for looking
at what a training did; it is no server. Shapes: S tokens so far, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True)
class Completion:
    """What a model adds to a prompt.

    Attributes:
        ids: new tokens, the end of the text left out.
        ended: whether the model ended its text itself.
        probabilities: of each new token, the end included where there is one.
    """

    ids: tuple[int, ...]
    ended: bool
    probabilities: tuple[float, ...]


@torch.no_grad()
def complete(model: Any, prompt: Sequence[int], *, vocab_size: int, ends: frozenset[int], limit: int) -> Completion:
    """Add the likeliest tokens to a prompt.

    Args:
        model: whole bare GPT model in evaluation mode.
        prompt: ids, at least one.
        vocab_size: ids that may be chosen: the first of the model's, whose last ones may be padding.
        ends: ids that end a text.
        limit: most tokens to add.
    """
    device = next(model.parameters()).device
    text = torch.tensor([list(prompt)], dtype=torch.long, device=device)  # [1, S]
    probabilities: list[float] = []
    for _ in range(limit):
        positions = torch.arange(text.shape[1], device=device)[None]
        logits = model(text, positions, None)[0, -1, :vocab_size].float()  # [V]
        chosen = int(logits.argmax())
        probabilities.append(float(logits.softmax(dim=0)[chosen]))
        if chosen in ends:
            return Completion(ids=tuple(text[0, len(prompt) :].tolist()), ended=True, probabilities=tuple(probabilities))
        text = torch.cat([text, text.new_tensor([[chosen]])], dim=1)
    return Completion(ids=tuple(text[0, len(prompt) :].tolist()), ended=False, probabilities=tuple(probabilities))
