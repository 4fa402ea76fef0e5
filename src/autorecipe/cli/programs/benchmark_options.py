"""What each option of performance/setup_experiment.py sets, and which do nothing here or are refused.

Source: Megatron-Bridge scripts/performance/argument_parser.py and utils/overrides.py (2026-08). Evidence: enforced-upstream.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping

from autorecipe.cli.programs.refused import aside, secret
from autorecipe.config.grammar import render_value
from autorecipe.record import dataclass, field

TRUE = ("true", "1", "t", "yes", "y")
FALSE = ("false", "0", "f", "no", "n")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """An option that stands for configuration paths.

    Attributes:
        names: every spelling.
        sets: path -> value, with `{}` where the typed value goes.
        unsets: path -> value when the option is given as false.
        is_switch: whether it takes true or false.
        is_text: whether the value is a text, to be quoted where the grammar would read it as something else.
    """

    names: tuple[str, ...]
    sets: Mapping[str, str]
    unsets: Mapping[str, str] = field(default_factory=dict)
    is_switch: bool = False
    is_text: bool = False

    @property
    def dest(self) -> str:
        """Attribute name after parsing."""
        return self.names[-1].lstrip("-")

    @property
    def help(self) -> str:
        """One line for help."""
        return "sets " + ", ".join(path if value == "{}" else f"{path}={value}" for path, value in self.sets.items())

    def overrides(self, value: str) -> list[str]:
        """Return the override texts for a typed value."""
        chosen = self.unsets if self.is_switch and value == "false" else self.sets
        value = render_value(value) if self.is_text else value
        return [f"{path}={text.format(value)}" for path, text in chosen.items()]


def _one(names: str, path: str, text: str = "{}") -> Setting:
    return Setting(names=tuple(names.split()), sets={path: text})


def _text(names: str, path: str) -> Setting:
    return Setting(names=tuple(names.split()), sets={path: "{}"}, is_text=True)


def _switch(names: str, sets: Mapping[str, str], unsets: Mapping[str, str]) -> Setting:
    return Setting(names=tuple(names.split()), sets=sets, unsets=unsets, is_switch=True)


def read_switch(text: str) -> str:
    """Return `true` or `false` for what upstream takes for them.

    Raises:
        argparse.ArgumentTypeError: anything else.
    """
    if text.lower() in TRUE:
        return "true"
    if text.lower() in FALSE:
        return "false"
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")


SETTINGS: tuple[Setting, ...] = (
    _one("--hidden_size", "model.hidden_size"),
    _text("--pipeline_model_parallel_layout", "model.pipeline_model_parallel_layout"),
    _one("--most_recent_k", "checkpoint.most_recent_k"),
    _text("--dataset_root", "dataset.dataset_root"),
    _text("--diffusion_dataset_path", "dataset.path"),
    _text("--tokenizer_type", "tokenizer.tokenizer_type"),
    _text("--tokenizer_model", "tokenizer.tokenizer_model"),
    _one("--vocab_size", "tokenizer.vocab_size"),
    Setting(
        names=("-rl", "--recompute_num_layers"),
        sets={
            "model.recompute_granularity": "full",
            "model.recompute_method": "block",
            "model.recompute_num_layers": "{}",
        },
    ),
    Setting(
        names=("--recompute_modules",),
        sets={"model.recompute_granularity": "selective", "model.recompute_modules": "[{}]"},
    ),
    Setting(
        names=("-ol", "--activation_offload_layers"),
        sets={
            "model.cpu_offloading": "true",
            "model.cpu_offloading_weights": "false",
            "model.cpu_offloading_num_layers": "{}",
        },
    ),
    _switch(
        "--use_megatron_fsdp",
        {
            "ddp.use_megatron_fsdp": "true",
            "ddp.data_parallel_sharding_strategy": "optim_grads_params",
            "ddp.keep_fp8_transpose_cache": "false",
            "ddp.average_in_collective": "false",
            "model.init_model_with_meta_device": "true",
            "model.gradient_accumulation_fusion": "true",
            "checkpoint.load": "null",
        },
        {"ddp.use_megatron_fsdp": "false"},
    ),
    _switch(
        "--nccl_ub",
        {
            "ddp.nccl_ub": "true",
            "ddp.average_in_collective": "false",
            "++env_vars.NCCL_NVLS_ENABLE": "1",
            "++env_vars.NCCL_CTA_POLICY": "1",
        },
        {"ddp.nccl_ub": "false"},
    ),
    _one("--cuda_graph_scope", "model.cuda_graph_scope", "[{}]"),
    _switch(
        "--moe_a2a_overlap",
        {
            "comm_overlap.overlap_moe_expert_parallel_comm": "true",
            "comm_overlap.delay_wgrad_compute": "true",
            "model.moe_shared_expert_overlap": "false",
        },
        {"comm_overlap.overlap_moe_expert_parallel_comm": "false", "comm_overlap.delay_wgrad_compute": "false"},
    ),
    _switch(
        "--use_tokendrop",
        {
            "model.moe_expert_capacity_factor": "1.0",
            "model.moe_pad_expert_input_to_capacity": "true",
            "model.moe_router_force_load_balancing": "false",
        },
        {
            "model.moe_expert_capacity_factor": "null",
            "model.moe_pad_expert_input_to_capacity": "false",
            "model.moe_router_force_load_balancing": "true",
        },
    ),
    _text("-wdp --wandb_project_name", "logger.wandb_project"),
    _text("-wde --wandb_entity_name", "logger.wandb_entity"),
    _text("-wdj --wandb_experiment_name", "logger.wandb_exp_name"),
    _text("-wds --wandb_save_dir", "logger.wandb_save_dir"),
    _switch(
        "-pyp --pytorch_profiler",
        {"profiling.use_pytorch_profiler": "true"},
        {"profiling.use_pytorch_profiler": "false"},
    ),
    _one("--profiling_start_step", "profiling.profile_step_start"),
    _one("--profiling_stop_step", "profiling.profile_step_end"),
    _switch(
        "-mh --record_memory_history",
        {"profiling.record_memory_history": "true"},
        {"profiling.record_memory_history": "false"},
    ),
    _one("--profiling_ranks", "profiling.profile_ranks", "[{}]"),
)
"""Options that set configuration paths, whatever the recipe."""

UNTESTED = "nothing is compared after the job; read its log with `autorecipe parity compare`"
UNWRAPPED = "the job is not started under nsys here: wrap it yourself"
TESTING_VALUES = (
    *(f"--{name}_threshold" for name in ("timing", "correlation", "outlier", "memory")),
    *(f"--{name}_loss_tolerance" for name in ("high", "medium", "low", "final")),
    *(f"--skip_first_percent_{name}" for name in ("time", "loss")),
    *("--golden_values_path", "--max_outlier_ratio", "--eval_time_start_step", "--eval_time_end_step"),
)

IDLE = (
    aside("--domain", "the recipe decides the modality"),
    aside("--detach", "sbatch always detaches; use --wait to stay"),
    aside("--max_retries", "Slurm requeues by itself"),
    aside("--packager", "the code that the job sees is the one in the container or on the shared file system"),
    aside("--enable_pct_binding", "binding is the cluster's; pass it with --custom_srun_args"),
    aside("-vb --enable_vboost", "power settings are the cluster's; put the command into --custom_bash_cmds"),
    aside("--nsys_trace", UNWRAPPED),
    aside("--nsys_extra_args", UNWRAPPED),
    aside("--export_nsys_sqlite", UNWRAPPED, takes_value=False),
    aside("--profiling_gpu_metrics", UNWRAPPED, takes_value=False),
    aside("--optimizer_type", "the recipe decides the optimizer; choose the variant with --config_variant"),
    aside("--save_config_filepath", "`autorecipe config show` prints the configuration"),
    aside("--dump_env", "the script is shown whole with --dryrun", takes_value=False),
    aside("--is_long_convergence_run", UNTESTED, takes_value=False),
    aside("--retry_on_testing_failure", UNTESTED, takes_value=False),
    *(aside(name, UNTESTED) for name in TESTING_VALUES),
)
"""Options that are understood and do nothing here; each is told when it is given."""

ELSEWHERE = "this launcher submits to Slurm alone: leave it out"
REFUSED = (
    secret("-hf --hf_token", "HF_TOKEN"),
    secret("-wdk --wandb_key", "WANDB_API_KEY"),
    aside("--dataset_name", "name the data with --data"),
    aside("--packed_sequence", "write dataset.enable_offline_packing=true", takes_value=False),
    aside("--head_only", "name only those files with --dataset_paths", takes_value=False),
    aside("--list_config_variants", "`autorecipe recipes list --model NAME` lists them", takes_value=False),
    *(
        aside(f"--dgxc_{name}", ELSEWHERE)
        for name in (
            *("cluster", "base_url", "kube_apiserver_url", "app_id", "app_secret", "project_name"),
            *("pvc_claim_name", "pvc_mount_path"),
        )
    ),
    *(aside(f"--kubeflow_{name}", ELSEWHERE) for name in ("namespace", "workdir_pvc", "workdir_pvc_path", "image_pull_secrets")),
)


def setting_overrides(given: argparse.Namespace, settings: Iterable[Setting] = SETTINGS) -> list[str]:
    """Return the overrides of the settings that were given."""
    return [
        text for setting in settings if (value := getattr(given, setting.dest)) is not None for text in setting.overrides(value)
    ]
