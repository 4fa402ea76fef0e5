"""Rules for the model: activation, attention groups, positions, vocabulary, fusions that depend on the activation."""

from __future__ import annotations

from autorecipe.schema.translation import Status
from autorecipe.schema.value import FieldValue
from autorecipe.translate.effective import MlmConfig
from autorecipe.translate.rule import BridgeView, Cell, Rule
from autorecipe.translate.values import enum_member, last_name

SILU = "torch.nn.functional:silu"
GELU = "torch._C._nn:gelu"
SQUARED_RELU = "megatron.core.activations:squared_relu"
QUICK_GELU = "megatron.core.fusions.fused_bias_geglu:quick_gelu"


def _activation_forward(config: MlmConfig) -> list[Cell]:
    dests = ("swiglu", "quick_geglu", "squared_relu")
    gated, name, why = False, GELU, "Megatron-LM's default activation is GELU, not gated"
    if config.on("swiglu"):
        gated, name, why = True, SILU, "--swiglu is a gated SiLU"
    elif config.on("squared_relu"):
        name, why = SQUARED_RELU, "--squared-relu"
    elif config.on("quick_geglu"):
        gated, name, why = True, QUICK_GELU, "--quick-geglu is a gated quick GELU"
    return [Cell("model.gated_linear_unit", gated, dests, why), Cell("model.activation_func", name, dests, why)]


def _activation_backward(view: BridgeView) -> dict[str, FieldValue]:
    name = last_name(str(view.get("model.activation_func", "gelu")))
    gated = view.on("model.gated_linear_unit")
    known = {("silu", True): "swiglu", ("squared_relu", False): "squared_relu", ("relu2", False): "squared_relu"}
    known[("quick_gelu", True)] = "quick_geglu"
    found = known.get((name, gated))
    if found is None and not (name == "gelu" and not gated):
        return {}
    return {dest: dest == found for dest in ("swiglu", "quick_geglu", "squared_relu")}


def _fusion_forward(config: MlmConfig) -> list[Cell]:
    dest = "bias_swiglu_fusion" if config.on("swiglu") else "bias_gelu_fusion"
    why = "Megatron-LM fuses bias and activation unless told otherwise"
    return [Cell("model.bias_activation_fusion", config.on(dest), (dest,), why)]


def _fusion_backward(view: BridgeView) -> dict[str, FieldValue]:
    if not view.knows("model.bias_activation_fusion"):
        return {}
    gated = view.on("model.gated_linear_unit") and last_name(str(view.get("model.activation_func"))) == "silu"
    fused = view.on("model.bias_activation_fusion")
    if gated:
        return {"bias_swiglu_fusion": fused}
    return {"bias_gelu_fusion": fused} if view.get("model.add_bias_linear", True) else {}


def _groups_forward(config: MlmConfig) -> list[Cell]:
    dests = ("group_query_attention", "num_query_groups")
    if config.on("group_query_attention"):
        groups = config.get("num_query_groups")
        why = "" if "num_query_groups" in config.given else "--group-query-attention without a count means one group"
        return [Cell("model.num_query_groups", groups, dests, why)]
    heads = config.number("num_attention_heads")
    if heads is None or config.on("multi_latent_attention"):
        return []
    given = "--num-query-groups counts only with --group-query-attention: " if "num_query_groups" in config.given else ""
    return [Cell("model.num_query_groups", heads, dests, f"{given}one group a head")]


def _groups_backward(view: BridgeView) -> dict[str, FieldValue]:
    groups, heads = view.get("model.num_query_groups"), view.get("model.num_attention_heads")
    if view.on("model.multi_latent_attention") or groups is None or groups == heads:
        return {"group_query_attention": False}
    return {"group_query_attention": True, "num_query_groups": groups}


