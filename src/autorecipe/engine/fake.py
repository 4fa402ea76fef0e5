"""Megatron-Core without devices and without data: a fake process group, fake tensors, and a count of their live bytes.

Fake tensors have shapes and no storage, so a rank of any layout can be built and stepped in one process on a laptop. What
depends on data (routing, loss scaling, gradient norms) takes the value of an even run. Every replacement below is for this
process alone, which traces and exits. Start reading at `prepare_fakes`.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of live fake storages: now, and at most since `reset_peak`."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.peak = 0
        self._sizes: dict[int, int] = {}
        _follow_resizes(self)

    def resized(self, storage: Any) -> None:
        """Note a storage's new size: recomputed outputs are emptied and filled again in place."""
        key = storage._cdata
        if key not in self._sizes:
            return
        size = storage.nbytes()
        self.now += size - self._sizes[key]
        self._sizes[key] = size
        self.peak = max(self.peak, self.now)

    def reset_peak(self) -> None:
        """Start a new peak from what is alive."""
        self.peak = self.now

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator and count the storages of its results."""
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, FakeTensor):
                self._count(leaf)
        return result

    def _count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._sizes:
            return
        size = storage.nbytes()
        self._sizes[key] = size
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._release, key)

    def _release(self, key: int) -> None:
        self.now -= self._sizes.pop(key, 0)


def _follow_resizes(counter: LiveBytes) -> None:
    resize = torch.UntypedStorage.resize_

    def resize_and_count(self: Any, size: int) -> Any:
        result = resize(self, size)
        counter.resized(self)
        return result

    torch.UntypedStorage.resize_ = resize_and_count


class EvenSplit:
    """Tokens of each expert under even routing, where a tensor with data would be."""

    def __init__(self, total: int, experts: int) -> None:
        self.values = [total // experts + (index < total % experts) for index in range(experts)]

    def tolist(self) -> list[int]:
        """Return tokens of each expert."""
        return self.values

    def __iter__(self) -> Iterator[int]:
        return iter(self.values)


class _Done:
    def wait(self) -> None:
        """Return at once."""


def start_fake_group(*, rank: int, world_size: int) -> None:
    """Start torch.distributed with a group in which every collective returns at once."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())


_keeps_masks = True


def prepare_fakes(*, topk: int, windows: bool = False) -> None:
    """Replace what needs data or a device. Call after `compat.prepare` and before a model is built.

    Args:
        topk: experts of a token, which decides the sizes of dropless routing.
        windows: whether attention has windows. Without them a mask says only what a GPU kernel takes as a flag (causal, the
            last row aligned with the last column), and is not counted.
    """
    global _keeps_masks
    _keeps_masks = windows
    _freeze_generators()
    _convert_by_copy()
    _skip_bucket_collectives()
    _route_evenly(topk)
    _build_optimizer_without_gloo()
    torch.nn.functional.rms_norm = _rms_norm
    torch.nn.functional.scaled_dot_product_attention = _attention
    dist.all_gather_object = _gather_alike
    dist.distributed_c10d.all_gather_object = _gather_alike


class _FusedRmsNorm(torch.autograd.Function):
    """RMS norm that saves what the GPU kernel saves: its input and one statistic a row.

    On the CPU torch decomposes the norm and keeps 32-bit copies that no GPU run has.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Return a tensor like the input."""
        statistic = x.new_empty(x.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(x, weight, statistic)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return gradients like input and weight."""
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight)


def _rms_norm(x: torch.Tensor, shape: Any, weight: torch.Tensor, eps: Any = None) -> torch.Tensor:
    result: torch.Tensor = _FusedRmsNorm.apply(x, weight)
    return result


class _FusedAttention(torch.autograd.Function):
    """Attention that saves what a flash kernel saves: queries, keys, values, output, one statistic a row, and a mask if there
    is one.

    The CPU's own kernel refuses masks and value sizes of their own, and then keeps all scores.
    """

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any) -> torch.Tensor:
        """Return [B, H, S, value size], in memory [B, S, H, value size] as flash kernels do."""
        batch, heads, rows, _ = query.shape
        output = query.new_empty((batch, rows, heads, value.shape[-1])).transpose(1, 2)
        statistic = query.new_empty(query.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, output, statistic, mask)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return gradients like queries, keys and values."""
        query, key, value, _, _, _ = ctx.saved_tensors
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), None


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None, *_: Any, **__: Any
) -> torch.Tensor:
    result: torch.Tensor = _FusedAttention.apply(query, key, value, attn_mask if _keeps_masks else None)
    return result


