"""Fields of the loop, data and checkpoints that this engine does not act on: refused or said, never dropped in silence.

Only values that differ from `do nothing` matter. Fields that change the training are refused; the others are named in a note.
The model's fields are `autorecipe.engine.transformer`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autorecipe.engine.adapters.settings import read_adapter
from autorecipe.errors import Problem, UsageError
from autorecipe.schema.run import RunConfig
from autorecipe.schema.value import UNKNOWN

REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "train.num_epochs": ((), "set train.train_iters or train.train_samples"),
    "train.step_batch_size_schedule": ((), "use train.rampup_batch_size"),
    "validation.full_validation": ((False,), "set validation.eval_iters"),
    "validation.multiple_validation_sets": ((False,), "validate one set at a time"),
    "dataset.full_validation": ((False,), "set validation.eval_iters"),
    "dataset.multiple_validation_sets": ((False,), "validate one set at a time"),
    "dataset.inter_document_masking": ((False,), "use dataset.reset_attention_mask=true"),
    "dataset.hybrid_context_parallel": ((False,), "switch it off"),
    "dataset.add_extra_token_to_sequence": ((True,), "switch it on"),
    "dataset.drop_last": ((True,), "switch it on"),
    "checkpoint.ckpt_format": (("torch_dist",), "use checkpoint.ckpt_format=torch_dist"),
    "checkpoint.ckpt_step": ((), "move later checkpoints out of the folder"),
    "checkpoint.load_main_params_from_ckpt": ((False,), "switch it off"),
    "dist.eval_context_parallel_size": ((), "unset it"),
    "dist.use_megatron_fsdp": ((False,), "switch it off"),
    "dist.use_torch_fsdp2": ((False,), "switch it off"),
    "ddp.use_megatron_fsdp": ((False,), "switch it off"),
}
"""Path -> (values that change nothing besides unset, what to do). Another value would train something else."""

FOR_FINETUNING = frozenset({"dataset.drop_last"})
"""Refused with pretraining data only."""

SAID: Mapping[str, tuple[Any, ...]] = {
    "checkpoint.non_persistent_save_interval": (),
    "checkpoint.save_retain_interval": (),
    "checkpoint.also_save_hf_checkpoint": (False,),
    "checkpoint.replication": (False,),
    "checkpoint.custom_manager_class": (),
    "logger.mlflow_experiment": (),
    "logger.comet_project": (),
    "logger.log_energy": (False,),
    "logger.log_progress": (False,),
    "logger.moe_routing_trace_path": (),
    "logger.save_config_filepath": (),
    "profiling.use_nsys_profiler": (False,),
    "profiling.use_pytorch_profiler": (False,),
    "profiling.record_memory_history": (False,),
    "train.check_weight_hash_across_dp_replicas_interval": (),
    "train.gpu_sniff_test_interval": (),
    "rerun_state_machine.check_for_spiky_loss": (False,),
    "rerun_state_machine.rerun_mode": ("disabled",),
    "rerun_state_machine.error_injection_rate": (0,),
    "ft._class": (),
    "straggler._class": (),
    "nvrx_straggler._class": (),
    "tensor_inspect._class": (),
    "inprocess_restart._class": (),
}
"""Path -> values that ask for nothing besides unset. Another value has no effect on what is trained."""

DATASETS = ("GPTDatasetConfig", "MockGPTDatasetConfig", "GPTSFTDatasetConfig")


def check_supported(run: RunConfig, *, from_scratch: bool = False) -> tuple[str, ...]:
    """Return a note for each setting that has no effect here.

    Args:
        run: a resolved configuration.
        from_scratch: whether an adapter may stand on random weights, to try out a run.

    Raises:
        UsageError: naming every setting that would train something else.
    """
    problems = []
    tunes = run.get("dataset._class", None) == "GPTSFTDatasetConfig"
    for path, (neutral, remedy) in REFUSED.items():
        value = _set_value(run, path)
        if value is not None and value not in neutral and not (path in FOR_FINETUNING and tunes):
            problems.append(_refusal(path, value, remedy))
    kind = run.get("dataset._class", None)
    if isinstance(kind, str) and kind not in DATASETS:
        problems.append(_refusal("dataset", kind, "use --dataset mock, megatron-indexed, or a text preset such as squad"))
    without = not from_scratch and _set_value(run, "checkpoint.pretrained_checkpoint") is None
    if read_adapter(run) is not None and without:
        problems.append(
            Problem(
                path="checkpoint.pretrained_checkpoint",
                code="missing-value",
                message="is not set: an adapter needs the weights that it adapts",
                hint="add checkpoint.pretrained_checkpoint=FOLDER, one that training saved to; or try it out with --from-scratch",
            )
        )
    if problems:
        raise UsageError(problems)
    return tuple(
        f"{path}={value!r} has no effect in --engine core"
        for path, neutral in SAID.items()
        if (value := _set_value(run, path)) is not None and value not in neutral
    )


def _set_value(run: RunConfig, path: str) -> Any:
    value = run.get(path, None)
    return None if value is UNKNOWN else value


def _refusal(path: str, value: Any, remedy: str) -> Problem:
    return Problem(
        path=path,
        code="engine-unsupported",
        message=f"{value!r} is not in --engine core",
        hint=f"{remedy}; or add --engine bridge",
    )
