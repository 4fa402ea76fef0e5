"""Opens any checkpoint of this engine as a whole model on one process, whatever layout trained it. Start reading at `read_saved`.

Leaves out: what is done with the model (`generation`, `hf`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autorecipe.engine import build, parallel
from autorecipe.engine.adapters.settings import AdapterSettings, read_adapter
from autorecipe.engine.checkpoint.folder import Candidate
from autorecipe.engine.checkpoint.identity import ADAPTER, compare_identity
from autorecipe.engine.checkpoint.pretrained import PATH, find_whole
from autorecipe.engine.options import for_conversion
from autorecipe.errors import EnvironmentProblem, NegativeAnswer, Problem, UsageError
from autorecipe.schema.run import RunConfig
from autorecipe.schema.value import UNKNOWN

_ONE_PROCESS: Mapping[str, Any] = {
    "model.tensor_model_parallel_size": 1,
    "model.pipeline_model_parallel_size": 1,
    "model.virtual_pipeline_model_parallel_size": None,
    "model.context_parallel_size": 1,
    "model.expert_model_parallel_size": 1,
    "model.expert_tensor_parallel_size": None,
    "model.hierarchical_context_parallel_sizes": None,
    "model.sequence_parallel": False,
    "model.pipeline_model_parallel_layout": None,
    "model.num_layers_in_first_pipeline_stage": None,
    "model.num_layers_in_last_pipeline_stage": None,
    "model.account_for_embedding_in_pipeline_split": False,
    "model.account_for_loss_in_pipeline_split": False,
    "model.microbatch_group_size_per_vp_stage": None,
    "model.tp_comm_overlap": False,
    "model.overlap_p2p_comm": False,
    "model.moe_shared_expert_overlap": False,
    "model.overlap_moe_expert_parallel_comm": False,
    "model.delay_wgrad_compute": False,
    "model.distribute_saved_activations": False,
    "model.recompute_granularity": None,
    "model.recompute_method": None,
    "model.recompute_num_layers": None,
    "model.recompute_modules": None,
    "model.cpu_offloading": False,
    "model.fine_grained_activation_offloading": False,
    "model.enable_cuda_graph": False,
    "model.cuda_graph_impl": "none",
    "ddp.num_distributed_optimizer_instances": 1,
    "dist.use_tp_pp_dp_mapping": False,
    "engine.fused_grad": "off",
}
"""Execution fields of a run -> what they are on one process that does not train."""

_READING: Mapping[str, Any] = {
    "model.perform_initialization": False,
    "model.mtp_num_layers": None,
    "model.moe_expert_capacity_factor": None,
    "model.moe_pad_expert_input_to_capacity": False,
    "model.moe_router_force_load_balancing": False,
    "model.moe_input_jitter_eps": None,
}
"""What a model that only reads does without."""


@dataclass(frozen=True, kw_only=True)
class SavedModel:
    """A checkpoint, and how to build its model on one process.

    Attributes:
        candidate: the checkpoint.
        run: builds the model; layout and execution are those of one process.
        adapter: what the checkpoint holds of an adapter, or None where it holds the model itself.
        base: weights that training started from, or None where it started from none or they are not known.
    """

    candidate: Candidate
    run: RunConfig
    adapter: AdapterSettings | None
    base: Candidate | None

    @property
    def reading_run(self) -> RunConfig:
        """The run of a model that only reads: without initial weights, further predicted tokens and dropped or forced routes."""
        return RunConfig(values={**self.run.values, **_READING})

    @property
    def conversion_run(self) -> RunConfig:
        """The run of the model that conversions walk over: one module per expert, and this project's names."""
        return RunConfig(values=for_conversion(self.run.values))

    @property
    def identity(self) -> dict[str, Any]:
        """What a model must share with the checkpoint, its adapter left out."""
        assert self.candidate.manifest is not None
        return {name: value for name, value in self.candidate.manifest.identity.items() if name != ADAPTER}


def read_saved(root: Path, *, base: Path | None = None, asked_by: str = "--checkpoint") -> SavedModel:
    """Look at a checkpoint; touches no tensor.

    Args:
        root: a checkpoint, or a folder of them (the newest counts).
        base: weights that an adapter belongs to; where None, those that its training started from.
        asked_by: option that named `root`, for messages.

    Raises:
        EnvironmentProblem: nothing whole is at `root`, or the weights that an adapter needs are not there.
        NegativeAnswer: `base` is of another model.
    """
    candidate = find_whole(root, asked_by=asked_by)
    assert candidate.manifest is not None
    values = {path: value for path, value in candidate.manifest.config.items() if value != UNKNOWN.value}
    values.update({path: value for path, value in _ONE_PROCESS.items() if path in values})
    run = RunConfig(values=values)
    adapter = read_adapter(run) if ADAPTER in candidate.manifest.identity else None
    if adapter is None:
        run = RunConfig(values={path: value for path, value in values.items() if not path.startswith("peft")})
    return SavedModel(candidate=candidate, run=run, adapter=adapter, base=_find_base(candidate, run, adapter, base))


def _find_base(candidate: Candidate, run: RunConfig, adapter: AdapterSettings | None, given: Path | None) -> Candidate | None:
    named = run.get(PATH, None)
    if given is None and not named:
        if adapter is None:
            return None
        message = "holds an adapter, and does not say which weights it belongs to"
        raise EnvironmentProblem(
            Problem(path=str(candidate.path), code="base-missing", message=message, hint="add --base DIR with them")
        )
    try:
        base = find_whole(given or Path(str(named)).expanduser(), asked_by="--base")
    except EnvironmentProblem:
        if given is None and adapter is None:
            return None
        raise
    assert base.manifest is not None and candidate.manifest is not None
    wanted = {name: value for name, value in candidate.manifest.identity.items() if name != ADAPTER}
    problems = compare_identity(base.manifest.identity, wanted)
    if problems:
        message = f"belongs to another model than {candidate.path}:"
        head = Problem(path=str(base.path), code="other-model", message=message, hint="set --base to the weights it started from")
        raise NegativeAnswer([*problems, head])
    return base


@contextmanager
def whole_model(run: RunConfig) -> Iterator[Any]:
    """Build the model of a run on this process alone, and leave the process groups at the end.

    Raises:
        UsageError: a launcher has started several processes.
    """
    with process_of_one():
        [chunk] = build.build_bare_model(run, parallel.initialize(run, starts_weights=False))
        yield chunk


@contextmanager
def process_of_one() -> Iterator[None]:
    """Be the only process within the block, and leave the process groups at the end.

    Raises:
        UsageError: a launcher has started several processes.
    """
    for name in ("RANK", "LOCAL_RANK"):
        os.environ.setdefault(name, "0")
    os.environ.setdefault("WORLD_SIZE", "1")
    if os.environ["WORLD_SIZE"] != "1":
        raise UsageError("this runs on one process", hint="start it without a launcher; checkpoints of any layout are read")
    try:
        yield
    finally:
        parallel.shut_down()
