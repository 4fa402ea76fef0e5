"""Layouts of one recipe that must train alike: each changes execution only.

A layout is proposed where the shape allows it, each axis at the largest divisor of the processes that fits; the first one, data
parallel over all processes, is the reference. What makes a comparison of layouts void whatever they do is in `find_random_draws`
and `find_batch_dependence`. Start reading at `propose_layouts`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autorecipe.config.views import view_batch, view_model
from autorecipe.errors import Problem
from autorecipe.record import dataclass
from autorecipe.schema.batch import Batch
from autorecipe.schema.model import ModelShape
from autorecipe.schema.run import RunConfig
from autorecipe.schema.value import UNKNOWN


@dataclass(frozen=True, kw_only=True)
class LayoutVariant:
    """One way to run the same training.

    Attributes:
        name: short name, used for folders.
        overrides: what it changes.
        obstacle: why the shape does not allow it; empty where it does.
        notes: what else it may change.
    """

    name: str
    overrides: tuple[str, ...]
    obstacle: str = ""
    notes: tuple[str, ...] = ()


RESET: Mapping[str, object] = {
    "model.tensor_model_parallel_size": 1,
    "model.pipeline_model_parallel_size": 1,
    "model.virtual_pipeline_model_parallel_size": None,
    "model.pipeline_model_parallel_layout": None,
    "model.num_layers_in_first_pipeline_stage": None,
    "model.num_layers_in_last_pipeline_stage": None,
    "model.context_parallel_size": 1,
    "model.expert_model_parallel_size": 1,
    "model.expert_tensor_parallel_size": 1,
    "model.sequence_parallel": False,
}
"""The layout without any model parallelism."""


def propose_layouts(config: RunConfig, processes: int) -> tuple[LayoutVariant, ...]:
    """Return the reference layout and one variant for each axis, recompute and micro batch.

    Args:
        config: the recipe, resolved with its overrides.
        processes: processes that each run has.
    """
    shape, batch = view_model(config), view_batch(config)
    vocabulary = _vocabulary(config, processes)
    variants: list[LayoutVariant] = []

    def add(name: str, changes: Mapping[str, object], obstacle: str, notes: tuple[str, ...] = ()) -> None:
        values = {**{path: value for path, value in RESET.items() if config.known(path)}, **changes}
        tp = values.get("model.tensor_model_parallel_size", 1)
        assert isinstance(tp, int)
        values.update(vocabulary(tp))
        texts = tuple(f"{path}={_render(value)}" for path, value in values.items())
        variants.append(LayoutVariant(name=name, overrides=texts, obstacle=obstacle, notes=notes))

    def add_axis(name: str, fits: Callable[[int], str], changes: Callable[[int], Mapping[str, object]], *, splits: bool) -> None:
        """Add one axis at the largest size that fits; `splits`: whether its ranks take data-parallel ranks away."""
        sizes = [size for size in range(processes, 1, -1) if processes % size == 0]

        def obstacle(size: int) -> str:
            return fits(size) or _batch_obstacle(batch, processes // size if splits else processes)

        size = next((size for size in sizes if not obstacle(size)), sizes[0])
        add(f"{name}{size}", changes(size), obstacle(size))

    add(f"dp{processes}", {}, _batch_obstacle(batch, processes))
    dtype = _pipeline_dtype(config)
    if processes > 1:
        add_axis("tp", lambda size: _tensor_obstacle(shape, batch, config, size), _tensor, splits=True)
        add_axis(
            "pp",
            lambda size: _divides(shape.num_layers, size, "layers"),
            lambda size: {"model.pipeline_model_parallel_size": size, "model.pipeline_dtype": dtype},
            splits=True,
        )
        add_axis(
            "vp2pp",
            lambda size: _divides(shape.num_layers, 2 * size, "layers") or _interleave_obstacle(batch, processes, size),
            lambda size: {
                "model.pipeline_model_parallel_size": size,
                "model.virtual_pipeline_model_parallel_size": 2,
                "model.pipeline_dtype": dtype,
            },
            splits=True,
        )
        add_axis(
            "cp",
            lambda size: _divides(batch.seq_length, 2 * size, "tokens"),
            lambda size: {"model.context_parallel_size": size},
            splits=True,
        )
        if shape.num_moe_experts:
            add_axis(
                "ep",
                lambda size: _divides(shape.num_moe_experts or 1, size, "experts"),
                lambda size: {"model.expert_model_parallel_size": size},
                splits=False,
            )
    recompute = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    whole = {f"model.{key}": value for key, value in recompute.items()}
    if config.get("model.cuda_graph_impl", None) not in (None, "none"):
        whole["model.cuda_graph_impl"] = "none"  # graphs of parts of a layer cannot be recomputed
    add("recompute", whole, _batch_obstacle(batch, processes))
    half = batch.micro_batch_size // 2 or batch.micro_batch_size * 2
    other = Batch(global_batch_size=batch.global_batch_size, micro_batch_size=half, seq_length=batch.seq_length)
    add(f"mbs{half}", {"train.micro_batch_size": half}, _batch_obstacle(other, processes), find_batch_dependence(config))
    return tuple(variants)


def find_random_draws(config: RunConfig) -> list[Problem]:
    """Return the settings that draw random numbers in every step: each layout draws others, so all would look broken.

    Source: tensor-, context- and data-parallel ranks seed their generators by rank (`model_parallel_cuda_manual_seed`,
    megatron/core/tensor_parallel/random.py @ core 0.16.1), and a pipeline stage draws for its own layers alone.
    Evidence: enforced-upstream.
    """
    problems = []
    for path in ("model.attention_dropout", "model.hidden_dropout", "peft.dropout", "model.moe_input_jitter_eps"):
        value = config.get(path, None)
        if value not in (None, UNKNOWN, 0, 0.0):
            off = "null" if path.endswith("eps") else "0"
            problems.append(
                Problem(
                    code="random-draws",
                    path=path,
                    message=f"is {value}: every layout draws other random numbers, so no two of them have the same loss",
                    hint=f"add {path}={off}, for this comparison only",
                )
            )
    if config.get("model.moe_router_force_load_balancing", None) is True:
        problems.append(
            Problem(
                code="random-draws",
                path="model.moe_router_force_load_balancing",
                message="is true: tokens are routed at random, and every layout draws other random numbers",
                hint="add model.moe_router_force_load_balancing=false",
            )
        )
    return problems


def find_batch_dependence(config: RunConfig) -> tuple[str, ...]:
    """Return what makes another micro batch another training, slightly: losses and capacities taken over one micro batch.

    Source: `router.py` (`aux_loss` averages over the tokens of one micro batch, `seq_aux_loss` over those of one sample) and
    `moe_utils.get_capacity` @ core 0.16.1. Evidence: enforced-upstream.
    """
    if not config.get("model.num_moe_experts", None):
        return ()
    notes = []
    kind, weight = config.get("model.moe_router_load_balancing_type", None), config.get("model.moe_aux_loss_coeff", None)
    if kind == "aux_loss" and weight not in (None, UNKNOWN, 0, 0.0):
        notes.append(f"model.moe_router_load_balancing_type=aux_loss (coefficient {weight}) balances each micro batch by itself")
    factor = config.get("model.moe_expert_capacity_factor", None)
    if factor not in (None, UNKNOWN):
        notes.append(f"model.moe_expert_capacity_factor={factor} drops tokens of each micro batch by itself")
    return tuple(notes)


def _tensor(size: int) -> dict[str, object]:
    return {"model.tensor_model_parallel_size": size, "model.sequence_parallel": True}


def _tensor_obstacle(shape: ModelShape, batch: Batch, config: RunConfig, size: int) -> str:
    heads, groups = shape.num_attention_heads, shape.num_query_groups or shape.num_attention_heads
    if heads % size or (groups % size and size % groups):
        return f"{heads} heads in {groups} groups do not split {size} ways"
    width = config.get("model.vocab_size", None)
    pads = config.get("model.should_pad_vocab", None) is True
    unpadded = _divides(width, size, "words of model.vocab_size") if isinstance(width, int) and not pads else ""
    return unpadded or _divides(batch.seq_length, size, "tokens")


def _divides(total: int, parts: int, what: str) -> str:
    return "" if total % parts == 0 else f"{total} {what} do not split {parts} ways"


def _interleave_obstacle(batch: Batch, processes: int, stages: int) -> str:
    """Interleaved stages take micro batches in groups of the number of stages."""
    count = batch.global_batch_size // (batch.micro_batch_size * (processes // stages))
    return "" if count and count % stages == 0 else f"{count} micro batches are not a multiple of {stages} stages"


def _vocabulary(config: RunConfig, processes: int) -> Callable[[int], dict[str, object]]:
    """Return what gives each tensor size the same padded vocabulary, that of TP over all processes.

    Formula: padding goes up to a multiple of `make_vocab_size_divisible_by` x TP, so their product is kept.
    """
    path = "model.make_vocab_size_divisible_by"
    base = config.get(path, None)
    takes_tokenizer = config.get("model.vocab_size", None) is None or config.get("model.should_pad_vocab", None) is True
    if not takes_tokenizer or not isinstance(base, int):
        return lambda tp: {}
    return lambda tp: {path: base * processes // tp}


def _pipeline_dtype(config: RunConfig) -> str:
    dtype = config.get("model.params_dtype", None)
    return str(dtype) if isinstance(dtype, str) else "torch.float32"


def _batch_obstacle(batch: Batch, replicas: int) -> str:
    total, micro = batch.global_batch_size, batch.micro_batch_size
    return "" if total % (micro * replicas) == 0 else f"global batch {total} is not a multiple of {micro} x {replicas}"


def _render(value: object) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