def _build_optimizer_without_gloo() -> None:
    """The fake group is the only one: there are no groups for saving on the host."""
    from megatron.core import optimizer

    optimizer.get_megatron_optimizer = functools.partial(optimizer.get_megatron_optimizer, use_gloo_process_groups=False)


def _gather_alike(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Every rank is like this one."""
    object_list[:] = [obj] * len(object_list)


def _freeze_generators() -> None:
    from megatron.core.tensor_parallel import random

    state = torch.get_rng_state()
    torch.get_rng_state = torch.cuda.get_rng_state = lambda *_, **__: state
    torch.set_rng_state = torch.cuda.set_rng_state = lambda *_, **__: None
    random._get_cuda_rng_state = lambda *_, **__: state
    random._set_cuda_rng_state = lambda *_, **__: None

    class Tracker(random.CudaRNGStatesTracker):
        """Forks to nowhere: there is nothing random in a fake tensor."""

        @contextlib.contextmanager
        def fork(self, name: Any = None) -> Iterator[None]:
            """Yield at once."""
            yield

        def add(self, name: Any, seed: Any) -> None:
            """Remember a name without a generator."""
            self.states_[name] = state

    random.CudaRNGStatesTracker = Tracker
    random.initialize_rng_tracker(force_reset=True)
    random.get_cuda_rng_tracker().add("model-parallel-rng", 1)
    random.get_cuda_rng_tracker().add(random.get_expert_parallel_rng_tracker_name(), 1)
    random.get_cuda_rng_tracker().add(random.get_data_parallel_rng_tracker_name(), 1)


def _convert_by_copy() -> None:
    """Give modules a type conversion that makes new parameters: fake ones cannot be swapped in place."""

    def convert(module: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
        done: dict[int, torch.nn.Parameter] = {}
        for part in module.modules():
            for name, parameter in list(part._parameters.items()):
                if parameter is None or not parameter.is_floating_point() or parameter.dtype == dtype:
                    continue
                if id(parameter) not in done:
                    fresh = torch.nn.Parameter(torch.empty(parameter.shape, dtype=dtype), requires_grad=parameter.requires_grad)
                    fresh.__dict__.update(parameter.__dict__)
                    done[id(parameter)] = fresh
                part._parameters[name] = done[id(parameter)]
            for name, buffer in list(part._buffers.items()):
                if buffer is not None and buffer.is_floating_point() and buffer.dtype != dtype:
                    part._buffers[name] = torch.empty(buffer.shape, dtype=dtype)
        return module

    torch.nn.Module.bfloat16 = lambda module: convert(module, torch.bfloat16)
    torch.nn.Module.half = lambda module: convert(module, torch.float16)


def _skip_bucket_collectives() -> None:
    """Coalesced collectives have no fake form; they work in place, so that leaving them out moves no byte."""
    from megatron.core.distributed import param_and_grad_buffer

    @contextlib.contextmanager
    def coalesce(*_: Any, **__: Any) -> Iterator[_Done]:
        yield _Done()

    param_and_grad_buffer._coalescing_manager = coalesce
    for name in ("dist_reduce_scatter_func", "dist_all_gather_func"):
        if hasattr(param_and_grad_buffer, name):
            setattr(param_and_grad_buffer, name, lambda *_, **__: _Done())


def _route_evenly(topk: int) -> None:
    """Give dropless routing the static sizes of an even split."""
    from megatron.core.transformer.moe import experts, moe_utils, token_dispatcher

    if hasattr(experts, "TEGroupedMLP"):
        forward = experts.TEGroupedMLP.forward

        def forward_evenly(self: Any, hidden: Any, tokens_per_expert: Any, *args: Any, **kwargs: Any) -> Any:
            return forward(self, hidden, EvenSplit(hidden.shape[0], self.num_local_experts), *args, **kwargs)

        experts.TEGroupedMLP.forward = forward_evenly

    def exchange(group: Any, tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        return tensor if group.size() == 1 else tensor.clone()

    def sort_chunks(tensor: torch.Tensor, split_sizes: Any, order: Any, probs: Any = None, fused: bool = False) -> Any:
        return tensor.clone(), None if probs is None else probs.clone()

    token_dispatcher.maybe_move_tensor_to_cpu = moe_utils.maybe_move_tensor_to_cpu = lambda tensor, *_, **__: tensor
    token_dispatcher.all_to_all = exchange
    token_dispatcher.sort_chunks_by_idxs = sort_chunks
    moe_utils.sort_chunks_by_idxs = sort_chunks
    select = torch.Tensor.masked_select

    def select_evenly(self: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if isinstance(self, FakeTensor):
            return self.reshape(-1)[: mask.shape[-1] * topk].clone()
        return select(self, mask)

    torch.Tensor.masked_select = select_evenly
