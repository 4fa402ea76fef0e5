#!/usr/bin/env python3
"""Benchmark a model by selectors: family, model, task, GPU count and type, precision; sizes and data may be replaced.

    python scripts/performance/setup_experiment.py -m qwen -mr qwen3_30b_a3b --task pretrain -ng 16 -g h100 -c bf16 \
        -a ACCOUNT -p PARTITION -i IMAGE --dryrun

An exact benchmark recipe is taken where one is written for this count; otherwise the nearest count is, and what that means
for the global batch is said. Any override makes the measurement non-canonical. Same code and exit codes as `autorecipe launch`.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # this checkout, not one that is installed

from autorecipe.api.launch import (
    LaunchRequest,
    plan_slurm,
    prepare_launch,
    select_benchmark,
    select_recipe,
    start,
)
from autorecipe.catalog.hardware import load_gpus
from autorecipe.config.convenience import CONVENIENCE_FLAGS, convenience_overrides
from autorecipe.config.grammar import render_value
from autorecipe.errors import AutorecipeError, UsageError
from autorecipe.schema.finding import Severity
from autorecipe.schema.launch import SlurmJob

PRECISIONS = {"bf16": "bf16", "fp8_cs": "fp8cs", "fp8_mx": "fp8mx", "fp8_sc": "fp8sc", "nvfp4": "nvfp4"}

FURTHER = {
    "cuda_graph_impl": "model.cuda_graph_impl",
    "cuda_graph_scope": "model.cuda_graph_scope",
    "recompute_num_layers": "model.recompute_num_layers",
    "recompute_modules": "model.recompute_modules",
    "activation_offload_layers": "model.cpu_offloading_num_layers",
    "use_megatron_fsdp": "ddp.use_megatron_fsdp",
    "nccl_ub": "ddp.nccl_ub",
    "moe_flex_dispatcher_backend": "model.moe_flex_dispatcher_backend",
    "hidden_size": "model.hidden_size",
    "num_layers": "model.num_layers",
    "pipeline_model_parallel_layout": "model.pipeline_model_parallel_layout",
}
"""Options that set one configuration path each, beside the convenience flags."""

RENAMED = {"-etp": "-et"}
"""Short flags that this launcher spells otherwise than run_recipe.py does."""

WITHOUT_EFFECT = {
    "--domain": "the recipe decides the modality",
    "--detach": "sbatch always detaches; use --wait to stay",
    "--max_retries": "Slurm requeues by itself",
    "--packager": "the code that the job sees is the one in the container or on the shared file system",
    "--nemo_home": "export NEMO_HOME and pass --env NEMO_HOME",
}
"""Upstream options that are understood and do nothing here, with the reason that is printed."""

UNTESTED = "nothing is compared after the job; read its log with `autorecipe parity compare`"
UNWRAPPED = "the job is not started under nsys here: wrap it yourself"
ELSEWHERE = "this launcher submits to Slurm alone"
WITHOUT_EFFECT |= {
    "--enable_pct_binding": "binding is the cluster's; pass it with --custom_srun_args",
    "--enable_vboost": "power settings are the cluster's; put the command into --custom_bash_cmds",
    "--lock_gpu_freq": "clocks are the cluster's; put the command into --custom_bash_cmds",
    "--nsys_trace": UNWRAPPED,
    "--nsys_extra_args": UNWRAPPED,
    "--optimizer_type": "the recipe decides the optimizer; choose the variant with --config_variant",
    "--save_config_filepath": "`autorecipe config show` prints the configuration",
    **{f"--dgxc_{name}": ELSEWHERE for name in ("cluster", "base_url", "kube_apiserver_url", "app_id", "project_name")},
    **{f"--dgxc_pvc_{name}": ELSEWHERE for name in ("claim_name", "mount_path")},
    **{f"--kubeflow_{name}": ELSEWHERE for name in ("namespace", "workdir_pvc", "workdir_pvc_path", "image_pull_secrets")},
    **{f"--{name}_threshold": UNTESTED for name in ("timing", "correlation", "outlier", "memory")},
    **{f"--{name}_loss_tolerance": UNTESTED for name in ("high", "medium", "low", "final")},
    **{f"--skip_first_percent_{name}": UNTESTED for name in ("time", "loss")},
    **{
        f"--{name}": UNTESTED
        for name in ("golden_values_path", "max_outlier_ratio", "eval_time_start_step", "eval_time_end_step")
    },
}
IDLE_FLAGS = {
    "--export_nsys_sqlite": UNWRAPPED,
    "--profiling_gpu_metrics": UNWRAPPED,
    "--dump_env": "the script is shown whole with --dryrun",
    "--list_config_variants": "`autorecipe recipes list --model NAME` lists them",
    "--is_long_convergence_run": UNTESTED,
    "--retry_on_testing_failure": UNTESTED,
}
"""The same for options without a value. Source of the names: Megatron-Bridge scripts/performance/argument_parser.py."""

PROFILING = {
    ("-pyp", "--pytorch_profiler"): "profiling.use_pytorch_profiler",
    ("--profiling_start_step",): "profiling.profile_step_start",
    ("--profiling_stop_step",): "profiling.profile_step_end",
    ("-mh", "--record_memory_history"): "profiling.record_memory_history",
    ("--profiling_ranks",): "profiling.profile_ranks",
}
"""Profiling options that set one configuration path each."""

SECRET = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|KEY|AUTHORIZATION)(_|$)", re.IGNORECASE)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    what = parser.add_argument_group("selection")
    what.add_argument("-m", "--model_family_name", required=True, help="family, such as llama")
    what.add_argument("-mr", "--model_recipe_name", required=True, help="model, such as llama31_405b")
    what.add_argument("--task", choices=("pretrain", "sft", "lora"), default="pretrain")
    what.add_argument("-ng", "--num_gpus", type=int, required=True, help="GPUs in total")
    what.add_argument("-g", "--gpu", required=True, type=str.lower, help="GPU type")
    what.add_argument("-c", "--compute_dtype", choices=sorted(PRECISIONS), default="bf16")
    what.add_argument("-cv", "--config_variant", default="", help="variant in the recipe's name")
    what.add_argument("--use_recipes", action="store_true", help="take the library recipe instead of the benchmark recipe")
    what.add_argument("--data", default="", help="dataset preset instead of the recipe's own")
    what.add_argument(
        "-d", "--dryrun", "--dry-run", "--dry_run", action="store_true", dest="dryrun", help="show everything, submit nothing"
    )
    slurm = parser.add_argument_group("Slurm")
    slurm.add_argument("-a", "--account", default=os.environ.get("SLURM_ACCOUNT", ""))
    slurm.add_argument("-p", "--partition", default=os.environ.get("SLURM_PARTITION", ""))
    slurm.add_argument("-t", "--time_limit", default="00:30:00")
    slurm.add_argument("-gn", "--gpus_per_node", type=int, help="GPUs of each host; default by GPU type")
    slurm.add_argument("-i", "--container_image", default=os.environ.get("CONTAINER_IMAGE", ""))
    slurm.add_argument("-cm", "--custom_mounts", default="", help="mounts, separated by commas")
    slurm.add_argument("-ce", "--custom_env_vars", default="", help="NAME=VALUE pairs that are no secrets, separated by commas")
    slurm.add_argument(
        "-E",
        "--env",
        action="append",
        default=[],
        metavar="NAME",
        help="exported variable to pass on; NAME=VALUE only for no secrets",
    )
    slurm.add_argument("-cs", "--custom_srun_args", default="", help="options of srun, separated by commas")
    slurm.add_argument("-cb", "--custom_bash_cmds", action="append", nargs="*", default=[], help="shell lines before the run")
    slurm.add_argument("--gres", default="")
    slurm.add_argument("--additional_slurm_params", default="", metavar="KEY=VALUE;...")
    slurm.add_argument("-l", "--log_dir", default="logs")
    slurm.add_argument("--offline", action="store_true", help="Hugging Face Hub offline (HF_HUB_OFFLINE=1)")
    slurm.add_argument("--wait", action="store_true", help="return when the job has ended")
    for name, reason in WITHOUT_EFFECT.items():
        slurm.add_argument(name, help=f"no effect here: {reason}")
    for name, reason in IDLE_FLAGS.items():
        slurm.add_argument(name, action="store_const", const=True, help=f"no effect here: {reason}")
    profiling = parser.add_argument_group("profiling")
    profiling.add_argument("-en", "--enable_nsys", action="store_true", help="sets profiling.use_nsys_profiler")
    for names, path in PROFILING.items():
        profiling.add_argument(*names, metavar="VALUE", help=f"sets {path}")
    change = parser.add_argument_group("overrides (each makes the measurement non-canonical)")
    for flag in CONVENIENCE_FLAGS:
        names = [RENAMED.get(name, name) for name in flag.flags]
        change.add_argument(*names, dest=flag.dest, type=flag.type, metavar=flag.metavar, help=flag.help)
    for dest, path in FURTHER.items():
        change.add_argument(f"--{dest}", dest=dest, metavar="VALUE", help=f"sets {path}")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Select, render, and unless it is a dry run, submit; returns the exit code."""
    parser = make_parser()
    given, rest = parser.parse_known_args(list(arguments))
    unknown = [word for word in rest if word.startswith("-") or "=" not in word]
    if unknown:
        parser.error(f"not an option or KEY=VALUE: {' '.join(unknown)}")
    usual = load_gpus()[given.gpu].gpus_per_node if given.gpu in load_gpus() else 8
    per_node = given.gpus_per_node or min(usual, given.num_gpus)
    if given.use_recipes:
        recipe, notes = select_recipe(model=given.model_recipe_name, mode=given.task), ()
    else:
        recipe, notes = select_benchmark(
            model=given.model_recipe_name,
            task=given.task,
            gpus=given.num_gpus,
            gpu=given.gpu,
            precision=PRECISIONS[given.compute_dtype],
            variant=given.config_variant,
        )
    overrides = (*convenience_overrides(vars(given)), *_further_overrides(given), *rest)
    prepared = prepare_launch(
        LaunchRequest(
            recipe=recipe,
            overrides=overrides,
            dataset=given.data,
            mode=given.task,
            nodes=-(-given.num_gpus // per_node),
            gpus_per_node=per_node,
            gpu=given.gpu,
        )
    )
    script_path = f"{given.log_dir}/{recipe}.sbatch"
    plan = plan_slurm(prepared, make_job(given, recipe), script_path=script_path)
    idle = [
        f"note: {name} has no effect here: {why}"
        for name, why in (WITHOUT_EFFECT | IDLE_FLAGS).items()
        if getattr(given, name[2:]) is not None
    ]
    if given.enable_nsys:
        idle.append(f"note: --enable_nsys sets profiling.use_nsys_profiler=true; {UNWRAPPED}")
    for message in (*idle, *notes, *prepared.messages):
        print(message, file=sys.stderr)
    for finding in prepared.findings:
        if finding.severity in (Severity.ERROR, Severity.WARN):
            print(f"{finding.severity.value}[{finding.rule}]: {finding.message}", file=sys.stderr)
    if given.dryrun:
        print(plan.script)
        return 1 if prepared.errors else 0
    done = start(plan, prepared, script_path=script_path, wait=given.wait)
    print(f"job {done.job_id}, log {done.log_path}")
    return done.exit_status


def _further_overrides(given: argparse.Namespace) -> list[str]:
    texts = []
    for dest, path in FURTHER.items():
        value = getattr(given, dest)
        if value is None:
            continue
        if dest in ("cuda_graph_scope", "recompute_modules"):
            texts.append(f"{path}={render_value(value.split(','))}")
        else:
            texts.append(f"{path}={'null' if value == 'None' else value}")
    texts += ["profiling.use_nsys_profiler=true"] if given.enable_nsys else []
    for names, path in PROFILING.items():
        value = getattr(given, names[-1][2:])
        if value is not None:
            texts.append(f"{path}=[{value}]" if path.endswith("ranks") else f"{path}={value.lower()}")
    return texts


def make_job(given: argparse.Namespace, recipe: str) -> SlurmJob:
    """Turn options into a submission."""
    extra = [part.strip().lstrip("-") for part in given.additional_slurm_params.split(";") if part.strip()]
    setup = [" ".join(words) for words in given.custom_bash_cmds]
    pairs = [pair for pair in given.custom_env_vars.split(",") if pair] + [text for text in given.env if "=" in text]
    secret = [pair.partition("=")[0] for pair in pairs if SECRET.search(pair.partition("=")[0])]
    if secret:
        raise UsageError(
            f"{', '.join(secret)}: the value of a secret must not appear in arguments or scripts",
            hint=f"export {secret[0]} in this shell, then pass --env {secret[0]}",
        )
    setup += [f"export {name}={shlex.quote(value)}" for name, _, value in (pair.partition("=") for pair in pairs)]
    if given.offline:
        setup.append("export HF_HUB_OFFLINE=1")
    return SlurmJob(
        account=given.account,
        partition=given.partition,
        time_limit=given.time_limit,
        job_name=recipe,
        log_dir=given.log_dir,
        container_image=given.container_image,
        mounts=tuple(part for part in given.custom_mounts.split(",") if part),
        forwarded=tuple(text for text in given.env if "=" not in text),
        srun_arguments=tuple(part for part in given.custom_srun_args.split(",") if part),
        sbatch_options=dict(part.partition("=")[::2] for part in extra),
        gres=given.gres,
        setup=tuple(setup),
    )


def main() -> int:
    """Run the command line."""
    try:
        return run(sys.argv[1:])
    except AutorecipeError as error:
        for problem in error.problems:
            print(problem.render(), file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
