"""LCH: what the launch says: mode, data set, benchmark recipes, processes, names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

from autorecipe.rules.context import Context
from autorecipe.rules.declare import adjusts, computes, requires
from autorecipe.rules.rule import Breach, Verdict
from autorecipe.schema import Evidence, Fix, Severity, Stage
from autorecipe.schema.preset import ANY_MODE, TEXT_FINETUNING, TEXT_PRETRAINING

BOTH = ("bridge", "megatron-lm")
PRETRAIN_PRESETS = (*TEXT_PRETRAINING, "dclm", "rp2", "c4")
"""With those that only the launcher of the benchmarks knows."""
ADAPTERS = ("peft", "lora", "dora")
GBS = "train.global_batch_size"


def _task(mode: str) -> str:
    return "peft" if mode in ADAPTERS else "sft" if mode in ("sft", "finetune") else mode


def _mode(context: Context) -> str:
    return _task(str(context.given.get("mode") or context.config.mode or ""))


@computes(
    "LCH001",
    "BR-MODE-01",
    "data-set presets belong to pretraining or to fine-tuning",
    formula="mock, megatron-indexed: pretraining; squad, tulu3, gsm8k ...: SFT and PEFT; energon: either",
    paths="dataset",
    stage=Stage.LAUNCH,
    source="rr:441",
    why="A mock preset builds a pretraining data set; fine-tuning on it is refused.",
    bad="given.dataset=mock given.mode=sft checkpoint.pretrained_checkpoint=/m",
    good="given.dataset=squad",
)
def dataset_mode(context: Context) -> Iterator[Verdict]:
    """Check the data-set preset against the mode."""
    preset, mode = context.given.get("dataset"), _mode(context)
    if not preset or not mode or preset in ANY_MODE:
        return
    legal = list(PRETRAIN_PRESETS if mode == "pretrain" else TEXT_FINETUNING)
    wrong = preset in (TEXT_FINETUNING if mode == "pretrain" else PRETRAIN_PRESETS)
    if wrong:
        yield Breach(
            message=f"data set {preset!r} is for {'fine-tuning' if mode == 'pretrain' else 'pretraining'}, the mode is {mode}",
            paths=("given.dataset", "given.mode"),
            legal={"given.dataset": [*legal, *ANY_MODE]},
            fixes=(Fix(overrides={"given.dataset": legal[0]}),),
            hint=f"--dataset {legal[0]}",
        )


@computes(
    "LCH002",
    "BR-MODE-02",
    "the mode agrees with the recipe's name",
    formula="task in the name of the recipe == task of --mode",
    paths="model",
    stage=Stage.LAUNCH,
    source="rr:304",
    why="The name says which data and which loop the recipe is written for.",
    bad="recipe=llama3_8b_pretrain_config given.mode=sft checkpoint.pretrained_checkpoint=/m",
    good="given.mode=pretrain",
)
def recipe_mode(context: Context) -> Iterator[Verdict]:
    """Compare the task in the recipe's name with the mode."""
    given = context.given.get("mode")
    named = next((task for task in ("pretrain", "sft", "peft") if f"_{task}_" in f"{context.config.recipe}_"), None)
    if given and named and _task(str(given)) != named:
        yield Breach(
            message=f"{context.config.recipe} is a {named} recipe, the mode is {given}",
            paths=("given.mode",),
            legal={"given.mode": [named] if named != "peft" else list(ADAPTERS)},
            fixes=(Fix(overrides={"given.mode": named}),),
            hint=f"use the recipe's {_task(str(given))} variant",
        )


@computes(
    "LCH003",
    "BR-BENCH-01 BR-PEFT-05",
    "benchmark recipes keep their data, their step and fixed LoRA",
    formula="kind == benchmark -> no data set given, mode not dora",
    paths="peft._class",
    stage=Stage.LAUNCH,
    source="br:scripts/training/recipe_metadata.py:254 + rn:141",
    why="They measure throughput with canonical data. DoRA needs a library recipe, which takes a PEFT scheme.",
    bad="kind=benchmark mode=peft given.mode=dora checkpoint.pretrained_checkpoint=/m",
    good="given.mode=lora",
)
def benchmark_launch(context: Context) -> Iterator[Verdict]:
    """Check what may be asked of a benchmark recipe."""
    if context.config.kind != "benchmark":
        return
    if context.given.get("mode") == "dora":
        yield Breach(
            message="exported benchmark PEFT recipes are fixed LoRA; they take no DoRA",
            paths=("given.mode",),
            legal={"given.mode": ["lora", "peft"]},
            fixes=(Fix(overrides={"given.mode": "lora"}, note="another adapter: a new convergence experiment"),),
            hint="use a configurable *_peft_config library recipe",
        )
    if context.given.get("dataset"):
        yield Breach(
            message=f"a benchmark recipe takes no --dataset ({context.given['dataset']})",
            paths=("given.dataset",),
            fixes=(Fix(overrides={"given.dataset": None}),),
            hint="use a library recipe, or scripts/performance/setup_experiment.py",
        )


