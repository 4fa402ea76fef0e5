"""A parallel layout and the arithmetic of its two meshes.

Dense and expert meshes lie over the same ranks: TP x CP x DP and ETP x EP x EDP, each times PP. TP and EP are never multiplied.
"""

from __future__ import annotations

import math

from autorecipe.record import dataclass


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Sizes of the parallel axes; 1 means the axis is not used.

    Attributes:
        tp: tensor parallel size.
        pp: pipeline parallel size.
        vp: virtual pipeline stages per pipeline rank (1 = no interleaving).
        cp: context parallel size.
        ep: expert parallel size.
        etp: expert tensor parallel size.
        sequence_parallel: whether activations outside TP regions are split along the sequence.
    """

    tp: int = 1
    pp: int = 1
    vp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    sequence_parallel: bool = False

    @property
    def dense_model_parallel_size(self) -> int:
        """Ranks that hold one dense replica: TP x PP x CP."""
        return self.tp * self.pp * self.cp

    @property
    def expert_model_parallel_size(self) -> int:
        """Ranks that hold one expert replica: PP x EP x ETP."""
        return self.pp * self.ep * self.etp

    @property
    def minimum_world_size(self) -> int:
        """Smallest world that both meshes divide.

        Formula: PP x lcm(TP x CP, EP x ETP), which is PP x max(...) whenever one divides the other.
        Source: Megatron-LM megatron/core/parallel_state.py (both rank generators must cover the world).
        Evidence: enforced-upstream.
        """
        return self.pp * math.lcm(self.tp * self.cp, self.ep * self.etp)

    def fits_world(self, world_size: int) -> bool:
        """Return whether both data-parallel quotients are whole."""
        return (
            world_size > 0
            and world_size % self.dense_model_parallel_size == 0
            and world_size % self.expert_model_parallel_size == 0
        )

    def data_parallel_size(self, world_size: int) -> int:
        """Return dense DP = world / (TP x PP x CP); call `fits_world` first."""
        return world_size // self.dense_model_parallel_size

    def expert_data_parallel_size(self, world_size: int) -> int:
        """Return expert DP = world / (PP x EP x ETP); call `fits_world` first."""
        return world_size // self.expert_model_parallel_size

    def render(self) -> str:
        """Render as `TP2 PP4 VP2 CP1 EP8 ETP1 SP`, with VP and the expert axes only where used."""
        parts = [f"TP{self.tp}", f"PP{self.pp}"]
        if self.vp > 1:
            parts.append(f"VP{self.vp}")
        parts.append(f"CP{self.cp}")
        if self.ep > 1 or self.etp > 1:
            parts += [f"EP{self.ep}", f"ETP{self.etp}"]
        if self.sequence_parallel:
            parts.append("SP")
        return " ".join(parts)
