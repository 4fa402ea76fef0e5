"""How adapters start: values that depend on the seed and the layer's name alone, the same on every rank and at every layout."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch

from autorecipe.engine.adapters.settings import AdapterSettings

NORMAL_STD = 0.2
"""Standard deviation of the `normal` start. Source: Megatron Bridge 0.6.2 peft/utils.py."""


@dataclass(frozen=True, kw_only=True)
class Shares:
    """How the rows of a layer's output and the columns of its input are split over the ranks of a group.

    Attributes:
        rank: in the group.
        size: of the group.
        is_row: whether the input is split, and not the output.
        has_gate: whether the output is a gate and an up projection, each split by itself.
    """

    rank: int
    size: int
    is_row: bool
    has_gate: bool

    def cut_down(self, down: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of A, [dim, inputs]."""
        return down.chunk(self.size, dim=1)[self.rank] if self.is_row else down

    def cut_up(self, up: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of B, [outputs, dim], or of any tensor with one row per output."""
        if self.is_row:
            return up
        return torch.cat([part.chunk(self.size)[self.rank] for part in up.chunk(2 if self.has_gate else 1)])


def draw_pair(
    settings: AdapterSettings, name: str, seed: int, *, shape: tuple[int, int], like: torch.Tensor, shares: Shares | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return A and B of a layer, this rank's parts.

    Args:
        settings: the adapter.
        name: full name of the layer over the whole model.
        seed: of the run.
        shape: of the layer's weight on this rank, [outputs, inputs].
        like: decides type and device.
        shares: how the layer is split; None gives whole matrices of a layer of this shape.
    """
    outputs, inputs = shape
    if shares is not None and shares.is_row:
        inputs *= shares.size
    elif shares is not None:
        outputs *= shares.size
    down = draw(settings.a_init, (settings.dim, inputs), f"{seed}|{name}|linear_in")
    up = draw(settings.b_init, (outputs, settings.dim), f"{seed}|{name}|linear_out")
    if shares is not None:
        down, up = shares.cut_down(down), shares.cut_up(up)
    return _place(down, like), _place(up, like)


def draw(method: str, shape: tuple[int, int], key: str) -> torch.Tensor:
    """Return the whole matrix of a key, float32.

    Args:
        method: `xavier` (normal), `kaiming` (uniform, a = sqrt 5), `normal` or `zero`.
        shape: [outputs, inputs].
        key: decides the values.
    """
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:6], "big")
    generator = torch.Generator().manual_seed(number)
    weight = torch.zeros(shape)
    if method == "xavier":
        torch.nn.init.xavier_normal_(weight, generator=generator)
    elif method == "kaiming":
        torch.nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)
    elif method == "normal":
        torch.nn.init.normal_(weight, std=NORMAL_STD, generator=generator)
    return weight


def _place(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return value.to(device=like.device, dtype=like.dtype).contiguous()
