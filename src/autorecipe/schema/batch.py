"""Batch sizes and their arithmetic: GBS = MBS x DP x accumulation."""

from __future__ import annotations

from autorecipe.record import dataclass


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What one optimizer step consumes.

    Attributes:
        global_batch_size: samples per optimizer step; decides the training.
        micro_batch_size: samples per forward pass on one data-parallel rank.
        seq_length: tokens per sample.
    """

    global_batch_size: int
    micro_batch_size: int
    seq_length: int

    def divides(self, data_parallel_size: int) -> bool:
        """Return whether accumulation would be a whole number."""
        return self.global_batch_size % (self.micro_batch_size * data_parallel_size) == 0

    def num_microbatches(self, data_parallel_size: int) -> int:
        """Return gradient accumulation steps = GBS / (MBS x DP); call `divides` first."""
        return self.global_batch_size // (self.micro_batch_size * data_parallel_size)

    @property
    def tokens_per_step(self) -> int:
        """Tokens in one optimizer step: GBS x sequence length."""
        return self.global_batch_size * self.seq_length
