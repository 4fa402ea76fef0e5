"""MOE: expert layers, routing and capacity."""

from __future__ import annotations

from collections.abc import Iterator

from autorecipe.config.views import moe_layer_pattern
from autorecipe.errors import UsageError
from autorecipe.rules.context import Context
from autorecipe.rules.declare import adjusts, computes, requires
from autorecipe.rules.release import parse_release
from autorecipe.rules.rule import MEGATRON_LM, Breach, Missing, Verdict
from autorecipe.schema import Fix, Severity, Stage

FREQUENCY = "model.moe_layer_freq"
EXPERT_SIZE = "model.moe_ffn_hidden_size"
MIXED_MODELS_WARN = (0, 18)
"""Core release from which an expert size without experts is only a warning where layers stay dense."""
NOTE_DROPS = "setting a capacity factor drops tokens: a new convergence experiment"


@computes(
    "MOE001",
    "MC-MOEFREQ-01",
    "moe_layer_freq must be a number, or one 0 or 1 per layer",
    formula="int, or list with len == num_layers and values in {0, 1}",
    paths="moe_layer_freq num_layers",
    stage=Stage.BUILD,
    source="lm:megatron/core/models/gpt/gpt_layer_specs.py:660",
    why="A list expression such as ([0]*3+[1]*58) is evaluated by Megatron-LM's parser only; as text in a configuration it "
    "passes validation and fails when the model is built.",
    bad="num_moe_experts=8 num_layers=4 moe_layer_freq='([0]*1+[1]*3)'",
    good="moe_layer_freq=[0,1,1,1]",
)
def layer_frequency(context: Context) -> Iterator[Verdict]:
    """Check the type and length of the MoE layer pattern."""
    value = context.model("moe_layer_freq")
    if value is None or not context.model("num_moe_experts"):
        return
    layers = context.integer("model.num_layers")
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            yield Breach(message=f"moe_layer_freq={value} is not positive", fixes=(Fix(overrides={FREQUENCY: 1}),))
        return
    if layers is None:
        yield Missing(paths=("model.num_layers",))
        return
    try:
        pattern = moe_layer_pattern(value, layers)
    except UsageError as error:
        yield Breach(message=f"moe_layer_freq does not describe {layers} layers: {error.problems[0].message}")
        return
    if isinstance(value, str) and context.framework == "bridge":
        yield Breach(
            message=f"moe_layer_freq={value!r} is text; Bridge takes a number or a list",
            fixes=(Fix(overrides={FREQUENCY: [int(flag) for flag in pattern]}),),
            legal={FREQUENCY: [[int(flag) for flag in pattern]]},
            facts={"length": layers},
        )
    elif isinstance(value, list | tuple) and any(flag not in (0, 1) for flag in value):
        yield Breach(message="moe_layer_freq has values other than 0 and 1")


@computes(
    "MOE010",
    "MC-EXPERTS-03",
    "an expert size needs experts",
    formula="moe_ffn_hidden_size set and hybrid_layer_pattern unset and hybrid_override_pattern unset -> num_moe_experts set; "
    "from core 0.18 only a warning where moe_layer_freq leaves layers dense",
    paths="moe_ffn_hidden_size num_moe_experts moe_layer_freq",
    source="tc:1704",
    why="The size would be ignored. Up to core 0.17 that is refused; from 0.18 on a model whose moe_layer_freq leaves layers "
    "dense starts, with a warning and without the size.",
    bad="moe_ffn_hidden_size=768 num_moe_experts=null",
    good="moe_ffn_hidden_size=null",
)
def expert_size(context: Context) -> Iterator[Verdict]:
    """Check that an expert size comes with experts.

    Source: megatron/core/transformer/transformer_config.py:1060 @ core 0.16.1, 1225 @ 0.17.0, 1396 @ 0.18.0, 1538 @ 0.19.2.
    """
    size = context.model("moe_ffn_hidden_size")
    hybrid = any(context.model(name) is not None for name in ("hybrid_layer_pattern", "hybrid_override_pattern"))
    if size is None or hybrid or context.model("num_moe_experts") is not None:
        return
    fix = Fix(overrides={EXPERT_SIZE: None})
    if parse_release(context.core) >= MIXED_MODELS_WARN and _leaves_layers_dense(context):
        yield Breach(
            message=f"moe_ffn_hidden_size={size} without num_moe_experts is ignored: moe_layer_freq leaves layers dense",
            severity=Severity.AUTO_FIX,
            effective={EXPERT_SIZE: None},
            fixes=(fix,),
        )
    else:
        yield Breach(message=f"moe_ffn_hidden_size={size}, but num_moe_experts is unset", fixes=(fix,))