@computes(
    "LCH004",
    "BR-BENCH-02 TRAP-GBS",
    "a benchmark recipe runs on the GPUs in its name",
    formula="world != canonical GPUs -> GBS := GBS * DP / canonical DP, unless train.global_batch_size is given",
    paths="train.global_batch_size",
    severity=Severity.WARN,
    stage=Stage.NEVER,
    source="rr:368",
    why="The launcher scales the global batch with the data-parallel size and says so in an information line: "
    "another convergence "
    "contract, and no canonical benchmark.",
    bad="kind=benchmark gpus=32 given.canonical_gpus=16 train.global_batch_size=1024 train.micro_batch_size=1",
    good="gpus=16",
)
def benchmark_world(context: Context) -> Iterator[Verdict]:
    """Report another GPU count than the canonical one."""
    canonical, world = context.given.get("canonical_gpus"), context.world
    if context.config.kind != "benchmark" or not isinstance(canonical, int) or not world or world == canonical:
        return
    batch = context.integer(GBS)
    origin = context.config.origins.get(GBS)
    scaled, original = None, batch
    if origin is not None and str(origin.kind) == "derived" and isinstance(origin.replaced, int):
        scaled, original = batch, origin.replaced
    elif batch is not None and (origin is None or str(origin.kind) != "override"):
        scaled = batch * world // canonical
    text = f"the recipe is for {canonical} GPUs, and {world} are given"
    if scaled is not None and scaled != original:
        text += f": the launcher scales the global batch from {original} to {scaled}"
    yield Breach(
        message=text,
        effective={GBS: scaled} if scaled is not None and scaled != original else {},
        legal={"gpus": [canonical]},
        fixes=(Fix(overrides={"gpus": canonical}, note="the canonical count"),),
        hint=f"give {GBS}={original} to keep the batch" if original else f"use {canonical} GPUs",
        facts={"canonical": canonical, "requested": world, "effective_global_batch_size": scaled, "keep": {GBS: original}},
    )


@computes(
    "LCH005",
    "BR-LAUNCH-01",
    "the launcher takes variable names, not values",
    formula="each --env NAME is a name only; nodes, GPUs per node, account, partition and image are given",
    paths="env_vars",
    stage=Stage.LAUNCH,
    source="br:scripts/training/setup_experiment.py:194",
    why="Values would be seen in process lists and logs; export the variable and pass its name.",
    bad="given.args=[--env,HF_TOKEN=secret]",
    good="given.args=[--env,HF_TOKEN]",
)
def launcher_arguments(context: Context) -> Iterator[Verdict]:
    """Check launcher arguments."""
    arguments = [str(item) for item in context.given.get("args") or ()]
    pairs = list(itertools.pairwise(arguments))
    values = [value for flag, value in pairs if flag == "--env"]
    values += [item.partition("=")[2] for item in arguments if item.startswith("--env=")]
    for value in values:
        name, equals, _ = value.partition("=")
        if equals:
            yield Breach(
                message=f"--env {name}=... gives a value; the launcher takes the name only",
                paths=("given.args",),
                hint=f"export {name} and pass --env {name}",
                legal={"--env": [name]},
            )
    for flag in ("--nodes", "--gpus-per-node"):
        for given, value in pairs:
            if given == flag and (not value.isdigit() or int(value) < 1):
                yield Breach(message=f"{flag} {value} is not a positive number", paths=("given.args",))


@computes(
    "LCH006",
    "LCH-003 MLM-2571",
    "as many processes start as the world has ranks",
    formula="processes started == WORLD_SIZE; the number of visible devices does not count",
    paths="model.tensor_model_parallel_size",
    stage=Stage.RUNTIME,
    frameworks=BOTH,
    source="Megatron-LM issue 2571",
    why="A rank waits for peers that never start: the process-group initialisation hangs until its timeout.",
    bad="given.processes=2 given.visible_gpus=8",
    good="given.processes=8",
    evidence=Evidence.PUBLISHED,
)
def process_count(context: Context) -> Iterator[Verdict]:
    """Compare the processes started with the ranks expected."""
    processes = context.given.get("processes")
    world = context.given.get("world_size") or context.world or context.given.get("visible_gpus")
    if not isinstance(processes, int) or not isinstance(world, int) or processes == world:
        return
    yield Breach(
        message=f"{processes} processes start, but the run is sized for {world} ranks: it would hang",
        paths=("given.processes",),
        legal={"given.processes": [world]},
        fixes=(Fix(overrides={"given.processes": world}),),
        hint=f"start with --nproc_per_node={world} (world size comes from WORLD_SIZE, not from the device count)",
    )


