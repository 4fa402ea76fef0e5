"""Process groups, model-parallel state and random generators of a run.

The order and the number of random draws equal those of upstream's own start-up, because initial weights depend on them.
Start reading at `initialize`.
"""

from __future__ import annotations

import datetime
import os
import random
import socket
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from autorecipe.config.views import view_layout, view_seq_length
from autorecipe.engine import compat, standin
from autorecipe.errors import EnvironmentProblem, Problem, UsageError
from autorecipe.schema.layout import Layout
from autorecipe.schema.run import RunConfig


@dataclass(frozen=True, kw_only=True)
class ParallelContext:
    """Where this process stands in the run.

    Attributes:
        rank: global rank.
        world_size: number of processes.
        local_rank: rank on this machine.
        device: where tensors live.
        backend: `nccl` or `gloo`.
        layout: parallel layout.
        groups: Megatron-Core's process groups.
    """

    rank: int
    world_size: int
    local_rank: int
    device: torch.device
    backend: str
    layout: Layout
    groups: Any

    @property
    def data_parallel_size(self) -> int:
        """Dense data-parallel size."""
        return self.layout.data_parallel_size(self.world_size)

    @property
    def data_parallel_rank(self) -> int:
        """This rank's place among the data-parallel ranks."""
        return int(self.groups.dp.rank())

    @property
    def pipeline_rank(self) -> int:
        """This rank's pipeline stage."""
        return int(self.groups.pp.rank())

    @property
    def is_first_stage(self) -> bool:
        """Whether this rank holds the embedding's pipeline stage."""
        return self.pipeline_rank == 0

    @property
    def is_last_stage(self) -> bool:
        """Whether this rank holds the loss's pipeline stage."""
        return self.pipeline_rank == self.layout.pp - 1

    @property
    def tensor_rank(self) -> int:
        """This rank's place among the tensor-parallel ranks."""
        return int(self.groups.tp.rank())


def initialize(run: RunConfig, *, starts_weights: bool = True) -> ParallelContext:
    """Start torch.distributed (NCCL on CUDA, Gloo on the CPU), model parallelism and the generators.

    A process that no launcher started becomes a world of one.

    Args:
        run: resolved configuration.
        starts_weights: whether initial weights will be drawn; where all are loaded, nothing is drawn before them either.

    Raises:
        UsageError: the layout does not fit the world.
        EnvironmentProblem: more processes on this machine than GPUs.
    """
    compat.prepare()
    from megatron.core import parallel_state
    from megatron.core.process_groups_config import ProcessGroupCollection

    layout = view_layout(run)
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    _check_world(layout, world_size)
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    device, backend = _claim_device(local_rank)
    timeout = datetime.timedelta(minutes=run.get("dist.distributed_timeout_minutes", None) or 10)
    if not dist.is_initialized():
        _name_rendezvous(world_size)
        dist.init_process_group(backend, timeout=timeout)
    if not parallel_state.model_parallel_is_initialized():
        start_model_parallel(run, layout)
    context = ParallelContext(
        rank=dist.get_rank(),
        world_size=world_size,
        local_rank=local_rank,
        device=device,
        backend=backend,
        layout=layout,
        groups=ProcessGroupCollection.use_mpu_process_groups(),
    )
    seed_generators(run, context)
    if starts_weights:
        warm_up_default_generator(run, context)
    return context


def start_model_parallel(run: RunConfig, layout: Layout) -> None:
    """Create Megatron-Core's process groups for a layout."""
    from megatron.core import parallel_state

    pipeline_last = run.get("dist.use_tp_pp_dp_mapping", None) is True
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=layout.tp,
        pipeline_model_parallel_size=layout.pp,
        virtual_pipeline_model_parallel_size=layout.vp if layout.vp > 1 else None,
        context_parallel_size=layout.cp,
        hierarchical_context_parallel_sizes=run.get("model.hierarchical_context_parallel_sizes", None),
        expert_model_parallel_size=layout.ep,
        expert_tensor_parallel_size=layout.etp if run.get("model.num_moe_experts", None) else None,
        num_distributed_optimizer_instances=run.get("ddp.num_distributed_optimizer_instances", None) or 1,
        distributed_timeout_minutes=run.get("dist.distributed_timeout_minutes", None) or 10,
        nccl_communicator_config_path=run.get("dist.nccl_communicator_config_path", None),
        order="tp-cp-ep-pp-dp" if pipeline_last else "tp-cp-ep-dp-pp",
        create_gloo_process_groups=run.get("dist.use_gloo_process_groups", None) is not False,
    )


