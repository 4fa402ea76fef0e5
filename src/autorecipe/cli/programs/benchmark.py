"""The command line of performance/setup_experiment.py: a benchmark by family, model, task, GPU count and type, precision.

Start reading at `run`; `benchmark_options` says what each option sets.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from typing import Any

from autorecipe.api.launch import LaunchRequest, plan_slurm, prepare_launch
from autorecipe.api.recipes import find_recipe
from autorecipe.api.selectors import select_benchmark, select_recipe
from autorecipe.catalog.hardware import load_gpus
from autorecipe.cli.programs.benchmark_options import IDLE, REFUSED, SETTINGS, UNWRAPPED, read_switch, setting_overrides
from autorecipe.cli.programs.refused import Parser
from autorecipe.cli.programs.submission import once_per_host, show_or_submit, split_sbatch_options
from autorecipe.cli.programs.training import deterministic_overrides, flag_overrides
from autorecipe.config.convenience import CONVENIENCE_FLAGS
from autorecipe.config.grammar import render_value
from autorecipe.errors import Problem, UsageError
from autorecipe.schema.launch import SlurmJob
from autorecipe.schema.recipe import Recipe, RecipeKind

PRECISIONS = {"bf16": "bf16", "fp8_cs": "fp8cs", "fp8_mx": "fp8mx", "fp8_sc": "fp8sc", "nvfp4": "nvfp4"}
RENAMED = {"-etp": "-et"}
"""Short flags that this launcher spells otherwise than run_recipe.py does."""

SECRET = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|KEY|AUTHORIZATION)(_|$)", re.IGNORECASE)
INDEXED_SPLIT = "99990,8,2"
"""Train, validation and test shares of the text that `--data rp2` names.

