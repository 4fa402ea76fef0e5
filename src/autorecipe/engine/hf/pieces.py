"""Which Hugging Face tensors make which parameter of this engine's model, and how. No torch until a tensor is converted.

The model is whole here: one process, no parallelism, one module per expert. Layouts are the distributed checkpoint's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Stacked:
    """Where one expert's matrix or vector lies in a tensor that stacks all experts of a layer.

    Attributes:
        expert: its number.
        count: experts of the layer.
        is_transposed: whether matrices are stored as [inputs, outputs].
        alternates: whether gate and up rows alternate (gate, up, gate, up ...) where the parameter has all gates first.
    """

    expert: int
    count: int
    is_transposed: bool = False
    alternates: bool = False


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One parameter.

    Attributes:
        name: in this engine's model.
        sources: names of the Hugging Face tensors, in order; rows of several are laid end to end.
        rows: rows of each of its parts (query, key and value; gate and up), where it has several.
        groups: query groups where the parts are interleaved group by group; 0 where their rows are laid end to end.
        stacked: set where the one source holds all experts of a layer.
        padding: rows of zeros that the parameter has after those of its sources.
    """

    name: str
    sources: tuple[str, ...]
    rows: tuple[int, ...] = ()
    groups: int = 0
    stacked: Stacked | None = None
    padding: int = 0

    def join(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the parameter of its Hugging Face tensors."""
        import torch

        if self.stacked is not None:
            return _unstack(tensors[0], self.stacked)
        whole = tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))
        if self.padding:
            return torch.cat([whole, whole.new_zeros((self.padding, *whole.shape[1:]))])
        if not self.groups:
            return whole
        parts = [part.reshape(self.groups, -1, *part.shape[1:]) for part in whole.split(list(self.rows))]
        return torch.cat(parts, dim=1).reshape(-1, *whole.shape[1:])

    def split(self, parameter: torch.Tensor) -> list[torch.Tensor]:
        """Return the Hugging Face tensors of the parameter, or of anything that has one row per row of it.

        A stacked piece gives its expert's share; `stack` puts the shares of all together.
        """
        import torch

        if self.stacked is not None:
            return [_restack(parameter, self.stacked)]
        whole = parameter[: -self.padding] if self.padding else parameter
        if self.groups:
            grouped = parameter.reshape(self.groups, -1, *parameter.shape[1:])
            parts = grouped.split([count // self.groups for count in self.rows], dim=1)
            whole = torch.cat([part.reshape(-1, *parameter.shape[1:]) for part in parts])
        return [whole] if len(self.sources) == 1 else list(whole.split(list(self.rows)))


def stack(shares: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the tensor that stacks the shares of all experts of a layer."""
    import torch

    return torch.stack(list(shares))


def _unstack(tensor: torch.Tensor, place: Stacked) -> torch.Tensor:
    import torch

    own = tensor[place.expert]
    own = own.t() if place.is_transposed else own
    return torch.cat([own[0::2], own[1::2]]) if place.alternates else own.contiguous()


def _restack(parameter: torch.Tensor, place: Stacked) -> torch.Tensor:
    import torch

    own = parameter
    if place.alternates:
        gate, up = parameter.chunk(2)
        own = torch.stack([gate, up], dim=1).flatten(0, 1)
    return own.t().contiguous() if place.is_transposed else own