def _positions_forward(config: MlmConfig) -> list[Cell]:
    dests = ("position_embedding_type", "use_rotary_position_embeddings")
    why = "--use-rotary-position-embeddings stands for rope" if config.on("use_rotary_position_embeddings") else ""
    return [Cell("model.position_embedding_type", config.get("position_embedding_type"), dests, why)]


def _positions_backward(view: BridgeView) -> dict[str, FieldValue]:
    kind = view.get("model.position_embedding_type")
    return {} if kind is None else {"position_embedding_type": kind}


def _sequence_forward(config: MlmConfig) -> list[Cell]:
    length = config.number("seq_length")
    dests = ("seq_length", "encoder_seq_length")
    if length is None:
        return []
    why = "the launcher takes the dataset's length for both"
    return [Cell("model.seq_length", length, dests, why), Cell("dataset.seq_length", length, dests, why)]


def _sequence_backward(view: BridgeView) -> dict[str, FieldValue]:
    length = view.get("dataset.seq_length", view.get("model.seq_length"))
    return {} if length is None else {"seq_length": length, "max_position_embeddings": length}


def _moe_frequency_forward(config: MlmConfig) -> list[Cell]:
    if config.get("num_experts") is None and "moe_layer_freq" not in config.given:
        return []
    return [Cell("model.moe_layer_freq", config.get("moe_layer_freq"), ("moe_layer_freq",), "Bridge takes a number or a list")]


def _moe_frequency_backward(view: BridgeView) -> dict[str, FieldValue]:
    if view.get("model.num_moe_experts") is None or not view.knows("model.moe_layer_freq"):
        return {}
    return {"moe_layer_freq": view.get("model.moe_layer_freq")}


def _many_or_one(value: FieldValue) -> FieldValue:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _balancing_forward(config: MlmConfig) -> list[Cell]:
    if config.get("num_experts") is None and not config.given & {"moe_router_load_balancing_type", "moe_aux_loss_coeff"}:
        return []
    return [
        Cell(f"model.{dest}", _many_or_one(config.get(dest)), (dest,))
        for dest in ("moe_router_load_balancing_type", "moe_aux_loss_coeff")
    ]


def _balancing_backward(view: BridgeView) -> dict[str, FieldValue]:
    if view.get("model.num_moe_experts") is None:
        return {}
    dests = ("moe_router_load_balancing_type", "moe_aux_loss_coeff")
    return {dest: _many_or_one(view.get(f"model.{dest}")) for dest in dests if view.get(f"model.{dest}") is not None}


def _backend_forward(config: MlmConfig) -> list[Cell]:
    name = enum_member(config.get("attention_backend"))
    why = "--use-flash-attn stands for flash" if config.on("use_flash_attn") else ""
    return [Cell("model.attention_backend", f"AttnBackend.{name}", ("attention_backend", "use_flash_attn"), why)]


def _backend_backward(view: BridgeView) -> dict[str, FieldValue]:
    value = view.get("model.attention_backend")
    return {} if value is None else {"attention_backend": enum_member(value)}


def _cp_comm_forward(config: MlmConfig) -> list[Cell]:
    if config.size("context_parallel_size") == 1 and "cp_comm_type" not in config.given:
        return []
    return [Cell("model.cp_comm_type", _many_or_one(config.get("cp_comm_type")), ("cp_comm_type",))]


def _cp_comm_backward(view: BridgeView) -> dict[str, FieldValue]:
    value = view.get("model.cp_comm_type")
    if value is None:
        return {}
    return {"cp_comm_type": value if isinstance(value, list) else [value]}


def _untied_forward(config: MlmConfig) -> list[Cell]:
    dest = "untie_embeddings_and_output_weights"
    return [Cell("model.share_embeddings_and_output_weights", not config.on(dest), (dest,), "Megatron-LM ties them by default")]


def _untied_backward(view: BridgeView) -> dict[str, FieldValue]:
    path = "model.share_embeddings_and_output_weights"
    return {"untie_embeddings_and_output_weights": not view.on(path)} if view.knows(path) else {}


