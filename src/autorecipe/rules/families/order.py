"""ORD: overrides that do not act, and the order in which upstream applies things."""

from __future__ import annotations

from collections.abc import Iterator

from autorecipe.rules.context import Context
from autorecipe.rules.declare import computes, requires, show
from autorecipe.rules.rule import BRIDGE, Breach, Verdict
from autorecipe.schema import Fix, OriginKind, Severity, Stage
from autorecipe.schema.value import FieldValue

HARMLESS = (
    "model.sequence_parallel",
    "ddp.use_distributed_optimizer",
    "optimizer.use_distributed_optimizer",
    "ddp.overlap_param_gather",
    "optimizer.overlap_param_gather",
    "dist.use_megatron_fsdp",
    "ddp.use_megatron_fsdp",
)
"""Paths where upstream's correction is what any user would want; elsewhere a dead override trains something else."""

OWNED = ("model.seq_length", "dataset.sequence_length", "model.cuda_graph_modules", "model.cuda_graph_scope")
"""Paths that upstream writes over, by another path's value, before anything looks at them: the run starts as if they had not
been typed. Reported as what upstream does by itself, with what was probably meant."""

SECTIONS = frozenset(
    {
        "model",
        "train",
        "validation",
        "optimizer",
        "scheduler",
        "ddp",
        "dataset",
        "logger",
        "tokenizer",
        "checkpoint",
        "dist",
        "rng",
        "rerun_state_machine",
        "ft",
        "straggler",
        "nvrx_straggler",
        "profiling",
        "tensor_inspect",
        "inprocess_restart",
        "mixed_precision",
        "comm_overlap",
        "peft",
        "env_vars",
        "optimizer_config_override_provider",
        "megatron_mimo",
        "mlm",
        "derived",
        "data_parallel_size",
        "_checkpoint_load_required",
    }
)
"""Sections of ConfigContainer @ 0.6.2, with our own for Megatron-LM options and derived values."""


@computes(
    "ORD001",
    "BR-ORDER-01 BR-ORDER-07 BR-OVL-02 BR-OVL-03 BR-OVL-06 BR-WD-01 BR-SP-01 BR-FSDP-02 TRAP-MP TRAP-OVL TRAP-SEQ TRAP-WD",
    "what is overridden must act",
    formula="value of an override == value that upstream will use",
    paths="ddp.grad_reduce_in_fp32 ddp.overlap_grad_reduce model.seq_length optimizer.weight_decay model.fp8",
    stage=Stage.NEVER,
    frameworks=(BRIDGE,),
    source="bm:155 + bo:578 + rn:486 + bc:2117 + br:src/megatron/bridge/training/optim.py:347",
    why="Presets, communication overlap and the launcher write over overrides after they are read, mostly without a message.",
    bad="given.dead.ddp.grad_reduce_in_fp32=false ddp.grad_reduce_in_fp32=true",
    good="given.dead.ddp.grad_reduce_in_fp32=null",
)
def dead_override(context: Context) -> Iterator[Verdict]:
    """Report overrides that resolution found to be without effect."""
    lost = {path: (origin.given, origin.replaced, origin.detail) for path, origin in context.config.overruled.items()}
    for key, value in context.given.items():
        if key.startswith("dead.") and value is not None:
            lost[key[5:]] = (f"{key[5:]}={show(value)}", value, "")
    for path, (text, given, detail) in sorted(lost.items()):
        acting = context.values.get(path)
        if given == acting or (given is None and _is_derived(context, path)):
            continue  # null asks upstream to derive the value
        corrected = path in HARMLESS or path in OWNED
        note = next((note for note in context.config.notes if text in note), "")
        remedy = note.rsplit("; ", 1)[-1] if "; " in note else ""
        meant = _assignments(remedy)
        yield Breach(
            message=f"{text} does not act: upstream uses {path}={show(acting)}" + (f" ({detail})" if detail else ""),
            severity=Severity.AUTO_FIX if corrected else Severity.ERROR,
            paths=(path,),
            effective={path: acting},
            fixes=(
                *((Fix(overrides=meant, note="what was probably meant"),) if meant else ()),
                Fix(overrides={path: acting}, note="drops the override"),
            ),
            hint=remedy,
        )


def _is_derived(context: Context, path: str) -> bool:
    origin = context.config.origins.get(path)
    return origin is not None and origin.kind is OriginKind.DERIVED


def _assignments(remedy: str) -> dict[str, FieldValue]:
    """Return the assignments in the remedy of a note that has nothing else: `set dataset.seq_length=32768`."""
    from autorecipe.config.grammar import parse_plain

    verb, _, rest = remedy.partition(" ")
    words = [parse_plain(word) for word in rest.split()]
    if verb != "set" or None in words:
        return {}
    return {word.key: word.value for word in words if word is not None}


