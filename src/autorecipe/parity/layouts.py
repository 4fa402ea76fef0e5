"""Layouts of one recipe that must train alike: each changes execution only.

A layout is proposed where the shape allows it; the first one, data parallel over all processes, is the reference.
"""

from __future__ import annotations

from collections.abc import Mapping

from autorecipe.config.views import view_batch, view_model
from autorecipe.record import dataclass
from autorecipe.schema.run import RunConfig


@dataclass(frozen=True, kw_only=True)
class LayoutVariant:
    """One way to run the same training.

    Attributes:
        name: short name, used for folders.
        overrides: what it changes.
        obstacle: why the shape does not allow it; empty where it does.
    """

    name: str
    overrides: tuple[str, ...]
    obstacle: str = ""


_RESET = (
    "model.tensor_model_parallel_size=1",
    "model.pipeline_model_parallel_size=1",
    "model.context_parallel_size=1",
    "model.expert_model_parallel_size=1",
    "model.expert_tensor_parallel_size=1",
    "model.sequence_parallel=false",
)


def propose_layouts(config: RunConfig, processes: int) -> tuple[LayoutVariant, ...]:
    """Return the reference layout and one variant for each axis, recompute and micro batch.

    Args:
        config: the recipe, resolved with its overrides.
        processes: processes that each run has.
    """
    shape, batch = view_model(config), view_batch(config)
    count = processes
    variants = [
        LayoutVariant(
            name=f"dp{count}", overrides=_RESET, obstacle=_batch_obstacle(batch.global_batch_size, batch.micro_batch_size, count)
        )
    ]

    def add(name: str, changes: Mapping[str, object], obstacle: str) -> None:
        texts = [text for text in _RESET if text.partition("=")[0].removeprefix("model.") not in changes]
        texts += [f"model.{key}={str(value).lower()}" for key, value in changes.items()]
        variants.append(LayoutVariant(name=name, overrides=tuple(texts), obstacle=obstacle))

    if count > 1:
        heads, groups = shape.num_attention_heads, shape.num_query_groups or shape.num_attention_heads
        fits = heads % count == 0 and (groups % count == 0 or count % groups == 0)
        tensor = {"tensor_model_parallel_size": count, "sequence_parallel": True}
        add(f"tp{count}", tensor, "" if fits else f"{heads} heads in {groups} groups do not split {count} ways")
        layers = shape.num_layers
        stages = {"pipeline_model_parallel_size": count, "pipeline_dtype": _pipeline_dtype(config)}
        add(f"pp{count}", stages, "" if layers % count == 0 else f"{layers} layers do not split {count} ways")
        length = batch.seq_length
        whole = length % (2 * count) == 0
        add(f"cp{count}", {"context_parallel_size": count}, "" if whole else f"{length} tokens do not split 2 x {count} ways")
        if shape.num_moe_experts:
            split = shape.num_moe_experts % count == 0
            add(
                f"ep{count}",
                {"expert_model_parallel_size": count},
                "" if split else f"{shape.num_moe_experts} experts do not split",
            )
    recompute = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    add("recompute", recompute, "")
    half = batch.micro_batch_size // 2 or batch.micro_batch_size * 2
    obstacle = _batch_obstacle(batch.global_batch_size, half, count)
    variants.append(LayoutVariant(name=f"mbs{half}", overrides=(*_RESET, f"train.micro_batch_size={half}"), obstacle=obstacle))
    return tuple(variants)


def _pipeline_dtype(config: RunConfig) -> str:
    dtype = config.get("model.params_dtype", None)
    return str(dtype) if isinstance(dtype, str) else "torch.float32"


def _batch_obstacle(total: int, micro: int, replicas: int) -> str:
    return "" if total % (micro * replicas) == 0 else f"global batch {total} is not a multiple of {micro} x {replicas}"
