"""Weights that are stored in fewer bits, expanded one tensor at a time: blocks of 8-bit numbers, and microscaled 4-bit numbers.

Source: DeepSeek-V3's `weight_scale_inv` (one float32 factor for each block of 128 x 128); OCP microscaling formats 1.0 (16
bytes hold 32 numbers of 4 bits with one exponent of 8 bits), laid out as transformers 5.12 reads them. Evidence: published, and
measured against transformers (tests).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autorecipe.engine.hf.fields import Fields

if TYPE_CHECKING:
    import torch

    from autorecipe.engine.hf.shards import ShardReader

SCALE, BLOCKS, EXPONENTS = "_scale_inv", "_blocks", "_scales"
_FOUR_BITS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def check_quantization(fields: Fields) -> Mapping[str, Any] | None:
    """Return how weights are stored, or None where they are stored as they are; note what is not expanded."""
    found = fields.take("quantization_config")
    if not found:
        return None
    method = found.get("quant_method")
    if method == "fp8" and list(found.get("weight_block_size") or ()) != [128, 128]:
        fields.refuse(f"weight_block_size={found.get('weight_block_size')!r} of 8-bit weights", "only [128, 128] is expanded")
    elif method not in ("fp8", "mxfp4"):
        fields.refuse(f"quantization {method!r}", "only fp8 and mxfp4 are expanded; save the model in bfloat16 first")
    return dict(found)


class SourceTensors:
    """The tensors of a folder as a model has them, expanded where they are stored in fewer bits."""

    def __init__(self, reader: ShardReader, *, dtype: str) -> None:
        """Look at the names.

        Args:
            reader: of the files.
            dtype: that expanded weights get.
        """
        self._reader, self._dtype = reader, dtype
        stored = reader.names
        self.expanded = {name.removesuffix(SCALE) for name in stored if name.endswith(SCALE)}
        self.expanded |= {name.removesuffix(BLOCKS) for name in stored if name.endswith(BLOCKS)}
        extra = {f"{name}{suffix}" for name in self.expanded for suffix in (SCALE, BLOCKS, EXPONENTS)}
        self.names = (stored - extra) | self.expanded
        self._last: tuple[str, torch.Tensor] | None = None

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of one tensor."""
        if name in self._reader.names:
            return self._reader.shape(name)
        experts, rows, *blocks = self._reader.shape(name + BLOCKS)
        return experts, blocks[0] * blocks[1] * 2, rows

    def read(self, name: str) -> torch.Tensor:
        """Return one tensor; the last one is kept, because parameters of experts may share it."""
        if self._last is not None and self._last[0] == name:
            return self._last[1]
        self._last = None
        self._last = name, self._read(name)
        return self._last[1]

    def close(self) -> None:
        """Let the files go."""
        self._last = None
        self._reader.close()

    def _read(self, name: str) -> torch.Tensor:
        import torch

        if name not in self.expanded:
            return self._reader.read(name)
        dtype = getattr(torch, self._dtype)
        if name in self._reader.names:
            return expand_blocks(self._reader.read(name), self._reader.read(name + SCALE)).to(dtype)
        return expand_four_bits(self._reader.read(name + BLOCKS), self._reader.read(name + EXPONENTS)).to(dtype)


def expand_blocks(weight: torch.Tensor, scale: torch.Tensor, size: int = 128) -> torch.Tensor:
    """Return a matrix of 8-bit numbers in float32, each block of size x size multiplied by its factor.

    Args:
        weight: [rows, columns].
        scale: [ceil(rows / size), ceil(columns / size)].
        size: of a block.
    """
    rows, columns = weight.shape
    factors = scale.float().repeat_interleave(size, 0)[:rows].repeat_interleave(size, 1)[:, :columns]
    return weight.float() * factors


def expand_four_bits(blocks: torch.Tensor, exponents: torch.Tensor) -> torch.Tensor:
    """Return stacked matrices of 4-bit numbers in float32, [experts, inputs, outputs].

    Args:
        blocks: two numbers a byte, the lower half first, uint8 [experts, outputs, inputs / 32, 16].
        exponents: of two, 127 added, uint8 [experts, outputs, inputs / 32].
    """
    import torch

    table = torch.tensor([*_FOUR_BITS, *(-value for value in _FOUR_BITS)])
    pairs = torch.stack([table[(blocks & 15).long()], table[(blocks >> 4).long()]], dim=-1).flatten(-2)  # [..., 32]
    whole = torch.ldexp(pairs, exponents.int()[..., None] - 127)
    return whole.flatten(-2).transpose(1, 2).contiguous()
