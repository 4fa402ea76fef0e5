"""Core attention on torch's scaled dot product: grouped queries, windows, packed sequences, context parallelism.

Shapes: S local sequence, T whole sequence, B batch, H query heads, G key/value heads, D head size, DV value head size; packed
inputs have no batch dimension. A `Span` says which local query rows attend to which key rows; within a span the last query
row is aligned with the last key row. Everything (plain, packed, context parallel) is a list of spans.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import get_cuda_rng_tracker
from megatron.core.tensor_parallel.layers import set_tensor_model_parallel_attributes
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.utils import is_layer_window_attention, make_sharded_tensors_for_checkpoint
from torch.nn.attention import SDPBackend, sdpa_kernel

from autorecipe.engine.modules.context import exchange_heads, gather_sequence, return_heads, zigzag_order
from autorecipe.engine.modules.packing import read_boundaries

_FALLBACKS = (SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)
_PREFERENCES = {
    "cudnn": (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, *_FALLBACKS),
    "flash": (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, *_FALLBACKS),
}


@dataclass(frozen=True, kw_only=True)
class Span:
    """Query rows [q_start, q_end) attend to key rows [k_start, k_end)."""

    q_start: int
    q_end: int
    k_start: int
    k_end: int


class SdpaAttention(MegatronModule):
    """Attention of one layer without its projections.

    Args:
        config: transformer configuration.
        layer_number: counted from 1.
        attn_mask_type: Megatron-Core's mask type; `causal` for decoders.
        attention_type: unused, kept for the interface.
        attention_dropout: probability; the configuration's where None.
        softmax_scale: factor on the scores; 1/sqrt(D) where None.
        cp_comm_type: how context-parallel ranks exchange: `a2a` over heads, everything else gathers keys and values.
        pg_collection: process groups.
    """

    def __init__(
        self,
        config: Any,
        layer_number: int,
        attn_mask_type: Any,
        attention_type: str,
        attention_dropout: float | None = None,
        softmax_scale: float | None = None,
        cp_comm_type: str | None = None,
        pg_collection: Any = None,
        **_: Any,
    ) -> None:
        super().__init__(config=config)
        self.attn_mask_type = attn_mask_type
        self.dropout = config.attention_dropout if attention_dropout is None else attention_dropout
        self.scale = softmax_scale
        has_window = is_layer_window_attention(config.window_size, config.window_attn_skip_freq, max(1, layer_number))
        self.window: tuple[int, int] | None = tuple(config.window_size) if has_window else None
        self.cp_group = _context_group(config, pg_collection)
        self.exchanges_heads = cp_comm_type == "a2a"
        self.kernel = getattr(config, "attention_kernel", "auto")
        self.softmax_offset = _make_sinks(config)
        variant = getattr(config, "variant", None)
        self.cap: float | None = None if variant is None else variant.attention_cap
        self.current_max_attn_logits = None

    def forward(
        self,
        query: torch.Tensor,  # [S, B, H, D] or packed [S, H, D]
        key: torch.Tensor,  # [S, B, G, D]
        value: torch.Tensor,  # [S, B, G, DV]
        attention_mask: torch.Tensor | None = None,  # [B or 1, 1, S, T], True where attention is forbidden
        attn_mask_type: Any = None,
        attention_bias: torch.Tensor | None = None,
        packed_seq_params: Any = None,
    ) -> torch.Tensor:
        """Return the attended values, [S, B, H x DV] (packed: [S, H x DV])."""
        causal = "causal" in (attn_mask_type or self.attn_mask_type).name
        packed = query.dim() == 3
        if packed:
            query, key, value = (tensor.unsqueeze(1) for tensor in (query, key, value))
        boundaries = _boundaries(packed_seq_params, query.shape[0], self.cp_size)
        if self.cp_group is None:
            spans = list(_whole_spans(boundaries))
            output = self._attend(query, key, value, spans, causal, attention_mask, self.softmax_offset)
        elif self.exchanges_heads:
            output = self._attend_exchanged(query, key, value, boundaries, causal)
        else:
            order = zigzag_order(boundaries, self.cp_size, query.device)
            key = gather_sequence(key, self.cp_group, order)  # [T, B, G, D]
            value = gather_sequence(value, self.cp_group, order)
            spans = list(_zigzag_spans(boundaries, self.cp_size, self.cp_group.rank()))
            output = self._attend(query, key, value, spans, causal, attention_mask, self.softmax_offset)
        output = output.flatten(2)
        return output.squeeze(1) if packed else output

    def sharded_state_dict(self, prefix: str = "", sharded_offsets: Any = (), metadata: Any = None) -> Any:
        """Describe the learned sinks to a checkpoint, split by heads; nothing else here is learned."""
        learned = {"softmax_offset": self.softmax_offset} if isinstance(self.softmax_offset, torch.nn.Parameter) else {}
        return make_sharded_tensors_for_checkpoint(learned, prefix, {"softmax_offset": 0}, sharded_offsets)

    @property
    def cp_size(self) -> int:
        """Number of context-parallel ranks."""
        return 1 if self.cp_group is None else int(self.cp_group.size())

    def _attend_exchanged(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, boundaries: list[int], causal: bool
    ) -> torch.Tensor:
        """Trade heads for sequence: every rank sees the whole sequence of H / CP heads."""
        size = self.cp_size
        if key.shape[2] % size:  # fewer key/value heads than ranks: repeat them until each rank has one
            times = size // math.gcd(key.shape[2], size)
            key, value = (tensor.repeat_interleave(times, 2) for tensor in (key, value))
        order = zigzag_order(boundaries, size, query.device)
        query, key, value = (exchange_heads(tensor, self.cp_group, order) for tensor in (query, key, value))
        sinks = None if self.softmax_offset is None else self.softmax_offset.chunk(size)[self.cp_group.rank()]
        output = self._attend(query, key, value, list(_whole_spans(boundaries)), causal, None, sinks)
        return return_heads(output, self.cp_group, order)

    def _attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        spans: list[Span],
        causal: bool,
        mask: torch.Tensor | None,
        sinks: torch.Tensor | None,  # [H]
    ) -> torch.Tensor:
        """Attend span by span; [S, B, H, DV]."""
        query, key, value = (tensor.permute(1, 2, 0, 3) for tensor in (query, key, value))  # [B, H, S, D]
        with self._dropout_state(), self._kernel_choice(query):
            parts = [self._attend_span(query, key, value, span, causal, mask, sinks) for span in spans]
        output = parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
        missing = query.shape[2] - output.shape[2]  # padding after the last packed sequence
        if missing:
            output = F.pad(output, (0, 0, 0, missing))
        return output.permute(2, 0, 1, 3)

    def _attend_span(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        span: Span,
        causal: bool,
        mask: torch.Tensor | None,
        sinks: torch.Tensor | None,
    ) -> torch.Tensor:
        rows, columns = span.q_end - span.q_start, span.k_end - span.k_start
        q = query[:, :, span.q_start : span.q_end]
        k, v = key[:, :, span.k_start : span.k_end], value[:, :, span.k_start : span.k_end]
        grouped = q.shape[1] != k.shape[1]
        dropout = self.dropout if self.training else 0.0
        is_square = rows == columns
        if mask is not None:
            allowed: Any = ~mask[:, :, span.q_start : span.q_end, span.k_start : span.k_end]
            if self.window is not None:
                allowed = allowed & _allowed(rows, columns, causal, self.window, q.device)
        elif self.window is not None or (causal and not is_square and not q.is_cuda):
            allowed = _allowed(rows, columns, causal, self.window, q.device)
        elif causal and not is_square:
            from torch.nn.attention.bias import causal_lower_right

            allowed = causal_lower_right(rows, columns)
        else:
            allowed = None
        if sinks is not None:
            if not torch.is_tensor(allowed):
                allowed = _allowed(rows, columns, causal, None, q.device)
            k, v, allowed = _add_sinks(k, v, allowed, sinks)
        if self.cap is not None:
            if not torch.is_tensor(allowed):
                allowed = _allowed(rows, columns, causal, None, q.device)
            scale = q.shape[-1] ** -0.5 if self.scale is None else self.scale
            return attend_capped(q, k, v, allowed, scale=scale, limit=self.cap, dropout=dropout)
        return F.scaled_dot_product_attention(
            q, k, v, allowed, dropout, is_causal=causal and allowed is None, scale=self.scale, enable_gqa=grouped
        )

    def _kernel_choice(self, query: torch.Tensor) -> AbstractContextManager[None]:
        """Prefer one implementation on CUDA; the others stay allowed where it cannot serve a shape."""
        preferred = _PREFERENCES.get(self.kernel)
        if preferred is None or not query.is_cuda:
            return nullcontext()
        chosen: AbstractContextManager[None] = sdpa_kernel(list(preferred), set_priority=True)
        return chosen

    def _dropout_state(self) -> AbstractContextManager[None]:
        """Draw dropout from the model-parallel generator; under sequence parallelism the whole block does already."""
        if self.training and self.dropout and not self.config.sequence_parallel:
            fork: AbstractContextManager[None] = get_cuda_rng_tracker().fork()
            return fork
        return nullcontext()


def _make_sinks(config: Any) -> torch.Tensor | None:
    """Return what joins each head's softmax denominator beside the keys' scores, [local heads], or None.

    Zeros where it is fixed (`off-by-one`), a parameter where it is learned. It is drawn as Megatron-Core's own attention
    draws it, so initial weights agree; it is marked as split over tensor-parallel ranks, so that norms count each head.
    """
    if config.softmax_type == "vanilla":
        return None
    device = torch.device("cpu") if config.use_cpu_initialization else torch.cuda.current_device()
    heads = config.num_attention_heads // config.tensor_model_parallel_size
    values = torch.zeros(heads, device=device, dtype=config.params_dtype)
    if config.softmax_type == "off-by-one":
        return values
    sinks = torch.nn.Parameter(values)
    if config.perform_initialization:
        config.init_method(sinks)
    set_tensor_model_parallel_attributes(sinks, True, 0, 1)
    return sinks


def attend_capped(
    query: torch.Tensor,  # [B, H, S, D]
    key: torch.Tensor,  # [B, G, T, D]
    value: torch.Tensor,  # [B, G, T, DV]
    allowed: torch.Tensor,  # [..., S, T]
    *,
    scale: float,
    limit: float,
    dropout: float = 0.0,
) -> torch.Tensor:
    """Attend with scores limit x tanh(score / limit), [B, H, S, DV]; torch's own attention has no such cap.

    The scores of a layer lie in memory whole: S x T numbers for each head.
    Source: transformers 5.12, Gemma2Attention. Evidence: measured (equal logits).
    """
    times = query.shape[1] // key.shape[1]
    if times > 1:
        key, value = (tensor.repeat_interleave(times, 1) for tensor in (key, value))
    scores = torch.tanh(query @ key.transpose(-1, -2) * (scale / limit)) * limit
    weights = torch.softmax(scores.masked_fill(~allowed, -torch.inf), dim=-1, dtype=torch.float32).to(query.dtype)
    return F.dropout(weights, dropout) @ value


def _add_sinks(
    key: torch.Tensor,  # [B, G, T, D]
    value: torch.Tensor,  # [B, G, T, DV]
    allowed: torch.Tensor,  # [..., S, T]
    sinks: torch.Tensor,  # [H]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Add a key without content whose score is the sink: it takes its share of the softmax and gives nothing."""
    scores = torch.zeros(allowed.shape, dtype=key.dtype, device=key.device).masked_fill(~allowed, -torch.inf)
    while scores.dim() < 4:
        scores = scores.unsqueeze(0)
    heads = sinks.shape[0]
    scores = scores.expand(scores.shape[0], heads, *scores.shape[2:])
    column = sinks.to(key.dtype).view(1, heads, 1, 1).expand(scores.shape[0], heads, scores.shape[2], 1)
    return F.pad(key, (0, 0, 0, 1)), F.pad(value, (0, 0, 0, 1)), torch.cat([scores, column], dim=3)


