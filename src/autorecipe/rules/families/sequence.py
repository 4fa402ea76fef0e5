"""SEQ: sequence length, who owns it, and how context parallelism splits it."""

from __future__ import annotations

from collections.abc import Iterator

from autorecipe.rules.context import Context
from autorecipe.rules.declare import adjusts, computes, requires
from autorecipe.rules.layout import divisors
from autorecipe.rules.rule import BRIDGE, Breach, Verdict
from autorecipe.schema import Evidence, Fix, Severity, Stage

BOTH = ("bridge", "megatron-lm")
HCP = "model.hierarchical_context_parallel_sizes"
COLLATED = "DATASET in ('directhfsftdatasetconfig', 'energondatasetconfig', 'mockvlmsftdatasetconfig')"


@computes(
    "SEQ001",
    "BR-CP-04 MLM-CP-02 MLM-CP-03 MC-HCP-02 MC-CPTYPE-01",
    "hierarchical context parallelism needs sizes whose product is CP",
    formula="a2a+p2p in cp_comm_type -> sizes set; sizes set -> product == CP; cp_comm_type a text, or one per layer",
    paths="cp_comm_type hierarchical_context_parallel_sizes context_parallel_size num_layers",
    stage=Stage.VALIDATE,
    frameworks=BOTH,
    source="bc:1684 + ar:582-585 + tc:3106",
    why="Without the sizes each rank would attend to its own chunk only: fast, and wrong.",
    bad="gpus=16 CP=16 cp_comm_type=a2a+p2p hierarchical_context_parallel_sizes=null",
    good="hierarchical_context_parallel_sizes=[8,2]",
)
def hierarchical(context: Context) -> Iterator[Verdict]:
    """Check how context-parallel ranks communicate."""
    cp = context.layout.cp
    kind, sizes = context.model("cp_comm_type"), context.model("hierarchical_context_parallel_sizes")
    if isinstance(kind, list | tuple):
        layers = context.integer("model.num_layers")
        if cp > 1 and layers is not None and len(kind) != layers:
            yield Breach(message=f"cp_comm_type lists {len(kind)} layers, but num_layers={layers}", paths=("model.cp_comm_type",))
    elif cp > 1 and kind is not None and not isinstance(kind, str):
        yield Breach(message=f"cp_comm_type={kind!r} is neither a text nor a list")
    kinds = [str(item) for item in (kind if isinstance(kind, list | tuple) else [kind or "p2p"])]
    legal = _factor_pairs(cp, context)
    fixes = tuple(Fix(overrides={HCP: pair}) for pair in legal[:2])
    if any("a2a+p2p" in item for item in kinds) and not sizes:
        yield Breach(
            message=f"cp_comm_type=a2a+p2p with CP={cp} needs hierarchical_context_parallel_sizes: attention "
            f"would be silently local",
            legal={HCP: legal},
            fixes=(*fixes, Fix(overrides={"model.cp_comm_type": "p2p"})),
            hint="give the ranks inside a node, then the rest: " + (f"{HCP}=[{legal[0][0]},{legal[0][1]}]" if legal else ""),
        )
    elif sizes:
        product = 1
        for size in sizes:
            product *= size
        if product != cp:
            yield Breach(
                message=f"hierarchical_context_parallel_sizes={list(sizes)} multiply to {product}, but CP={cp}",
                legal={HCP: legal},
                fixes=(*fixes, Fix(overrides={HCP: None, **({"model.cp_comm_type": "p2p"} if "a2a+p2p" in kinds else {})})),
            )


