"""PCK: packed sequences, offline and in the batch."""

from __future__ import annotations

from collections.abc import Iterator

from autorecipe.rules.context import Context
from autorecipe.rules.declare import adjusts, computes, requires
from autorecipe.rules.rule import Breach, Verdict
from autorecipe.schema import Fix, Severity, Stage

SPECS = "dataset.offline_packing_specs"
LENGTH = f"{SPECS}.packed_sequence_size"
OFFLINE = "dataset.enable_offline_packing"
NEW = "packs are convergence"
SPECS_CLASS = "megatron.bridge.data.packing.config.PackedSequenceSpecs"
LAUNCHER_BUILDS = "derived"
"""Origin of a specification that the recipe lacks and that the configuration got on the way (see `config.launcher`)."""


@computes(
    "PCK001",
    "BR-PACK-02",
    "offline packing needs a micro batch of one pack",
    formula="enable_offline_packing -> MBS == 1; equivalent: MBS 1, GBS / MBS, packed length x MBS",
    paths="train.micro_batch_size train.global_batch_size dataset.enable_offline_packing "
    "dataset.offline_packing_specs.packed_sequence_size",
    stage=Stage.VALIDATE,
    source="bc:1607",
    why="Packs are concatenated, not stacked: a longer pack does what a larger micro batch would. Tokens per step stay the same.",
    bad="dataset.enable_offline_packing=true train.micro_batch_size=4 train.global_batch_size=128 "
    "dataset.offline_packing_specs.packed_sequence_size=4096",
    good="train.micro_batch_size=1",
)
def single_pack(context: Context) -> Iterator[Verdict]:
    """Check the micro batch of packed data, and compute the equivalent setting."""
    mbs, gbs = context.integer("train.micro_batch_size"), context.integer("train.global_batch_size")
    if context.get(OFFLINE) is not True or mbs is None or mbs <= 1:
        return
    length = context.integer(LENGTH)
    equivalent = {"train.micro_batch_size": 1}
    if gbs is not None and gbs % mbs == 0 and length:
        equivalent |= {"train.global_batch_size": gbs // mbs, LENGTH: length * mbs}
        if context.integer("dataset.seq_length") == length:
            equivalent["dataset.seq_length"] = length * mbs
            if context.integer("model.seq_length") == length:
                equivalent["model.seq_length"] = length * mbs
    fixes = [Fix(overrides=equivalent, note="the same tokens per step in longer packs")] if len(equivalent) > 1 else []
    fixes.append(Fix(overrides={"train.micro_batch_size": 1}, note="packs of the same length, more accumulation"))
    yield Breach(
        message=f"micro_batch_size={mbs} with offline packing; it must be 1",
        legal={"train.micro_batch_size": [1]},
        fixes=tuple(fixes),
        facts={"equivalent": equivalent, "tokens_per_step": gbs * length if gbs and length else None},
    )


@computes(
    "PCK012",
    "BR-PACK-01",
    "offline packing needs a specification",
    formula="enable_offline_packing -> offline_packing_specs is not null",
    paths="dataset.enable_offline_packing dataset.offline_packing_specs dataset.seq_length",
    stage=Stage.VALIDATE,
    source="src/megatron/bridge/training/config.py:1157 @ 0.6.2 "
    "+ src/megatron/bridge/data/builders/gpt_sft.py:194 @ 0.6.2 + bc:1277",
    why="The package refuses the flag alone; not every revision of the launcher builds the specification, and a program of one's "
    "own never does. Releases before 0.6 have no such flag.",
    bad="dataset.enable_offline_packing=true dataset.offline_packing_specs=null dataset.seq_length=4096",
    good=f"'dataset.offline_packing_specs={{_target_: {SPECS_CLASS}, packed_sequence_size: 4096}}'",
    bridge=">=0.6",
)
def specified_packing(context: Context) -> Iterator[Verdict]:
    """Check that whoever switches packing on says how, and write it as long as the rows are."""
    if context.get(OFFLINE) is not True:
        return
    if context.read(SPECS) is not None and context.origin(f"{SPECS}._class") != LAUNCHER_BUILDS:
        return
    length = context.integer("dataset.seq_length")
    fixes = [Fix(overrides={OFFLINE: False}, note="rows are padded, not packed")]
    if length is not None and length > 0:
        specification = {"_target_": SPECS_CLASS, "packed_sequence_size": length}
        fixes.insert(0, Fix(overrides={SPECS: specification}, note="packs as long as dataset.seq_length"))
    yield Breach(message=f"{OFFLINE}=true with {SPECS}=null; upstream builds none for it", fixes=tuple(fixes))


RULES = (
    single_pack,
    specified_packing,
    requires(
        "PCK002",
        "BR-PACK-03",
        "in-batch packing needs several rows to join",
        when="dataset.enable_in_batch_packing",
        need="train.micro_batch_size >= 2",
        stage=Stage.VALIDATE,
        source="bc:1621",
        why="It joins the rows of one microbatch: the opposite of offline packing, which needs a micro batch of 1.",
        bad="dataset.enable_in_batch_packing=true train.micro_batch_size=1",
        good="train.micro_batch_size=2",
        fixes=({"train.micro_batch_size": 2},),
        legal={"train.micro_batch_size": [2, 4, 8]},
        bridge=">=0.6",
    ),
    requires(
        "PCK003",
        "BR-PACK-01",
        "offline and in-batch packing exclude each other",
        when="on(dataset.enable_offline_packing)",
        need="not on(dataset.enable_in_batch_packing)",
        stage=Stage.VALIDATE,
        source="bc:1277",
        why="A pack would be packed again.",
        bad="dataset.enable_offline_packing=true dataset.enable_in_batch_packing=true "
        "dataset.offline_packing_specs.packed_sequence_size=4096",
        good="dataset.enable_in_batch_packing=false",
        note=NEW,
    ),
    requires(
        "PCK004",
        "BR-PACK-01",
        "offline packing needs a positive packed length",
        when="dataset.enable_offline_packing",
        need="dataset.offline_packing_specs.packed_sequence_size > 0",
        stage=Stage.VALIDATE,
        source="bc:1277",
        why="The flag and the specification are set together; the default length is -1.",
        bad="dataset.enable_offline_packing=true dataset.offline_packing_specs.packed_sequence_size=-1",
        good="dataset.offline_packing_specs.packed_sequence_size=4096",
        fixes=({OFFLINE: False},),
    ),
    requires(
        "PCK005",
        "BR-PACK-01",
        "a packing specification needs the flag",
        when="dataset.offline_packing_specs.packed_sequence_size > 0",
        need="dataset.enable_offline_packing",
        stage=Stage.VALIDATE,
        source="bc:1277",
        why="Without the flag upstream refuses the specification.",
        bad="dataset.enable_offline_packing=false dataset.offline_packing_specs.packed_sequence_size=4096",
        good="dataset.enable_offline_packing=true",
        bridge=">=0.6",
    ),
    requires(
        "PCK006",
        "BR-PACK-04",
        "padded sequence boundaries need padded sequences",
        when="dataset.offline_packing_specs.pad_cu_seqlens",
        need="PADDED",
        stage=Stage.VALIDATE,
        source="bc:1291",
        why="A fixed number of boundaries belongs to a fixed length.",
        bad="dataset.enable_offline_packing=true dataset.offline_packing_specs.packed_sequence_size=4096 "
        "dataset.offline_packing_specs.pad_cu_seqlens=true dataset.dataset_kwargs.pad_to_max_length=false",
        good="dataset.dataset_kwargs.pad_to_max_length=true",
        fixes=({"dataset.dataset_kwargs.pad_to_max_length": True}, {f"{SPECS}.pad_cu_seqlens": False}),
    ),
    requires(
        "PCK007",
        "BR-PACK-05",
        "packing with CUDA graphs needs padded sequences",
        when="on(dataset.enable_offline_packing) and GRAPH_IMPL in ('transformer_engine', 'full_iteration')",
        need="PADDED",
        stage=Stage.VALIDATE,
        source="bc:1300",
        why="A graph has one token width.",
        bad="dataset.enable_offline_packing=true dataset.offline_packing_specs.packed_sequence_size=4096 use_te_rng_tracker=true "
        "cuda_graph_impl=transformer_engine cuda_graph_modules=[mlp] dataset.dataset_kwargs.pad_to_max_length=false",
        good="dataset.dataset_kwargs.pad_to_max_length=true",
        fixes=({"dataset.dataset_kwargs.pad_to_max_length": True}, {"model.cuda_graph_impl": "none"}),
        bridge=">=0.6",
    ),
    requires(
        "PCK008",
        "BR-PACK-06 PIT-GRAPH-PACKING MC-CG-11",
        "packing with graphed attention needs padded boundaries",
        when="on(dataset.enable_offline_packing) and (GRAPH_IMPL == 'full_iteration' or (GRAPH_IMPL == 'transformer_engine' "
        "and (count(GRAPHS) == 0 or has(GRAPHS, 'attn'))))",
        need="on(dataset.offline_packing_specs.pad_cu_seqlens)",
        stage=Stage.VALIDATE,
        source="bc:1307",
        why="Graphed attention reads the boundaries of sequences, so that their number must be fixed.",
        bad="dataset.enable_offline_packing=true dataset.offline_packing_specs.packed_sequence_size=4096 use_te_rng_tracker=true "
        "cuda_graph_impl=transformer_engine cuda_graph_modules=[attn] dataset.pad_to_max_length=true "
        "dataset.offline_packing_specs.pad_cu_seqlens=false",
        good="dataset.offline_packing_specs.pad_cu_seqlens=true",
        fixes=(
            {f"{SPECS}.pad_cu_seqlens": True},
            {f"{SPECS}.pad_cu_seqlens": True, "dataset.dataset_kwargs.pad_to_max_length": True},
        ),
        bridge=">=0.6",
    ),
    adjusts(
        "PCK009",
        "BR-PACK-07",
        "pipelines and expert parallelism pad sequences to full length",
        when="(PP > 1 or EP > 1) and dataset.pad_to_max_length == False",
        effective={"dataset.pad_to_max_length": True},
        severity=Severity.INFO,
        stage=Stage.VALIDATE,
        source="bc:1352",
        why="Stages and experts exchange tensors of one shape; short rows then cost as much as long ones.",
        bad="PP=2 num_layers=4 dataset.pad_to_max_length=false",
        good="dataset.pad_to_max_length=true",
    ),
    requires(
        "PCK010",
        "BR-PACK-08",
        "packing sizes are positive and fit the pack",
        when="on(dataset.enable_offline_packing)",
        need=(
            "unset(get(dataset.offline_packing_specs.pad_seq_to_mult)) or dataset.offline_packing_specs.pad_seq_to_mult > 0",
            "unset(get(dataset.offline_packing_specs.max_single_sequence_length)) "
            "or 0 < dataset.offline_packing_specs.max_single_sequence_length <= "
            "dataset.offline_packing_specs.packed_sequence_size",
        ),
        stage=Stage.VALIDATE,
        source="br:src/megatron/bridge/data/packing/config.py:53",
        why="A sequence longer than a pack cannot be packed.",
        bad="dataset.enable_offline_packing=true dataset.offline_packing_specs.packed_sequence_size=4096 "
        "dataset.offline_packing_specs.max_single_sequence_length=8192",
        good="dataset.offline_packing_specs.max_single_sequence_length=4096",
    ),
    adjusts(
        "PCK011",
        "BR-ORDER-09 TRAP-PACK",
        "packs change with the layout",
        when="on(dataset.enable_offline_packing) and PAD_MULTIPLE > 1 "
        "and get(dataset.offline_packing_specs.pad_seq_to_mult) != PAD_MULTIPLE "
        "and (get(dataset.offline_packing_specs.pad_seq_to_mult) == None "
        "or dataset.offline_packing_specs.pad_seq_to_mult % PAD_MULTIPLE != 0)",
        effective={f"{SPECS}.pad_seq_to_mult": "=lcm(PAD_MULTIPLE, get(dataset.offline_packing_specs.pad_seq_to_mult))"},
        severity=Severity.WARN,
        stage=Stage.NEVER,
        source="rn:467",
        why="Samples are padded to lcm(2 x CP, CP x TP under sequence parallelism) before they are packed, so "
        "that other samples share a "
        "pack at another layout: compare runs with one pinned multiple only.",
        bad="dataset.enable_offline_packing=true dataset.offline_packing_specs.packed_sequence_size=4096 TP=2 "
        "CP=2 sequence_parallel=true "
        "num_attention_heads=2 dataset.offline_packing_specs.pad_seq_to_mult=1 dataset.seq_length=4096",
        good="dataset.offline_packing_specs.pad_seq_to_mult=4",
        hint="pin dataset.offline_packing_specs.pad_seq_to_mult to a common multiple of the layouts compared",
    ),
)