Source: Megatron-Bridge scripts/performance/utils/datasets.py (2026-08). Evidence: enforced-upstream.
"""


def make_parser() -> Parser:
    """Return the parser."""
    parser = Parser(
        prog="setup_experiment.py", description="Benchmark a model, selected by what it is.", idle=IDLE, refused=REFUSED
    )
    what = parser.add_argument_group("selection")
    what.add_argument("-m", "--model_family_name", required=True, help="family, such as llama")
    what.add_argument("-mr", "--model_recipe_name", required=True, help="model, such as llama31_405b")
    what.add_argument(
        "--task", choices=("pretrain", "sft", "lora"), default="pretrain", help="pretrain, sft or lora  [default: pretrain]"
    )
    what.add_argument("-ng", "--num_gpus", type=int, required=True, help="GPUs in total")
    what.add_argument("-g", "--gpu", required=True, type=str.lower, help="GPU type")
    what.add_argument("-c", "--compute_dtype", choices=sorted(PRECISIONS), default="bf16", help="precision  [default: bf16]")
    what.add_argument("-cv", "--config_variant", default="", help="variant in the recipe's name")
    what.add_argument("--use_recipes", action="store_true", help="take the library recipe instead of the benchmark recipe")
    what.add_argument(
        "-d", "--dryrun", "--dry-run", "--dry_run", action="store_true", dest="dryrun", help="show everything, submit nothing"
    )
    data = parser.add_argument_group("data")
    data.add_argument("--data", default="", help="mock, rp2, c4, or with --use_recipes a preset such as squad")
    data.add_argument("--c4_root", help="folder of the indexed C4 files")
    data.add_argument("--c4_train_shards", nargs="*", type=int, default=[6], help="shards to train on  [default: 6]")
    data.add_argument("--dataset_paths", nargs="*", default=[], help="prefixes of the indexed text for rp2")
    data.add_argument("--index_mapping_dir", help="sets dataset.path_to_cache")
    slurm = parser.add_argument_group("Slurm")
    slurm.add_argument(
        "-a", "--account", default=os.environ.get("SLURM_ACCOUNT", ""), help="accounting group; default $SLURM_ACCOUNT"
    )
    slurm.add_argument("-p", "--partition", default=os.environ.get("SLURM_PARTITION", ""), help="queue; default $SLURM_PARTITION")
    slurm.add_argument("-t", "--time_limit", default="00:30:00", help="time limit  [default: 00:30:00]")
    slurm.add_argument("-gn", "--gpus_per_node", type=int, help="GPUs of each host; default by GPU type")
    slurm.add_argument(
        "-i", "--container_image", default=os.environ.get("CONTAINER_IMAGE", ""), help="image; default $CONTAINER_IMAGE"
    )
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
    slurm.add_argument("--gres", default="", help="generic resources instead of GPUs per host")
    slurm.add_argument(
        "--additional_slurm_params", default="", metavar="KEY=VALUE;...", help="further sbatch options, separated by semicolons"
    )
    slurm.add_argument("-l", "--log_dir", default="logs", help="folder of script and log  [default: logs]")
    slurm.add_argument("-nh", "--nemo_home", help="sets the variable NEMO_HOME in the job")
    slurm.add_argument("--offline", action="store_true", help="Hugging Face Hub offline (HF_HUB_OFFLINE=1)")
    slurm.add_argument("-lgc", "--lock_gpu_freq", type=int, metavar="MHZ", help="lock the GPU clock, once per host")
    slurm.add_argument("-lmc", "--peak_mem_clk", type=int, metavar="MHZ", help="lock the GPU memory clock, once per host")
    slurm.add_argument("--wait", action="store_true", help="return when the job has ended")
    change = parser.add_argument_group("overrides (each makes the measurement non-canonical)")
    for flag in CONVENIENCE_FLAGS:
        names = [RENAMED.get(name, name) for name in flag.flags]
        optional: dict[str, Any] = {"nargs": "?", "const": "none"} if flag.dest == "expert_tensor_parallel_size" else {}
        change.add_argument(*names, dest=flag.dest, metavar=flag.metavar, help=flag.help, **optional)
    change.add_argument("--num_layers", type=int, help="sets model.num_layers, and which layers are dense with it")
    change.add_argument("--first_k_dense_replace", type=int, metavar="K", help="makes the first K layers dense")
    change.add_argument(
        "--cuda_graph_impl", choices=("none", "local", "transformer_engine"), help="sets the RNG trackers that it needs, too"
    )
    change.add_argument("--moe_flex_dispatcher_backend", metavar="BACKEND", help="deepep, hybridep, or None for all-to-all")
    change.add_argument("--deterministic", action="store_true", help="sets what upstream sets for the same bits in every run")
    change.add_argument("-en", "--enable_nsys", action="store_true", help="sets profiling.use_nsys_profiler")
    for setting in SETTINGS:
        change.add_argument(
            *setting.names,
            dest=setting.dest,
            metavar="true|false" if setting.is_switch else "VALUE",
            type=read_switch if setting.is_switch else str,
            help=setting.help,
        )
    parser.add_asides()
    return parser


def run(arguments: Sequence[str]) -> int:
    """Select, render, and unless it is a dry run, submit; returns the exit code.

    Raises:
        UsageError: everything that is unknown or refused; no such benchmark.
        NegativeAnswer: the recipe does not lie on the allocation.
        EnvironmentProblem: no Slurm here.
    """
    parser = make_parser()
    given, rest = parser.parse_known_args(list(arguments))
    notes = list(parser.check_asides(given))
    unknown = parser.unknown([word for word in rest if word.startswith("-") or "=" not in word])
    if unknown:
        raise UsageError(unknown)
    usual = load_gpus()[given.gpu].gpus_per_node if given.gpu in load_gpus() else 8
    per_node = given.gpus_per_node or min(usual, given.num_gpus)
    if given.num_gpus < 1 or per_node < 1 or given.num_gpus % per_node:
        message = f"{given.num_gpus} GPUs are no whole number of hosts with {per_node} each"
        raise UsageError(Problem(code="usage", path="--num_gpus", message=message, hint="give --gpus_per_node as well"))
    recipe, more = _select(given)
    if given.model_family_name != recipe.family:
        notes.append(
            f"note: {recipe.name} is of family {recipe.family}; --model_family_name {given.model_family_name} plays no part"
        )
    variables, forwarded = _variables(given)
    prepared = prepare_launch(
        LaunchRequest(
            recipe=recipe.name,
            overrides=(*flag_overrides(vars(given)), *_overrides(given, recipe), *rest),
            dataset=_preset(given, recipe),
            mode=given.task,
            nodes=given.num_gpus // per_node,
            gpus_per_node=per_node,
            gpu=given.gpu,
            inherited=forwarded,
        )
    )
    script_path = f"{given.log_dir}/{recipe.name}.sbatch"
    job = make_job(given, recipe, nodes=prepared.allocation.num_nodes, variables=variables, forwarded=forwarded)
    plan = plan_slurm(prepared, job, script_path=script_path)
    if given.enable_nsys:
        notes.append(f"note: --enable_nsys sets profiling.use_nsys_profiler=true; {UNWRAPPED}")
    return show_or_submit(plan, prepared, script_path=script_path, dry_run=given.dryrun, wait=given.wait, notes=(*notes, *more))


def make_job(
    given: argparse.Namespace, recipe: Recipe, *, nodes: int, variables: dict[str, str], forwarded: tuple[str, ...]
) -> SlurmJob:
    """Turn options into a submission."""
    clocks = (("-lgc", given.lock_gpu_freq), ("-lmc", given.peak_mem_clk))
    locks = [
        once_per_host(nodes, f"sudo nvidia-smi {flag} {clock},{clock}")
        for flag, clock in clocks
        if clock is not None and clock > 0
    ]
    return SlurmJob(
        account=given.account,
        partition=given.partition,
        time_limit=given.time_limit,
        job_name=recipe.name,
        log_dir=given.log_dir,
        container_image=given.container_image,
        mounts=tuple(part for part in given.custom_mounts.split(",") if part),
        forwarded=forwarded,
        srun_arguments=tuple(part for part in given.custom_srun_args.split(",") if part),
        sbatch_options=split_sbatch_options(given.additional_slurm_params),
        gres=given.gres,
        variables=variables,
        setup=(*(" ".join(words) for words in given.custom_bash_cmds), *locks),
    )


def _select(given: argparse.Namespace) -> tuple[Recipe, tuple[str, ...]]:
    if given.use_recipes:
        return find_recipe(select_recipe(model=given.model_recipe_name, mode=given.task)), ()
    name, notes = select_benchmark(
        model=given.model_recipe_name,
        task=given.task,
        gpus=given.num_gpus,
        gpu=given.gpu,
        precision=PRECISIONS[given.compute_dtype],
        variant=given.config_variant,
    )
    return find_recipe(name), notes


def _variables(given: argparse.Namespace) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return variables that the script sets, and names that it passes on.

    Raises:
        UsageError: the value of a secret.
    """
    pairs = [pair for pair in given.custom_env_vars.split(",") if pair] + [text for text in given.env if "=" in text]
    variables = dict(pair.partition("=")[::2] for pair in pairs)
    secret = [name for name in variables if SECRET.search(name)]
    if secret:
        raise UsageError(
            f"{', '.join(secret)}: the value of a secret must not appear in arguments or scripts",
            hint=f"export {secret[0]} in this shell, then pass --env {secret[0]}",
        )
    if given.offline:
        variables["HF_HUB_OFFLINE"] = "1"
    if given.nemo_home:
        variables["NEMO_HOME"] = given.nemo_home
    return variables, tuple(text for text in given.env if "=" not in text)


