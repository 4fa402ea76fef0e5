"""LOG: logging, profiling, straggler detection; ARG: old and rare options of Megatron-LM; MIM: multi-module grids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autorecipe.rules.context import Context
from autorecipe.rules.declare import computes, requires
from autorecipe.rules.rule import Breach, Verdict
from autorecipe.schema import Stage

BOTH = ("bridge", "megatron-lm")
GRIDS = "megatron_mimo.module_parallelisms"
RENAMED = {
    "batch_size": "--micro-batch-size",
    "warmup": "--lr-warmup-fraction",
    "model_parallel_size": "--tensor-model-parallel-size",
    "checkpoint_activations": "--recompute-granularity",
}


@computes(
    "ARG001",
    "MLM-DEP-01 MLM-DEP-02",
    "options that were renamed are refused",
    formula="--batch-size, --warmup, --model-parallel-size, --checkpoint-activations not used",
    paths="mlm.batch_size mlm.warmup mlm.model_parallel_size mlm.checkpoint_activations",
    stage=Stage.PARSE,
    frameworks=("megatron-lm",),
    source="ar:591-602",
    why="An assertion names the replacement.",
    bad="mlm.batch_size=4",
    good="mlm.batch_size=null",
)
def renamed_options(context: Context) -> Iterator[Verdict]:
    """Report deprecated options."""
    for name, instead in RENAMED.items():
        if context.get(f"mlm.{name}"):
            yield Breach(
                message=f"--{name.replace('_', '-')} is refused; use {instead}",
                paths=(f"mlm.{name}",),
                hint=f"use {instead}",
            )


def _grid_size(grid: Mapping[str, int], *names: str) -> int:
    product = 1
    for name in names:
        value = grid.get(f"{name}_parallel_size", grid.get(name, 1))
        product *= value if isinstance(value, int) else 1
    return product


@computes(
    "MIM001",
    "BR-MIMO-01",
    "module grids have positive sizes, TP in powers of two, DP sizes that divide each other, and tile the world",
    formula="per module: TP a power of two, TP * CP * DP % (ETP * EP) == 0; DP sizes pairwise divisible; rank "
    "ranges tile [0, world)",
    paths=GRIDS,
    source="br:src/megatron/bridge/models/megatron_mimo/megatron_mimo_config.py:96",
    why="Modules exchange activations between their grids.",
    bad="gpus=8 'megatron_mimo.module_parallelisms={language: {tensor_model_parallel_size: 3, data_parallel_size: 2}, "
    "vision: {data_parallel_size: 2, rank_offset: 6}}'",
    good="'megatron_mimo.module_parallelisms={language: {tensor_model_parallel_size: 2, data_parallel_size: 2}, "
    "vision: {data_parallel_size: 4, rank_offset: 4}}'",
)
def module_grids(context: Context) -> Iterator[Verdict]:
    """Check the grids of a multi-module model."""
    modules = context.get(GRIDS)
    if not isinstance(modules, Mapping):
        return
    problems: list[str] = []
    ranges: list[tuple[int, int, str]] = []
    data: dict[str, int] = {}
    for name, grid in modules.items():
        tp, dp = _grid_size(grid, "tensor_model"), _grid_size(grid, "data")
        dense = _grid_size(grid, "tensor_model", "pipeline_model", "context")
        expert = _grid_size(grid, "expert_tensor", "expert_model")
        if any(isinstance(value, int) and value < 1 for key, value in grid.items() if key.endswith("_size")):
            problems.append(f"{name} has a size below 1")
            continue
        if tp & (tp - 1):
            problems.append(f"{name}: TP={tp} is not a power of two")
        if tp * _grid_size(grid, "context") * dp % expert:
            problems.append(
                f"{name}: TP x CP x DP = {tp * _grid_size(grid, 'context') * dp} is not a multiple of ETP x EP = {expert}"
            )
        data[name] = dp
        start = int(grid.get("rank_offset", 0))
        ranges.append((start, start + dense * dp, name))
    names = sorted(data)
    for index, one in enumerate(names):
        for other in names[index + 1 :]:
            if data[one] % data[other] and data[other] % data[one]:
                problems.append(f"DP of {one} ({data[one]}) and {other} ({data[other]}) do not divide each other")
    problems += _tiling(sorted(ranges), context.world)
    if problems:
        yield Breach(message="the module grids are not legal: " + "; ".join(problems), paths=(GRIDS,))


def _tiling(ranges: list[tuple[int, int, str]], world: int | None) -> list[str]:
    problems, expected = [], 0
    for start, end, name in ranges:
        if start != expected:
            problems.append(f"{name} starts at rank {start}, expected {expected}")
        expected = end
    if world is not None and ranges and expected != world:
        problems.append(f"ranks 0 to {expected} are covered, the world has {world}")
    return problems


RULES = (
    renamed_options,
    module_grids,
    requires(
        "ARG002",
        "MLM-SAVE-02",
        "memory is logged when other things are",
        when="isset(get(logger.log_memory_interval)) and logger.log_interval >= 1",
        need="logger.log_memory_interval % logger.log_interval == 0",
        stage=Stage.PARSE,
        frameworks=("megatron-lm",),
        source="ar:1370",
        why="It is part of the log line.",
        bad="logger.log_memory_interval=15 logger.log_interval=10",
        good="logger.log_memory_interval=20",
    ),
    requires(
        "ARG003",
        "MLM-INF-01",
        "splitting long inference batches needs a pipeline and no graphs",
        when="get(mlm.inference_batch_times_seqlen_threshold) > -1",
        need=("PP > 1", "get(cuda_graph_impl) in ('none', None)"),
        stage=Stage.PARSE,
        source="ar:1857",
        why="The batch is cut into pipelined parts.",
        bad="mlm.inference_batch_times_seqlen_threshold=1000 PP=1",
        good="mlm.inference_batch_times_seqlen_threshold=-1",
    ),
    requires(
        "ARG004",
        "MLM-RL-01",
        "reinforcement learning takes consistent options",
        when="on(mlm.perform_rl_step)",
        need=(
            "not on(mlm.rl_training_cuda_graphs) or get(cuda_graph_impl) not in ('none', None)",
            "not on(mlm.rl_persist_cuda_graphs) or get(cuda_graph_impl) not in ('none', None)",
            "not on(mlm.rl_use_sequence_packing) or get(train.micro_batch_size) == 1",
            "not on(mlm.grpo_group_size) or not on(mlm.grpo_prompts_per_step) or not on(mlm.grpo_iterations) "
            "or mlm.grpo_prompts_per_step * mlm.grpo_group_size * mlm.grpo_iterations % GBS == 0",
        ),
        stage=Stage.PARSE,
        source="ar:482",
        why="Rollouts and updates alternate.",
        bad="mlm.perform_rl_step=true mlm.rl_use_sequence_packing=true train.micro_batch_size=2",
        good="train.micro_batch_size=1",
    ),
    requires(
        "LOG001",
        "BR-LOG-01",
        "experiment trackers need their names and packages",
        need=(
            "unset(get(logger.mlflow_experiment)) or isset(get(logger.mlflow_run_name))",
            "unset(get(logger.comet_project)) or isset(get(logger.comet_experiment_name))",
        ),
        source="bc:687",
        why="A run without a name cannot be found again.",
        bad="logger.mlflow_experiment=x logger.mlflow_run_name=null",
        good="logger.mlflow_run_name=y",
    ),
    requires(
        "LOG002",
        "BR-PROF-01",
        "one profiler, from a first to a last step",
        need=(
            "not (on(profiling.use_nsys_profiler) and on(profiling.use_pytorch_profiler))",
            "unset(get(profiling.profile_step_start)) or unset(get(profiling.profile_step_end)) "
            "or 0 <= profiling.profile_step_start <= profiling.profile_step_end",
        ),
        source="bc:758",
        why="Two profilers disturb each other.",
        bad="profiling.profile_step_start=12 profiling.profile_step_end=10",
        good="profiling.profile_step_end=14",
    ),
    requires(
        "LOG003",
        "BR-NVRX-01",
        "straggler detection computes something, regularly, with thresholds between 0 and 1",
        when="on(nvrx_straggler.enabled)",
        need=(
            "on(nvrx_straggler.calc_relative_gpu_perf) or on(nvrx_straggler.calc_individual_gpu_perf)",
            "nvrx_straggler.report_time_interval > 0",
            "0 <= nvrx_straggler.gpu_relative_perf_threshold <= 1",
            "0 <= nvrx_straggler.gpu_individual_perf_threshold <= 1",
        ),
        source="bc:888",
        why="Otherwise it costs and reports nothing.",
        bad="nvrx_straggler.enabled=true nvrx_straggler.calc_relative_gpu_perf=true nvrx_straggler.report_time_interval=0 "
        "nvrx_straggler.gpu_relative_perf_threshold=0.7 nvrx_straggler.gpu_individual_perf_threshold=0.7",
        good="nvrx_straggler.report_time_interval=300",
    ),
)