def seed_generators(run: RunConfig, context: ParallelContext) -> None:
    """Seed Python, numpy and torch as upstream does.

    Pipeline stages are 100 apart, and data-parallel ranks 10 apart where `rng.data_parallel_random_init` asks for it.
    """
    import numpy as np
    from megatron.core import tensor_parallel

    seed = int(run.get("rng.seed", None) or 1234) + 100 * context.pipeline_rank
    if run.get("rng.data_parallel_random_init", None) is True:
        seed += 10 * context.data_parallel_rank
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    use_te_tracker = bool(run.get("rng.te_rng_tracker", None) or run.get("model.use_te_rng_tracker", None))
    tensor_parallel.model_parallel_cuda_manual_seed(
        seed, te_rng_tracker=use_te_tracker and compat.has_transformer_engine(), force_reset_rng=True
    )


def warm_up_default_generator(run: RunConfig, context: ParallelContext) -> None:
    """Draw from the default generator what upstream's warm-up of its fused kernels draws.

    Learned absolute positions, and dropout outside tensor-parallel regions, come from the default generator. Both upstream
    programs consume it before they build the model; without the same draws the first loss of a learned-absolute model
    differs in the third digit. Nothing else reads it, so other runs skip the work.

    Source: Megatron-LM megatron/training/initialize.py (warm-up of fused functions); draws measured on the CPU with
    release 0.16.1. Evidence: measured.
    """
    from megatron.core.fusions.fused_bias_dropout import bias_dropout_add_fused_train

    from autorecipe.engine.precision import view_precision

    if not reads_default_generator(run):
        return
    # With weights drawn on the host, upstream's warm-up still draws on the device: two generators there, one here.
    if standin.is_active() and run.get("model.use_cpu_initialization", None) is True:
        return
    layout, dtype = context.layout, view_precision(run).dtype
    hidden = run.get("model.hidden_size")
    ffn = (run.get("model.ffn_hidden_size", None) or 4 * hidden) // layout.tp
    micro_batch = run.get("train.micro_batch_size")
    sequence = view_seq_length(run) or 0
    inner = sequence // layout.tp if layout.sequence_parallel else sequence

    def draw(*shape: int) -> torch.Tensor:
        return torch.rand(shape, dtype=dtype, device="cuda")

    draw(ffn)
    draw(sequence // layout.cp, micro_batch, ffn)
    value = draw(inner // layout.cp, micro_batch, hidden)
    residual = draw(inner // layout.cp, micro_batch, hidden)
    bias = draw(hidden).expand_as(residual)
    for value_needs_gradient in (False, True):
        value.requires_grad = value_needs_gradient
        bias.requires_grad = residual.requires_grad = True
        for _ in range(5):
            bias_dropout_add_fused_train([value, bias], residual, 0.1)


def reads_default_generator(run: RunConfig) -> bool:
    """Return whether initial weights or dropout of a run come from the default generator.

    Routers of experts are drawn on the host: from another generator than upstream's warm-up uses, except where there is only
    a CPU.
    """
    learned = (run.get("model.position_embedding_type", None) or "learned_absolute") == "learned_absolute"
    has_sinks = run.get("model.softmax_type", None) == "learnable"
    has_dropout = bool(run.get("model.hidden_dropout", 0.1)) or bool(run.get("model.moe_input_jitter_eps", None))
    has_routers = standin.is_active() and bool(run.get("model.num_moe_experts", None))
    return learned or has_sinks or has_dropout or has_routers


def shut_down() -> None:
    """Leave the process groups."""
    from megatron.core import parallel_state

    if dist.is_initialized():
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()


def _check_world(layout: Layout, world_size: int) -> None:
    if layout.fits_world(world_size):
        return
    raise UsageError(
        Problem(
            code="world-size",
            message=f"layout {layout.render()} does not fit a world of {world_size}: it needs a multiple of "
            f"{layout.minimum_world_size} processes",
            hint=f"start with --nproc_per_node={layout.minimum_world_size}, or lower the parallel sizes",
        )
    )


def _claim_device(local_rank: int) -> tuple[torch.device, str]:
    if standin.is_active():
        return torch.device("cpu"), "gloo"
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise EnvironmentProblem(
            Problem(
                message=f"local rank {local_rank} has no GPU: this machine has {count}",
                hint=f"start with --nproc_per_node={count}",
            )
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank), "nccl"


def _name_rendezvous(world_size: int) -> None:
    """Fill what a launcher would have set, for a process that was started alone."""
    if world_size > 1:
        return
    os.environ.setdefault("RANK", "0")
    os.environ.setdefault("WORLD_SIZE", "1")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    if "MASTER_PORT" not in os.environ:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            os.environ["MASTER_PORT"] = str(probe.getsockname()[1])