NAMED = r"(?i)(?<![a-z])(tp|pp|vp|cp|ep|etp)_?(\d+)"


@computes(
    "LCH007",
    "LCH-005 SPEECH-14838",
    "an experiment's name proves nothing about its layout",
    formula="layout in the name == resolved layout",
    paths="tensor_model_parallel_size pipeline_model_parallel_size expert_model_parallel_size expert_tensor_parallel_size",
    severity=Severity.WARN,
    stage=Stage.NEVER,
    frameworks=BOTH,
    source="NVIDIA-NeMo issue 14838",
    why="Overrides come after naming. Compute from the resolved configuration, never from the name of the job.",
    bad="given.experiment_name=run_pp2_ep2_etp1 PP=2 EP=4 ETP=1 num_moe_experts=8 num_layers=4",
    good="EP=2",
    evidence=Evidence.PUBLISHED,
)
def experiment_name(context: Context) -> Iterator[Verdict]:
    """Compare the layout in a name with the resolved one, or with a product from an error message."""
    name = context.given.get("experiment_name")
    if not name:
        return
    said = {axis.lower(): int(size) for axis, size in re.findall(NAMED, str(name))}
    product = context.given.get("error_product")
    if isinstance(product, int) and said.get("pp"):
        rest = product // said["pp"]
        expected = said.get("ep", 1) * said.get("etp", 1)
        if product % said["pp"] == 0 and rest != expected:
            yield Breach(
                message=f"the failing product {product} = PP{said['pp']} x (ETP x EP), so ETP x EP = {rest}, not "
                f"{expected} as the name "
                "says: one of them was overridden after naming",
                facts={"etp_times_ep": rest, "named": said},
                hint="inspect the resolved configuration: `autorecipe config show RECIPE KEY=VALUE...`",
            )
        return
    known = {"tp": "tensor", "pp": "pipeline", "ep": "expert", "cp": "context"}
    wrong = {
        axis: (size, getattr(context.layout, axis))
        for axis, size in said.items()
        if getattr(context.layout, axis) != size and (axis not in known or _axis_known(context, axis))
    }
    if wrong:
        text = "; ".join(f"{axis}={size} in the name, {real} in the configuration" for axis, (size, real) in wrong.items())
        yield Breach(message=f"the name of the experiment disagrees: {text}", facts={"named": said})


def _axis_known(context: Context, axis: str) -> bool:
    names: dict[str, Any] = {
        "tp": "tensor_model_parallel_size",
        "pp": "pipeline_model_parallel_size",
        "ep": "expert_model_parallel_size",
        "cp": "context_parallel_size",
    }
    return context.model(names[axis]) is not None


RULES = (
    dataset_mode,
    recipe_mode,
    benchmark_launch,
    benchmark_world,
    launcher_arguments,
    process_count,
    experiment_name,
    requires(
        "LCH008",
        "BR-MODE-03",
        "the mode is given, or in the recipe's name",
        when="given.launcher == True",
        need="get(given.mode) != None or contains(get(given.recipe), '_pretrain_') or contains(get(given.recipe), '_sft_') "
        "or contains(get(given.recipe), '_peft_')",
        stage=Stage.LAUNCH,
        source="rr:297",
        why="The launcher chooses the loop by it.",
        bad="given.launcher=true given.recipe=my_config",
        good="given.mode=pretrain",
        hint="--mode pretrain, sft or peft",
    ),
    adjusts(
        "LCH009",
        "BR-BENCH-03",
        "BF16 Adam benchmark recipes use the precision-aware optimizer",
        when="given.kind == 'benchmark' and on(BF16) and get(optimizer.optimizer) == 'adam' and "
        "optimizer.use_precision_aware_optimizer == False",
        effective={"optimizer.use_precision_aware_optimizer": True},
        severity=Severity.INFO,
        stage=Stage.LAUNCH,
        source="rr:393",
        why="The launcher switches it on.",
        bad="given.kind=benchmark bf16=true optimizer.optimizer=adam optimizer.use_precision_aware_optimizer=false",
        good="optimizer.use_precision_aware_optimizer=true",
    ),
)
