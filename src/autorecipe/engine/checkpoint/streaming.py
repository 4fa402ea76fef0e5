"""Writes and reads a distributed checkpoint one tensor at a time, so that no model is ever held whole.

Core's own saving and loading hold every shard of a rank in memory. Here the shards of a model without storage say what a
checkpoint holds; a function gives each parameter when its turn comes. What is written is core's format: its loader reads it
at any layout. What was written at any layout is read. Start reading at `list_places`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing.dict_utils import nested_values
from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory
from megatron.core.dist_checkpointing.strategies.torch import TorchDistSaveShardedStrategy
from torch.distributed.checkpoint import (
    FileSystemReader,
    FileSystemWriter,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
)
from torch.distributed.checkpoint.default_planner import create_default_global_save_plan
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties, TensorStorageMetadata
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from autorecipe.engine import compat
from autorecipe.engine.checkpoint import results
from autorecipe.errors import EnvironmentProblem, Problem

FILE_BYTES = 4 * 1024**3
"""Weights per written file, before the last tensor: many processes read one checkpoint, and no file should hold it all."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a parameter lies in a checkpoint.

    Attributes:
        key: of the stored tensor, which may stack the parameters of many layers and experts.
        stack: index into the stacked dimensions, such as (layer, expert).
        shape: of the parameter.
        dtype: of the parameter.
        may_differ: whether the stored tensor may have another number of rows, because its vocabulary was padded for another
            layout; rows that are not stored are zero, as core loads them.
    """

    key: str
    stack: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype
    may_differ: bool = False


def list_places(states: Mapping[str, Any]) -> dict[str, Place]:
    """Return where each state of a model lies, by its name in the model.

    Args:
        states: `sharded_state_dict` of a model that is whole on this process.
    """
    places = {}
    for name, state in states.items():
        if isinstance(state, ShardedTensorFactory):
            parts = [part for part in nested_values(state.build()) if isinstance(part, ShardedTensor)]
            shape, dtype = tuple(state.data.shape), state.data.dtype
        elif isinstance(state, ShardedTensor):
            parts, shape, dtype = [state], tuple(state.local_shape), state.dtype
        else:
            continue
        [(key, stack)] = {(part.key, _stack_of(part)) for part in parts}
        may_differ = any(part.allow_shape_mismatch for part in parts)
        places[name] = Place(key=key, stack=stack, shape=shape, dtype=dtype, may_differ=may_differ)
    return places


def write_streamed(path: Path, content: dict[str, Any], read: Callable[[str], torch.Tensor]) -> None:
    """Write a checkpoint of a model whose tensors come one by one.

    Args:
        path: empty folder.
        content: what `content.build_content` returned for one model without storage.
        read: gives a parameter, whole and in its type, by its name in the model.
    """
    names = {(place.key, place.stack): name for name, place in list_places(content["model"]).items()}
    results.install()
    dist_checkpointing.save(content, str(path), sharded_strategy=_StreamedSave(names, read))


class StoredTensors:
    """The tensors of a checkpoint, read one by one."""

    def __init__(self, path: Path) -> None:
        """Read what the checkpoint holds.

        Raises:
            EnvironmentProblem: it cannot be read.
        """
        self._path = path
        self._reader = FileSystemReader(str(path))
        try:
            metadata = self._reader.read_metadata()
        except Exception as error:  # unpickling raises whatever the damage leads to
            raise EnvironmentProblem(_damage(path, error)) from error
        self._reader.set_up_storage_reader(metadata, is_coordinator=True)
        self._stored = {
            key: stored for key, stored in metadata.state_dict_metadata.items() if isinstance(stored, TensorStorageMetadata)
        }
        self._chunks: dict[tuple[str, int], dict[tuple[int, ...], list[ChunkStorageMetadata]]] = {}

    @property
    def keys(self) -> set[str]:
        """Keys of every stored tensor."""
        return set(self._stored)

    def read(self, place: Place) -> torch.Tensor:
        """Return a parameter, in the type that it was stored in.

        Raises:
            EnvironmentProblem: it is not there, has another shape, or its file is damaged.
        """
        stored = self._stored.get(place.key)
        depth = len(place.stack)
        if stored is None:
            message = f"holds no {place.key}"
            raise EnvironmentProblem(Problem(path=str(self._path), code="checkpoint-damaged", message=message))
        shape = tuple(stored.size[depth:])
        fits = shape == place.shape or (place.may_differ and shape[1:] == place.shape[1:])
        if not fits or any(at >= size for at, size in zip(place.stack, stored.size, strict=False)):
            message = f"{place.key}{list(place.stack) or ''} has shape {list(stored.size)}, and {list(place.shape)} is needed"
            raise EnvironmentProblem(Problem(path=str(self._path), code="other-model", message=message))
        whole = torch.zeros((1,) * depth + place.shape, dtype=stored.properties.dtype)
        held = whole.narrow(depth, 0, min(shape[0], place.shape[0])) if place.may_differ else whole
        wanted = ChunkStorageMetadata(offsets=torch.Size((*place.stack, *[0] * len(place.shape))), sizes=held.size())
        # Only the chunks of this layer and expert: a big model has tens of thousands of them under one key.
        nearby = TensorStorageMetadata(properties=stored.properties, size=stored.size, chunks=self._chunks_at(place))
        items = create_read_items_for_chunk_list(place.key, nearby, [wanted])
        if sum(item.lengths.numel() for item in items) != held.numel():
            message = f"{place.key}{list(place.stack) or ''} is not stored whole"
            raise EnvironmentProblem(Problem(path=str(self._path), code="checkpoint-damaged", message=message))
        try:
            self._reader.read_data(LoadPlan(items), _OneTensor(held)).wait()
        except Exception as error:  # a damaged file raises whatever its reader raises
            raise EnvironmentProblem(_damage(self._path, error)) from error
        return whole.reshape(place.shape)

    def _chunks_at(self, place: Place) -> list[ChunkStorageMetadata]:
        depth = len(place.stack)
        known = self._chunks.get((place.key, depth))
        if known is None:
            known = {}
            for chunk in self._stored[place.key].chunks:
                for stack in _indices(chunk, depth):
                    known.setdefault(stack, []).append(chunk)
            self._chunks[place.key, depth] = known
        return known.get(place.stack, [])


def _indices(chunk: ChunkStorageMetadata, depth: int) -> Iterator[tuple[int, ...]]:
    """Yield the stacked indices that a chunk covers."""
    yield from itertools.product(
        *(range(start, start + size) for start, size in zip(chunk.offsets[:depth], chunk.sizes[:depth], strict=True))
    )


def _stack_of(part: ShardedTensor) -> tuple[int, ...]:
    return tuple(part.global_offset[: part.prepend_axis_num])


def _damage(path: Path, error: Exception) -> Problem:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return Problem(path=str(path), code="checkpoint-damaged", message=f"does not load: {text}")


class _StreamedSave(TorchDistSaveShardedStrategy):
    """Core's format, written tensor by tensor into files of limited size."""

    def __init__(self, names: Mapping[tuple[str, tuple[int, ...]], str], read: Callable[[str], torch.Tensor]) -> None:
        super().__init__(**compat.accepted(TorchDistSaveShardedStrategy.__init__, backend="torch_dist", version=1))
        self._names = names
        self._read = read

    def save(self, sharded_state_dict: Any, checkpoint_dir: Any) -> None:
        """Write every shard; each file is what one rank would have written."""
        shards = [shard for shard in nested_values(sharded_state_dict) if isinstance(shard, ShardedTensor)]
        planner = _Supply(self._names, self._read)
        planner.set_up_planner({}, is_coordinator=True)
        writer = FileSystemWriter(str(checkpoint_dir), per_thread_copy_ahead=0)
        writer.set_up_storage_writer(is_coordinator=True)
        plans = [writer.prepare_local_plan(SavePlan([planner.describe(shard) for shard in part])) for part in _cut(shards)]
        plans, metadata = planner.create_global_plan(plans)
        plans = writer.prepare_global_plan(plans)
        results = [writer.write_data(planner.finish_plan(plan), planner).value() for plan in plans]
        writer.finish(metadata, results)