def _leaves_layers_dense(context: Context) -> bool:
    """Return whether core calls the model mixed; text is a list only to Megatron-LM's parser."""
    value = context.model("moe_layer_freq")
    layers = context.integer("model.num_layers")
    if isinstance(value, str) and context.framework == MEGATRON_LM and layers is not None:
        try:
            value = [int(flag) for flag in moe_layer_pattern(value, layers)]
        except UsageError:
            return False
    if isinstance(value, list | tuple):
        return 0 in value
    return isinstance(value, int) and value > 1


ROUTING = (
    requires(
        "MOE002",
        "MC-ROUTER-01",
        "expert bias needs a sigmoid-like score",
        when="MOE and moe_router_enable_expert_bias",
        need="moe_router_score_function in ('sigmoid', 'sqrtsoftplus')",
        source="tc:2622",
        why="The bias moves scores that are compared one by one; softmax scores depend on each other.",
        bad="num_moe_experts=8 moe_router_enable_expert_bias=true moe_router_score_function=softmax",
        good="moe_router_score_function=sigmoid",
        note="changes routing: a new convergence experiment",
        core=">=0.17",
    ),
    requires(
        "MOE047",
        "MC-ROUTER-01",
        "expert bias needs the sigmoid score",
        when="MOE and moe_router_enable_expert_bias",
        need="moe_router_score_function == 'sigmoid'",
        source="megatron/core/transformer/transformer_config.py:1593 @ core 0.16.1",
        why="The bias moves scores that are compared one by one; later releases know sqrtsoftplus as well.",
        bad="core=0.16.1 num_moe_experts=8 moe_router_enable_expert_bias=true moe_router_score_function=sqrtsoftplus",
        good="moe_router_score_function=sigmoid",
        note="changes routing: a new convergence experiment",
        core="<0.17",
    ),
    requires(
        "MOE003",
        "MC-ROUTER-02",
        "top-1 softmax routing needs pre-softmax",
        when="get(moe_router_topk) == 1 and get(moe_router_score_function) == 'softmax' "
        "and not has(get(moe_router_load_balancing_type), 'sinkhorn')",
        need="moe_router_pre_softmax",
        source="tc:2669",
        why="A softmax over the one chosen logit is always 1, so that the router gets no gradient.",
        bad="num_moe_experts=8 moe_router_topk=1 moe_router_score_function=softmax moe_router_pre_softmax=false",
        good="moe_router_pre_softmax=true",
        note="changes routing: a new convergence experiment",
    ),
    requires(
        "MOE004",
        "MC-ROUTER-03",
        "group-limited routing needs fitting groups",
        when="isset(get(moe_router_group_topk)) and on(moe_router_group_topk)",
        need=(
            "isset(moe_router_num_groups)",
            "num_moe_experts % moe_router_num_groups == 0",
            "moe_router_group_topk <= moe_router_num_groups",
            "not on(moe_router_topk_limited_devices)",
        ),
        source="tc:2679",
        why="Experts are cut into equal groups, of which the best are kept.",
        bad="num_moe_experts=8 moe_router_group_topk=2 moe_router_num_groups=3 moe_router_topk_limited_devices=null",
        good="moe_router_num_groups=4",
    ),
    requires(
        "MOE005",
        "MC-ROUTER-04",
        "many experts want a router in higher precision",
        when="MOE and num_moe_experts >= 32",
        need="isset(moe_router_dtype)",
        severity=Severity.WARN,
        source="tc:3125",
        why="Scores of many experts lie close together; BF16 scores make ties and unstable routing.",
        bad="num_moe_experts=64 moe_router_dtype=null",
        good="moe_router_dtype=fp32",
        fixes=({"model.moe_router_dtype": "fp32"},),
        note="changes routing precision: a new convergence experiment",
    ),
    requires(
        "MOE006",
        "MC-ROUTER-05",
        "padding the routing map needs FP8 or FP4 and a dispatcher that can pad",
        when="on(moe_router_padding_for_quantization) or on(moe_router_padding_for_fp8)",
        need=("FP8 or FP4", "get(moe_token_dispatcher_type) not in ('allgather', 'alltoall_seq')"),
        source="tc:2652",
        why="It pads the tokens of each expert to the block of the quantised matrix product.",
        bad="num_moe_experts=8 moe_router_padding_for_quantization=true fp8=null fp4=null moe_token_dispatcher_type=alltoall",
        good="fp8=e4m3",
    ),
    requires(
        "MOE007",
        "MC-AUX-01",
        "several balancing losses need as many coefficients",
        when="islist(moe_router_load_balancing_type)",
        need="islist(moe_aux_loss_coeff) and count(moe_aux_loss_coeff) == count(moe_router_load_balancing_type)",
        source="tc:1832",
        why="Each loss has its own weight.",
        bad="num_moe_experts=8 moe_router_load_balancing_type=[aux_loss,seq_aux_loss] moe_aux_loss_coeff=0.01",
        good="moe_aux_loss_coeff=[0.01,0.001]",
    ),
    adjusts(
        "MOE008",
        "MC-EXPERTS-02 MLM-MOE-03",
        "an unset expert size becomes the dense size",
        when="MOE and unset(moe_ffn_hidden_size)",
        effective={"model.moe_ffn_hidden_size": "=get(ffn_hidden_size)"},
        severity=Severity.WARN,
        source="tc:1687 + ar:1652",
        why="Each expert is then as large as a dense layer, which multiplies the parameters; upstream only warns.",
        bad="num_moe_experts=8 moe_ffn_hidden_size=null ffn_hidden_size=6144",
        good="moe_ffn_hidden_size=768",
        hint="set model.moe_ffn_hidden_size",
    ),
    requires(
        "MOE009",
        "MC-EXPERTS-01 MLM-MOE-03",
        "the number of experts is unset or positive",
        when="isset(num_moe_experts)",
        need="num_moe_experts > 0",
        source="tc:1683",
        why="Megatron-LM's parser maps 0 to none; a configuration with 0 is refused.",
        frameworks=("bridge",),
        bad="num_moe_experts=0",
        good="num_moe_experts=null",
        fixes=({"model.num_moe_experts": None},),
    ),
    requires(
        "MOE011",
        "MC-SHEXP-01",
        "the size of shared experts is positive",
        when="isset(moe_shared_expert_intermediate_size)",
        need="moe_shared_expert_intermediate_size > 0",
        source="tc:1817",
        why="Zero is not the way to say that there are none: unset it.",
        bad="num_moe_experts=8 moe_shared_expert_intermediate_size=0",
        good="moe_shared_expert_intermediate_size=null",
        fixes=({"model.moe_shared_expert_intermediate_size": None},),
    ),
    requires(
        "MOE012",
        "MC-SHEXP-02",
        "overlapping shared experts needs an all-to-all or flex dispatcher",
        when="moe_shared_expert_overlap and isset(moe_shared_expert_intermediate_size)",
        need="moe_token_dispatcher_type in ('alltoall', 'flex')",
        source="tc:1825",
        why="Shared experts run while tokens travel.",
        bad="num_moe_experts=8 moe_shared_expert_overlap=true moe_token_dispatcher_type=allgather "
        "moe_shared_expert_intermediate_size=512",
        good="moe_token_dispatcher_type=alltoall",
    ),
    requires(
        "MOE013",
        "MC-LATENT-01",
        "a latent expert size excludes overlapped shared experts",
        when="isset(get(moe_latent_size)) and on(moe_latent_size)",
        need="not on(moe_shared_expert_overlap)",
        stage=Stage.BUILD,
        source="lm:megatron/core/transformer/moe/moe_layer.py:480",
        why="Dispatched tokens have the latent size, shared experts the full one.",
        bad="num_moe_experts=8 moe_latent_size=512 moe_shared_expert_overlap=true",
        good="moe_shared_expert_overlap=false",
    ),
    requires(
        "MOE014",
        "MLM-MOE-06",
        "a latent expert size is positive and needs experts",
        when="isset(get(moe_latent_size))",
        need=("moe_latent_size > 0", "isset(num_moe_experts)"),
        stage=Stage.PARSE,
        source="ar:1981",
        why="It is the width in which tokens travel to experts.",
        bad="moe_latent_size=0 num_moe_experts=8",
        good="moe_latent_size=512",
    ),
    requires(
        "MOE015",
        "MC-MOEBIAS-01",
        "linear biases in experts need an expert tensor size of 1",
        when="MOE and add_bias_linear",
        need="ETP == 1",
        source="tc:2615",
        why="An unset expert tensor size follows TP (with EP 1), and a split bias would be added once per rank.",
        bad="num_moe_experts=8 add_bias_linear=true TP=2 EP=1 sequence_parallel=true",
        good="add_bias_linear=false",
        fixes=({"model.add_bias_linear": False}, {"model.expert_tensor_parallel_size": 1}),
    ),
    requires(
        "MOE016",
        "MC-MOEEXP-01",
        "TE grouped experts exclude biases with fused bias-dropout",
        when="MOE and moe_grouped_gemm and add_bias_linear",
        need="not on(bias_dropout_fusion)",
        stage=Stage.BUILD,
        source="lm:megatron/core/transformer/moe/experts.py:207",
        why="Grouped matrix products return no bias to fuse.",
        bad="num_moe_experts=8 moe_grouped_gemm=true add_bias_linear=true bias_dropout_fusion=true",
        good="bias_dropout_fusion=false",
    ),
)