def _factor_pairs(cp: int, context: Context) -> list[list[int]]:
    """Return [inner, outer] factor pairs of CP, the one that fills what TP leaves of a node first."""
    node = context.cluster.gpus_per_node if context.cluster else 8
    room = max(1, node // context.layout.tp)
    pairs = [[inner, cp // inner] for inner in divisors(cp) if 1 < inner < cp]
    return sorted(pairs, key=lambda pair: (pair[0] > room, abs(pair[0] - room)))


@computes(
    "SEQ002",
    "BR-SEQ-01 BR-ORDER-07 TRAP-SEQ",
    "the dataset owns the sequence length",
    formula="model.seq_length := dataset.seq_length (launcher); they must be equal (validation)",
    paths="model.seq_length dataset.seq_length dataset.sequence_length",
    stage=Stage.NEVER,
    source="br:scripts/training/recipe_runner.py:486 + bc:1645",
    why="The launcher copies dataset.seq_length over the model's without a message; a configuration built by "
    "hand is refused instead.",
    bad="model.seq_length=32768 dataset.seq_length=8192",
    good="dataset.seq_length=32768",
)
def sequence_owner(context: Context) -> Iterator[Verdict]:
    """Compare the model's and the dataset's lengths."""
    owner = "dataset.seq_length" if context.integer("dataset.seq_length") is not None else "dataset.sequence_length"
    data, model = context.integer(owner), context.integer("model.seq_length")
    if data is None or model is None or data == model:
        return
    yield Breach(
        message=f"model.seq_length={model} will not act: {owner}={data} owns the sequence",
        severity=Severity.ERROR,
        effective={"model.seq_length": data},
        fixes=(
            Fix(overrides={owner: model}, note="the sequence length is convergence"),
            Fix(overrides={"model.seq_length": data}, note="what upstream would use"),
        ),
        hint=f"set {owner}={model}",
    )


RULES = (
    hierarchical,
    sequence_owner,
    requires(
        "SEQ003",
        "MLM-SIZE-05",
        "the position table must hold the sequence",
        when="isset(get(max_position_embeddings)) and SEQ > 0",
        need="max_position_embeddings >= SEQ",
        stage=Stage.PARSE,
        frameworks=("megatron-lm",),
        source="ar:1355",
        why="A longer sequence needs both fields, and with rotary positions a decision about scaling, which is convergence.",
        bad="model.seq_length=32768 max_position_embeddings=8192",
        good="max_position_embeddings=32768",
        hint="raise max_position_embeddings with the sequence, and decide on rope scaling (convergence)",
    ),
    requires(
        "SEQ004",
        "BR-CP-02",
        "fine-tuning with context parallelism averages the loss per token",
        when="CP > 1 and FINETUNING and DATASET in ('gptsftdatasetconfig', 'finetuningdatasetconfig', "
        "'directhfsftdatasetconfig')",
        need=("calculate_per_token_loss", "not on(ddp.average_in_collective)"),
        stage=Stage.VALIDATE,
        source="bc:1592",
        why="Ranks hold different numbers of trained tokens; averaging over ranks would weigh them wrongly.",
        bad="mode=sft CP=2 dataset.seq_length=4096 dataset._class=GPTSFTDatasetConfig calculate_per_token_loss=false "
        "checkpoint.load=/x found./x=megatron",
        good="calculate_per_token_loss=true",
        fixes=({"model.calculate_per_token_loss": True, "ddp.average_in_collective": False},),
    ),
    adjusts(
        "SEQ005",
        "BR-ORDER-08",
        "the launcher makes fine-tuning with context parallelism average per token",
        when="CP > 1 and FINETUNING and calculate_per_token_loss == False and given.launcher == True",
        effective={"model.calculate_per_token_loss": True, "ddp.average_in_collective": False},
        severity=Severity.INFO,
        stage=Stage.LAUNCH,
        source="rn:368",
        why="A configuration that is validated directly is refused instead.",
        bad="mode=sft CP=2 dataset.seq_length=4096 calculate_per_token_loss=false given.launcher=true",
        good="calculate_per_token_loss=true",
    ),
    requires(
        "SEQ006",
        "BR-CP-03",
        "collated data sets need a sequence that splits over context and sequence ranks",
        when=f"{COLLATED} and SEQ > 0",
        need="SEQ % PAD_MULTIPLE == 0",
        stage=Stage.VALIDATE,
        source="bc:1370",
        why="Rows are padded to lcm(2 x CP, CP x TP under sequence parallelism).",
        bad="dataset._class=DirectHFSFTDatasetConfig dataset.seq_length=4098 CP=2 calculate_per_token_loss=true",
        good="dataset.seq_length=4096",
        bridge=">=0.6",
    ),
    requires(
        "SEQ007",
        "MC-CPATT-01",
        "context parallelism needs Transformer Engine's attention",
        when="CP > 1",
        need="get(transformer_impl) != 'local' and name(get(attention_backend)) != 'local'",
        stage=Stage.BUILD,
        frameworks=BOTH,
        source="lm:megatron/core/transformer/dot_product_attention.py:59",
        why="The local attention sees its own chunk only, and refuses; it refuses packed sequences as well.",
        bad="CP=2 dataset.seq_length=4096 transformer_impl=local",
        good="CP=1",
        fixes=({"model.transformer_impl": "transformer_engine"}, {"model.context_parallel_size": 1}),
    ),
    requires(
        "SEQ008",
        "MC-CPATT-01",
        "packed sequences need Transformer Engine's attention",
        when="on(dataset.enable_offline_packing) or on(dataset.enable_in_batch_packing)",
        need="get(transformer_impl) != 'local' and name(get(attention_backend)) != 'local'",
        stage=Stage.BUILD,
        frameworks=(BRIDGE,),
        source="lm:megatron/core/transformer/dot_product_attention.py:59",
        why="The local attention knows no sequence boundaries.",
        bad="dataset.enable_offline_packing=true transformer_impl=local train.micro_batch_size=1 "
        "dataset.offline_packing_specs.packed_sequence_size=4096 dataset.pad_to_max_length=true",
        good="transformer_impl=transformer_engine",
        fixes=({"model.transformer_impl": "transformer_engine"},),
    ),
    requires(
        "SEQ009",
        "MLM-HCP-01 MLM-HCP-02 MLM-HCP-03 MLM-HCP-04",
        "hybrid context parallelism takes a narrow configuration",
        when="on(hybrid_context_parallel)",
        need=(
            "PP == 1",
            "get(GRAPH_IMPL) in ('none', None)",
            "not on(FSDP)",
            "get(dataset.dataloader_type) in ('single', None)",
            "on(calculate_per_token_loss)",
        ),
        stage=Stage.PARSE,
        frameworks=BOTH,
        source="ar:1445-1448",
        why="Each microbatch has its own context-parallel groups.",
        bad="hybrid_context_parallel=true PP=2 num_layers=4 calculate_per_token_loss=true",
        good="PP=1",
    ),
    requires(
        "SEQ010",
        "MC-HCP-01",
        "hybrid context parallelism needs an even number of data-parallel ranks",
        when="on(hybrid_context_parallel) and DP >= 1",
        need="DP * CP % 2 == 0",
        stage=Stage.INIT,
        source="lm:megatron/core/parallel_state.py:1045",
        why="Groups are powers of two.",
        bad="gpus=3 hybrid_context_parallel=true calculate_per_token_loss=true",
        good="gpus=4",
    ),
    requires(
        "SEQ014",
        "MC-GDN-03",
        "gated delta net takes no context parallelism",
        when="contains(get(experimental_attention_variant), 'gdn') or contains(get(experimental_attention_variant), 'gated')",
        need="CP == 1",
        source="megatron/core/transformer/transformer_config.py @ core 0.16.1 (tried)",
        why="Later releases shard its heads over TP x CP.",
        bad="core=0.16.1 experimental_attention_variant=gated_delta_net CP=2 linear_num_key_heads=16 linear_num_value_heads=32 "
        "linear_attention_freq=4 linear_conv_kernel_dim=4 linear_key_head_dim=128 linear_value_head_dim=128 "
        "dataset.seq_length=4096 add_bias_linear=false",
        good="CP=1",
        core="<0.17",
        evidence=Evidence.MEASURED,
    ),
    requires(
        "SEQ013",
        "MC-DSA-02",
        "sparse attention takes no context parallelism",
        when="get(experimental_attention_variant) == 'dsa'",
        need="CP == 1",
        source="megatron/core/transformer/transformer_config.py @ core 0.16.1 (tried)",
        why="Its indexer looks at all keys; later releases gather them.",
        bad="core=0.16.1 experimental_attention_variant=dsa CP=2 dataset.seq_length=4096 add_bias_linear=false",
        good="CP=1",
        core="<0.17",
        evidence=Evidence.MEASURED,
    ),
    requires(
        "SEQ011",
        "MC-DSA-01 MC-DSA-02",
        "sparse attention takes a narrow configuration",
        when="get(experimental_attention_variant) == 'dsa'",
        need=(
            "not on(add_bias_linear)",
            "unset(get(dsa_indexer_topk_freq)) or dsa_indexer_topk_freq >= 1",
            "unset(get(dsa_indexer_skip_topk_offset)) or dsa_indexer_skip_topk_offset >= 0",
            "not on(apply_rope_fusion)",
            "CP == 1 or get(cp_comm_type) == 'allgather'",
        ),
        source="tc:1514 + tc:3175",
        core=">=0.17",
        why="Its indexer looks at all keys.",
        bad="experimental_attention_variant=dsa CP=2 dataset.seq_length=4096 cp_comm_type=p2p add_bias_linear=false",
        good="cp_comm_type=allgather",
        fixes=({"model.cp_comm_type": "allgather"},),
    ),
    adjusts(
        "SEQ012",
        "BR-VARSEQ-01",
        "in-batch packing over stages makes sequence lengths variable",
        when="on(dataset.enable_in_batch_packing) and PP > 1 and variable_seq_lengths == False",
        effective={"model.variable_seq_lengths": True},
        source="br:src/megatron/bridge/models/transformer_config.py:186",
        why="Stages must tell each other how long a microbatch is.",
        bad="dataset.enable_in_batch_packing=true PP=2 num_layers=4 variable_seq_lengths=false train.micro_batch_size=2",
        good="variable_seq_lengths=true",
    ),
)