class _Supply(SavePlanner):
    """Gives the writer each shard when it asks for it; keeps the last parameter, whose other shards come next."""

    def __init__(self, names: Mapping[tuple[str, tuple[int, ...]], str], read: Callable[[str], torch.Tensor]) -> None:
        self._names = names
        self._read = read
        self._shards: dict[MetadataIndex, ShardedTensor] = {}
        self._last: tuple[str, torch.Tensor] | None = None

    def set_up_planner(self, state_dict: Any, storage_meta: Any = None, is_coordinator: bool = False) -> None:
        """Do nothing: there is no state dict."""

    def create_local_plan(self) -> SavePlan:
        """Refuse: plans are made of descriptions."""
        raise NotImplementedError

    def create_global_plan(self, all_plans: list[SavePlan]) -> Any:
        """Return the plans and the metadata of all of them."""
        return create_default_global_save_plan(all_plans)

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """Return the plan as it is."""
        return new_plan

    def describe(self, shard: ShardedTensor) -> WriteItem:
        """Describe a shard to the writer."""
        index = MetadataIndex(shard.key, torch.Size(shard.global_offset))
        self._shards[index] = shard
        sizes = torch.Size((1,) * shard.prepend_axis_num + tuple(shard.local_shape))
        return WriteItem(
            index=index,
            type=WriteItemType.SHARD,
            tensor_data=TensorWriteData(
                chunk=ChunkStorageMetadata(offsets=torch.Size(shard.global_offset), sizes=sizes),
                properties=TensorProperties(dtype=shard.dtype),
                size=torch.Size(shard.global_shape),
            ),
        )

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor:
        """Return a shard's tensor."""
        shard = self._shards[write_item.index]
        name = self._names[shard.key, _stack_of(shard)]
        if self._last is None or self._last[0] != name:
            self._last = None  # let the one before go first
            self._last = (name, self._read(name).to("cpu", shard.dtype))
        starts = shard.global_offset[shard.prepend_axis_num :]
        rows = tuple(slice(start, start + size) for start, size in zip(starts, shard.local_shape, strict=True))
        return self._last[1][rows].reshape((1,) * shard.prepend_axis_num + tuple(shard.local_shape)).contiguous()


class _OneTensor(LoadPlanner):
    """Lets the reader fill one tensor."""

    def __init__(self, target: torch.Tensor) -> None:
        self._target = target

    def set_up_planner(self, state_dict: Any, metadata: Any = None, is_coordinator: bool = False) -> None:
        """Do nothing: the target is known."""

    def create_local_plan(self) -> LoadPlan:
        """Refuse: the plan is given."""
        raise NotImplementedError

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plans as they are."""
        return global_plan

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """Return the plan as it is."""
        return central_plan

    def load_bytes(self, read_item: ReadItem, value: Any) -> None:
        """Refuse: only tensors are read."""
        raise NotImplementedError

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        """Return the part of the target that is to be filled."""
        part = self._target
        for axis, (start, length) in enumerate(zip(read_item.dest_offsets, read_item.lengths, strict=True)):
            part = part.narrow(axis, start, length)
        return part

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        """Do nothing: the target is filled in place."""


def _cut(shards: list[ShardedTensor]) -> Iterator[list[ShardedTensor]]:
    """Yield consecutive shards of one file each."""
    part: list[ShardedTensor] = []
    size = 0
    for shard in shards:
        part.append(shard)
        size += shard.data.numel() * shard.data.element_size()
        if size >= FILE_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