CAPACITY = (
    adjusts(
        "MOE017",
        "MC-CAP-01",
        "a negative capacity factor means none",
        when="moe_expert_capacity_factor < 0",
        effective={"model.moe_expert_capacity_factor": None},
        source="tc:1838",
        why="No token is dropped.",
        bad="num_moe_experts=8 moe_expert_capacity_factor=-1.0",
        good="moe_expert_capacity_factor=null",
    ),
    requires(
        "MOE018",
        "MC-CAP-02",
        "a capacity factor needs a loss-based balancing",
        when="isset(moe_expert_capacity_factor) and moe_expert_capacity_factor >= 0",
        need="within(moe_router_load_balancing_type, ('aux_loss', 'seq_aux_loss', 'global_aux_loss', 'none'))",
        source="tc:1848",
        why="Sinkhorn balances by itself.",
        bad="num_moe_experts=8 moe_expert_capacity_factor=1.0 moe_router_load_balancing_type=sinkhorn",
        good="moe_router_load_balancing_type=aux_loss",
        fixes=({"model.moe_expert_capacity_factor": None},),
    ),
    requires(
        "MOE019",
        "MC-CAP-03",
        "padding experts to capacity needs a capacity factor",
        when="moe_pad_expert_input_to_capacity",
        need="isset(moe_expert_capacity_factor) and moe_expert_capacity_factor >= 0",
        source="tc:1865",
        why="There is no capacity to pad to. " + NOTE_DROPS.capitalize() + ".",
        bad="num_moe_experts=8 moe_pad_expert_input_to_capacity=true moe_expert_capacity_factor=null",
        good="moe_pad_expert_input_to_capacity=false",
        fixes=({"model.moe_pad_expert_input_to_capacity": False},),
        hint=NOTE_DROPS,
    ),
    requires(
        "MOE020",
        "MC-CAP-04",
        "a rank capacity needs HybridEP or NCCL-EP with static experts",
        when="isset(get(moe_expert_rank_capacity_factor))",
        need=(
            "get(moe_flex_dispatcher_backend) in ('hybridep', 'ncclep')",
            "get(moe_flex_dispatcher_backend) != 'hybridep' or on(use_transformer_engine_op_fuser) or on(moe_use_grouped_tensor)",
        ),
        source="tc:1871",
        why="Only these backends can size a rank's buffer ahead.",
        bad="num_moe_experts=8 moe_expert_rank_capacity_factor=1.2 moe_flex_dispatcher_backend=deepep",
        good="moe_flex_dispatcher_backend=ncclep",
    ),
)

RULES = (layer_frequency, expert_size, *ROUTING, *CAPACITY)