@computes(
    "ORD002",
    "BR-ORDER-04",
    "every key belongs to a section of the configuration",
    formula="first part of each path in the sections of ConfigContainer",
    paths="model",
    stage=Stage.CLI,
    source="br:src/megatron/bridge/training/utils/omegaconf_utils.py:186",
    why="Hydra refuses a key that does not exist; `+KEY` would add one that nothing reads. Keys inside sections "
    "are checked against the "
    "release's schema when overrides are read.",
    bad="modle.num_layers=2",
    good="model.num_layers=2 modle.num_layers=",
)
def known_section(context: Context) -> Iterator[Verdict]:
    """Check the sections of all keys."""
    if context.config.recipe:
        return
    strange = sorted(
        path for path, value in context.values.items() if value is not None and path.partition(".")[0] not in SECTIONS
    )
    if strange:
        yield Breach(message=f"no such section: {', '.join(strange)}", paths=tuple(strange), legal={"sections": sorted(SECTIONS)})


@computes(
    "ORD005",
    "BR-ORDER-05 TRAP-ENV",
    "exported variables win over the recipe's",
    formula="env_vars.NAME acts only where the process has no NAME",
    paths="env_vars",
    severity=Severity.WARN,
    stage=Stage.NEVER,
    source="bc:1989",
    why="env_vars fill only what the process does not have: what a cluster template exports stays.",
    bad="env_vars.CUDA_DEVICE_MAX_CONNECTIONS=32 env.CUDA_DEVICE_MAX_CONNECTIONS=1",
    good="env.CUDA_DEVICE_MAX_CONNECTIONS=32",
)
def exported_wins(context: Context) -> Iterator[Verdict]:
    """Compare the recipe's variables with the process environment."""
    if context.environment is None:
        return
    for path in context.env_paths:
        value = context.values[path]
        if value is None:
            continue
        name = path.partition(".")[2]
        exported = context.environment.get(name)
        if exported is not None and str(exported) != str(value):
            yield Breach(
                message=f"{name}={exported} is exported; the recipe's {path}={show(value)} does not act",
                paths=(path,),
                effective={f"env.{name}": str(exported)},
                fixes=(Fix(overrides={f"env.{name}": None}, note="unset it before the launch"),),
            )


@computes(
    "ORD006",
    "BR-ORDER-06",
    "environment variables have names and scalar values",
    formula="env_vars: names are texts that are not empty, values are scalars",
    paths="env_vars",
    source="bc:1986",
    why="They are written into the process environment.",
    bad="env_vars.NCCL_ALGO=[Ring]",
    good="env_vars.NCCL_ALGO=Ring",
)
def environment_types(context: Context) -> Iterator[Verdict]:
    """Check names and values of env_vars."""
    for path in context.env_paths:
        value = context.values[path]
        if isinstance(value, list | dict) or path == "env_vars.":
            yield Breach(message=f"{path}={show(value)} is not a scalar", paths=(path,))


RULES = (
    dead_override,
    known_section,
    exported_wins,
    environment_types,
    requires(
        "ORD003",
        "BR-ORDER-03",
        "fields of a precision preset cannot be overridden one by one",
        when="istext(get(mixed_precision)) and count(get(given.overrides)) > 0",
        need="not contains(get(given.overrides), 'mixed_precision.')",
        stage=Stage.CLI,
        source="br:src/megatron/bridge/training/utils/omegaconf_utils.py:186",
        why="A preset is a name until the run starts; Hydra refuses fields below it. Translate the preset, or give an object.",
        bad="mixed_precision=bf16_mixed given.overrides=[mixed_precision.fp8]",
        good="given.overrides=[train.train_iters]",
    ),
    requires(
        "ORD004",
        "TRAP-SEED",
        "model and data have a seed each",
        when="isset(get(rng.seed)) and isset(get(dataset.random_seed)) and has(get(given.overrides), 'seed') "
        "and not has(get(given.overrides), 'random_seed')",
        need="rng.seed == dataset.random_seed",
        severity=Severity.WARN,
        stage=Stage.NEVER,
        source="lm:megatron/training/arguments.py (--seed drives both)",
        why="rng.seed does not move the order of the data; Megatron-LM's one seed drives both.",
        bad="rng.seed=42 dataset.random_seed=1234 given.overrides=[rng.seed]",
        good="dataset.random_seed=42",
        derive_fixes=False,
        hint="set dataset.random_seed too, or leave the order alone on purpose",
        frameworks=(BRIDGE,),
    ),
)