def _overrides(given: argparse.Namespace, recipe: Recipe) -> list[str]:
    texts = [*_data_overrides(given), *_layer_overrides(given, recipe), *setting_overrides(given)]
    if given.cuda_graph_impl is not None:
        texts.append(f"model.cuda_graph_impl={given.cuda_graph_impl}")
        tracked = str(given.cuda_graph_impl != "none").lower()
        texts += [f"{path}={tracked}" for path in ("rng.te_rng_tracker", "model.use_te_rng_tracker")]
    backend = given.moe_flex_dispatcher_backend
    if backend is not None:
        flexible = backend.lower() != "none"
        texts.append(f"model.moe_flex_dispatcher_backend={backend if flexible else 'null'}")
        texts.append(f"model.moe_token_dispatcher_type={'flex' if flexible else 'alltoall'}")
    if given.deterministic:
        texts += deterministic_overrides(recipe.name)
    return [*texts, *(["profiling.use_nsys_profiler=true"] if given.enable_nsys else [])]


def _layer_overrides(given: argparse.Namespace, recipe: Recipe) -> list[str]:
    """Return the number of layers and which of them are dense, where the recipe lists them."""
    layers, dense = given.num_layers, given.first_k_dense_replace
    texts = [f"model.num_layers={layers}"] if layers is not None else []
    listed = recipe.fields.get("model.moe_layer_freq")
    if dense is None and layers is not None and isinstance(listed, list | tuple):
        dense = list(listed).count(0)
    if dense is None:
        return texts
    total = layers if layers is not None else recipe.fields.get("model.num_layers")
    if not isinstance(total, int) or not 0 <= dense <= total:
        message = f"{dense} of {total} layers cannot be dense"
        raise UsageError(Problem(code="usage", path="--first_k_dense_replace", message=message))
    return [*texts, f"model.moe_layer_freq={render_value([0] * dense + [1] * (total - dense))}"]


def _preset(given: argparse.Namespace, recipe: Recipe) -> str:
    """Return the preset for run_recipe.py; a benchmark recipe keeps its own data, which is mock for pretraining."""
    if given.data in ("", "rp2", "c4"):
        return ""
    if recipe.kind is not RecipeKind.BENCHMARK:
        return "squad" if given.data == "squad_packed" else str(given.data)
    if given.data == "mock":
        return ""
    hint = "leave out --data, or add --use_recipes for the library recipe"
    message = f"{given.data}: benchmark recipe {recipe.name} keeps its own data"
    raise UsageError(Problem(code="usage", path="--data", message=message, hint=hint))


def _data_overrides(given: argparse.Namespace) -> list[str]:
    cache = [f"dataset.path_to_cache={render_value(given.index_mapping_dir)}"] if given.index_mapping_dir else []
    if given.data == "squad_packed":
        return ["dataset.enable_offline_packing=true", *cache]
    if given.data == "rp2":
        if not given.dataset_paths:
            raise UsageError(
                Problem(code="usage", path="--dataset_paths", message="is required with --data rp2", hint="PREFIX...")
            )
        return [f"dataset.data_path={render_value(given.dataset_paths)}", f"dataset.split='{INDEXED_SPLIT}'", *cache]
    if given.data != "c4":
        return cache
    if not given.c4_root:
        raise UsageError(Problem(code="usage", path="--c4_root", message="is required with --data c4"))
    root = given.c4_root.rstrip("/")
    shards = [f"{root}/c4-train.en_{shard}_text_document" for shard in given.c4_train_shards]
    held_out = [[f"{root}/c4-validation-91205-samples.en_text_document"], None]
    blend = render_value([[shards, [50.0] * len(shards)], held_out, held_out])
    return ["dataset.blend=null", "dataset.split=null", f"dataset.blend_per_split={blend}", *cache]