def _context_group(config: Any, groups: Any) -> Any:
    if config.context_parallel_size == 1:
        return None
    group = getattr(groups, "cp", None)
    return group if group is not None else parallel_state.get_context_parallel_group()


def _boundaries(packed: Any, local_length: int, cp_size: int) -> list[int]:
    """Return where the sequences begin and end in the whole (gathered) row, [number of sequences + 1]."""
    if packed is None or packed.cu_seqlens_q is None:
        return [0, local_length * cp_size]
    return sorted(set(read_boundaries(packed)))


def _whole_spans(boundaries: list[int]) -> Iterator[Span]:
    for start, end in itertools.pairwise(boundaries):
        yield Span(q_start=start, q_end=end, k_start=start, k_end=end)


def _zigzag_spans(boundaries: list[int], cp_size: int, rank: int) -> Iterator[Span]:
    """Yield two spans per sequence: this rank holds chunk `rank` and chunk `2 x cp_size - 1 - rank` of each."""
    at = 0
    for start, end in itertools.pairwise(boundaries):
        chunk = (end - start) // (2 * cp_size)
        for index in (rank, 2 * cp_size - 1 - rank):
            yield Span(q_start=at, q_end=at + chunk, k_start=start, k_end=start + (index + 1) * chunk)
            at += chunk


def _allowed(rows: int, columns: int, causal: bool, window: tuple[int, int] | None, device: torch.device) -> torch.Tensor:
    """Return where attention is allowed, [rows, columns], the last row aligned with the last column."""
    distance = torch.arange(columns - rows, columns, device=device)[:, None] - torch.arange(columns, device=device)[None]
    allowed = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    if window is not None:
        left, right = window
        allowed = allowed & (distance <= left) if left >= 0 else allowed
        allowed = allowed & (distance >= -right) if right >= 0 else allowed
    return allowed