def _rope_scaling_forward(config: MlmConfig) -> list[Cell]:
    if not config.on("use_rope_scaling") and not config.given & {"use_rope_scaling", "rope_scaling_factor"}:
        return [Cell("model.rope_scaling", False, ("use_rope_scaling",))]
    return [
        Cell("model.rope_scaling", config.on("use_rope_scaling"), ("use_rope_scaling",)),
        Cell("model.rope_scaling_factor", config.get("rope_scaling_factor"), ("rope_scaling_factor", "use_rope_scaling")),
    ]


def _rope_scaling_backward(view: BridgeView) -> dict[str, FieldValue]:
    if not view.on("model.rope_scaling"):
        return {"use_rope_scaling": False}
    return {"use_rope_scaling": True, "rope_scaling_factor": view.get("model.rope_scaling_factor", 8.0)}


ARCHITECTURE_RULES = (
    Rule(
        name="activation",
        dests=("swiglu", "quick_geglu", "squared_relu"),
        paths=("model.gated_linear_unit", "model.activation_func"),
        status=Status.EXPANDS,
        forward=_activation_forward,
        backward=_activation_backward,
    ),
    Rule(
        name="bias-activation fusion",
        dests=("bias_swiglu_fusion", "bias_gelu_fusion"),
        paths=("model.bias_activation_fusion",),
        status=Status.RENAMED,
        forward=_fusion_forward,
        backward=_fusion_backward,
    ),
    Rule(
        name="query groups",
        dests=("group_query_attention", "num_query_groups"),
        paths=("model.num_query_groups",),
        status=Status.DERIVED,
        forward=_groups_forward,
        backward=_groups_backward,
    ),
    Rule(
        name="position embedding",
        dests=("position_embedding_type", "use_rotary_position_embeddings"),
        paths=("model.position_embedding_type",),
        status=Status.SAME,
        forward=_positions_forward,
        backward=_positions_backward,
    ),
    Rule(
        name="sequence length",
        dests=("seq_length", "encoder_seq_length"),
        paths=("model.seq_length", "dataset.seq_length", "dataset.sequence_length"),
        status=Status.EXPANDS,
        forward=_sequence_forward,
        backward=_sequence_backward,
    ),
    Rule(
        name="MoE layer pattern",
        dests=("moe_layer_freq",),
        paths=("model.moe_layer_freq",),
        status=Status.SAME,
        forward=_moe_frequency_forward,
        backward=_moe_frequency_backward,
    ),
    Rule(
        name="load balancing",
        dests=("moe_router_load_balancing_type", "moe_aux_loss_coeff"),
        paths=("model.moe_router_load_balancing_type", "model.moe_aux_loss_coeff"),
        status=Status.SAME,
        forward=_balancing_forward,
        backward=_balancing_backward,
    ),
    Rule(
        name="attention backend",
        dests=("attention_backend", "use_flash_attn"),
        paths=("model.attention_backend",),
        status=Status.SAME,
        forward=_backend_forward,
        backward=_backend_backward,
    ),
    Rule(
        name="context parallel communication",
        dests=("cp_comm_type",),
        paths=("model.cp_comm_type",),
        status=Status.SAME,
        forward=_cp_comm_forward,
        backward=_cp_comm_backward,
    ),
    Rule(
        name="tied embeddings",
        dests=("untie_embeddings_and_output_weights",),
        paths=("model.share_embeddings_and_output_weights",),
        status=Status.INVERTED,
        forward=_untied_forward,
        backward=_untied_backward,
    ),
    Rule(
        name="rotary scaling",
        dests=("use_rope_scaling", "rope_scaling_factor"),
        paths=("model.rope_scaling", "model.rope_scaling_factor"),
        status=Status.RENAMED,
        forward=_rope_scaling_forward,
        backward=_rope_scaling_backward,
    ),
)
