"""Packed sequences as a model meets them: boundaries kept on the host, rotation by position.

Megatron-Core asks the GPU for the boundaries again in every layer, twice for the rotation alone, and rotates sequence by
sequence; each question stops the launching of further work. Here both are settled once per micro batch.
Start reading at `describe_packs`.
"""

from __future__ import annotations

import functools
import importlib
import itertools
from typing import Any

import torch

_ROTATING = ("attention", "multi_latent_attention")
"""Modules of megatron.core.transformer that rotate queries and keys."""


def describe_packs(boundaries: torch.Tensor, host: list[int], positions: torch.Tensor) -> Any:
    """Return Megatron-Core's description of packed sequences.

    Args:
        boundaries: where the sequences of the whole row begin and end, int32 [sequences + 1], on the device.
        host: the same numbers.
        positions: of this rank's tokens within their sequences, int64 [tokens], on the device.
    """
    from megatron.core.packed_seq_params import PackedSeqParams

    _rotate_by_position()
    longest = max(end - begin for begin, end in itertools.pairwise(host))
    boundaries.host, boundaries.positions = host, positions
    return PackedSeqParams(
        qkv_format="thd",
        cu_seqlens_q=boundaries,
        cu_seqlens_kv=boundaries,
        max_seqlen_q=longest,
        max_seqlen_kv=longest,
    )


def read_boundaries(packed: Any) -> list[int]:
    """Return where packed sequences begin and end, without asking the device where the host knows."""
    padded = getattr(packed, "cu_seqlens_q_padded", None)
    boundaries = packed.cu_seqlens_q if padded is None else padded
    host: list[int] | None = getattr(boundaries, "host", None)
    return boundaries.tolist() if host is None else host


@functools.cache
def _rotate_by_position() -> None:
    """Make attention rotate packed rows in one piece, through whatever rotates plain rows."""
    for name in _ROTATING:
        module: Any = importlib.import_module(f"megatron.core.transformer.{name}")
        module.apply_rotary_pos_emb = _by_position(module.apply_rotary_pos_emb)


def _by_position(plain: Any) -> Any:
    @functools.wraps(plain)
    def rotate(t: torch.Tensor, freqs: torch.Tensor, config: Any, cu_seqlens: Any = None, *rest: Any, **named: Any) -> Any:
        positions = getattr(cu_seqlens, "positions", None)
        if positions is None or t.dim() != 3 or t.shape[0] != positions.shape[0] or config.apply_rope_fusion:
            return plain(t, freqs, config, cu_seqlens, *rest, **named)
        return plain(t.unsqueeze(1), _angles(freqs, positions), config, None, *rest, **named).squeeze(1)

    return rotate


def _angles(freqs: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return the angles of each token, [tokens, 1, 1, R]; kept with the positions, as every layer asks for them."""
    kept = getattr(positions, "angles", None)
    if kept is None or kept[0] is not freqs:
        kept = positions.angles = (freqs, freqs.index_select(0, positions))
    angles: torch.Tensor = kept[1]
    return angles
