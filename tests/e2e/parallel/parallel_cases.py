"""The table: every parallelism and every architecture variant, each against a reference run.

A case is a family, the ranks it needs, and settings in two parts: `both` (architecture; in the reference as well) and
`only` (layout and execution; only in the case). `reference` overrides the reference's settings, where that is not simply one
process without `only`.
"""

import dataclasses

import parallel_models as models


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    ranks: int
    family: str = "dense"
    both: dict = dataclasses.field(default_factory=dict)
    only: dict = dataclasses.field(default_factory=dict)
    packed: bool = False
    packed_reference: bool = True
    bound: str = "fp32"


def case(name, ranks, family="dense", both=None, packed=False, packed_reference=True, bound="fp32", **only):
    deeper = models.DEEP.get(family, {"num_layers": 4}) if "pp" in only else {}
    return Case(
        name=name,
        ranks=ranks,
        family=family,
        both={**deeper, **(both or {})},
        only=only,
        packed=packed,
        packed_reference=packed_reference,
        bound=bound,
    )


LAYOUTS = [
    case("TP 2", 2, tp=2),
    case("TP 2, SP", 2, tp=2, sp=True),
    case("TP 4, SP", 4, tp=4, sp=True),
    case("TP 2, SP, tied, biases, learned positions", 2, "classic", tp=2, sp=True),
    case("PP 2", 2, pp=2),
    case("PP 4", 4, pp=4),
    case("PP 2, tied embeddings", 2, "classic", pp=2),
    case("PP 2, VP 2", 2, pp=2, vp=2),
    case("PP 2, VP 2, tied embeddings", 2, "classic", pp=2, vp=2),
    case("PP 2, layout Et|tttL", 2, pp=2, pipeline_model_parallel_layout="Et|tttL"),
    case("PP 2, fewer layers in the first stage", 2, pp=2, num_layers_in_first_pipeline_stage=1),
    case("TP 2, PP 2, SP", 4, tp=2, pp=2, sp=True),
    case("TP 2, PP 2, VP 2, SP", 4, tp=2, pp=2, vp=2, sp=True),
    case("DP 2, distributed optimizer", 2),
    case("DP 2, plain optimizer", 2, optimizer__use_distributed_optimizer=False),
    case("DP 2, overlapped reduction and gather", 2, ddp__overlap_grad_reduce=True, ddp__overlap_param_gather=True),
    case("DP 2, PP 2, VP 2, overlapped", 4, pp=2, vp=2, ddp__overlap_grad_reduce=True, ddp__overlap_param_gather=True),
    case("DP 4, 2 optimizer instances", 4, ddp__num_distributed_optimizer_instances=2),
    case("DP 2, mean of micro batches", 2, both={"calculate_per_token_loss": False}),
    case(
        "DP 2, averaged in the collective",
        2,
        both={"calculate_per_token_loss": False},
        ddp__average_in_collective=True,
    ),
    case("micro batch 2", 1, train__micro_batch_size=2),
    case("CP 2, gathered keys", 2, cp=2),
    case("CP 2, exchanged heads", 2, cp=2, cp_comm_type="a2a"),
    case("CP 4, gathered keys", 4, cp=4),
    case("CP 4, exchanged heads", 4, cp=4, cp_comm_type="a2a"),
    case("CP 2, TP 2, SP", 4, cp=2, tp=2, sp=True),
    case("CP 2, TP 2, SP, exchanged heads", 4, cp=2, tp=2, sp=True, cp_comm_type="a2a"),
    case("CP 2, PP 2", 4, cp=2, pp=2),
    case("CP 2, sliding window", 2, both={"window_size": [6, 0]}, cp=2),
    case("packed rows", 1, packed=True, packed_reference=False, both={"train__micro_batch_size": 2}),
    case("packed rows, TP 2, SP", 2, packed=True, both={"train__micro_batch_size": 2}, tp=2, sp=True),
    case("packed rows, CP 2", 2, packed=True, both={"train__micro_batch_size": 2}, cp=2),
    case("packed rows, CP 2, exchanged heads", 2, packed=True, both={"train__micro_batch_size": 2}, cp=2, cp_comm_type="a2a"),
]

RECOMPUTE = [
    case(
        "full recompute, uniform",
        1,
        recompute_granularity="full",
        recompute_method="uniform",
        recompute_num_layers=1,
    ),
    case("full recompute, block", 1, recompute_granularity="full", recompute_method="block", recompute_num_layers=1),
    case(
        "full recompute, TP 2, SP, PP 2",
        4,
        tp=2,
        sp=True,
        pp=2,
        recompute_granularity="full",
        recompute_method="uniform",
        recompute_num_layers=1,
    ),
    case(
        "full recompute, saved activations split over TP 2",
        2,
        tp=2,
        distribute_saved_activations=True,
        recompute_granularity="full",
        recompute_method="uniform",
        recompute_num_layers=1,
    ),
    case("recompute of attention", 1, recompute_granularity="selective", recompute_modules=["core_attn"]),
    case(
        "recompute of norms and MLP, TP 2, SP",
        2,
        tp=2,
        sp=True,
        recompute_granularity="selective",
        recompute_modules=["layernorm", "mlp"],
    ),
    case(
        "recompute of experts' activations and norms, EP 2",
        2,
        "moe",
        ep=2,
        moe_grouped_gemm=True,
        recompute_granularity="selective",
        recompute_modules=["moe_act", "layernorm"],
    ),
    case("recompute of experts, EP 2", 2, "moe", ep=2, recompute_granularity="selective", recompute_modules=["moe"]),
    case("recompute of latent up projections", 1, "latent", recompute_granularity="selective", recompute_modules=["mla_up_proj"]),
]

EXPERTS = [
    case("EP 2", 2, "moe", ep=2),
    case("EP 4", 4, "moe", ep=4),
    case("EP 2, gathered tokens", 2, "moe", ep=2, moe_token_dispatcher_type="allgather"),
    case("EP 2, grouped experts", 2, "moe", ep=2, moe_grouped_gemm=True),
    case("grouped experts", 1, "moe", moe_grouped_gemm=True),
    case("TP 2, SP, ETP 1", 2, "moe", tp=2, sp=True, etp=1),
    case("TP 2, SP, ETP 1, grouped experts", 2, "moe", tp=2, sp=True, etp=1, moe_grouped_gemm=True),
    case("EP 2, TP 2, SP, ETP 1", 2, "moe", ep=2, tp=2, sp=True, etp=1),
    case("EP 2, TP 2, SP, ETP 2", 4, "moe", ep=2, tp=2, sp=True, etp=2),
    case("TP 2, SP, ETP 2, grouped experts", 2, "moe", tp=2, sp=True, etp=2, moe_grouped_gemm=True),
    case("EP 2, PP 2", 4, "moe", ep=2, pp=2),
    case("EP 2, CP 2", 2, "moe", ep=2, cp=2),
    case("EP 2, shared experts", 2, "moe", both={"moe_shared_expert_intermediate_size": 64}, ep=2),
    case(
        "EP 2, shared experts overlapped",
        2,
        "moe",
        both={"moe_shared_expert_intermediate_size": 64},
        ep=2,
        moe_shared_expert_overlap=True,
    ),
    case(
        "EP 2, capacity factor 8 (nothing dropped)",
        2,
        "moe",
        both={"moe_expert_capacity_factor": 8.0},
        ep=2,
    ),
    case(
        "PP 2, auxiliary loss",
        2,
        "moe",
        both={"moe_router_load_balancing_type": "aux_loss", "moe_aux_loss_coeff": 1e-2, "calculate_per_token_loss": False},
        pp=2,
    ),
    case(
        "EP 2, TP 2, SP, sequence auxiliary loss",
        2,
        "moe",
        both={"moe_router_load_balancing_type": "seq_aux_loss", "moe_aux_loss_coeff": 1e-2, "calculate_per_token_loss": False},
        ep=2,
        tp=2,
        sp=True,
        etp=1,
    ),
    case("EP 2, z loss", 2, "moe", both={"moe_z_loss_coeff": 1e-3}, ep=2),
    case(
        "EP 2, sigmoid routing, expert bias, groups",
        2,
        "moe",
        both={
            "num_moe_experts": 8,
            "moe_router_score_function": "sigmoid",
            "moe_router_enable_expert_bias": True,
            "moe_router_num_groups": 4,
            "moe_router_group_topk": 2,
            "moe_router_topk_scaling_factor": 2.5,
        },
        ep=2,
    ),
    case("EP 2, grouped experts with biases", 2, "moe", both={"moe_grouped_gemm": True, "add_bias_linear": True}, ep=2),
    case("EP 2, every second layer", 2, "moe", both={"moe_layer_freq": 2}, ep=2),
]

LATENT = [
    case("latent attention, TP 2, SP", 2, "latent", tp=2, sp=True),
    case("latent attention, PP 2", 2, "latent", pp=2),
    case("latent attention, CP 2", 2, "latent", cp=2),
    case("latent attention without query compression, TP 2, SP", 2, "latent", both={"q_lora_rank": None}, tp=2, sp=True),
    case(
        "latent attention, YaRN, TP 2, SP",
        2,
        "latent",
        both={
            "rope_type": "yarn",
            "rotary_scaling_factor": 4.0,
            "original_max_position_embeddings": 16,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
        tp=2,
        sp=True,
    ),
    case("multi-token prediction, TP 2, SP", 2, both={"mtp_num_layers": 1, "mtp_loss_scaling_factor": 0.1}, tp=2, sp=True),
    case("multi-token prediction, PP 2", 2, both={"mtp_num_layers": 1, "mtp_loss_scaling_factor": 0.1}, pp=2),
    case(
        "multi-token prediction, packed rows",
        1,
        packed=True,
        packed_reference=False,
        both={"mtp_num_layers": 1, "mtp_loss_scaling_factor": 0.1, "train__micro_batch_size": 2},
    ),
    case(
        "multi-token prediction, packed rows, CP 2",
        2,
        packed=True,
        both={"mtp_num_layers": 1, "mtp_loss_scaling_factor": 0.1, "train__micro_batch_size": 2},
        cp=2,
    ),
    case("DeepSeek-V3 stack, EP 2", 2, "deepseek", ep=2),
    case("DeepSeek-V3 stack, PP 2, EP 2", 4, "deepseek", pp=2, ep=2),
    case("DeepSeek-V3 stack, TP 2, SP, EP 2, ETP 1", 2, "deepseek", tp=2, sp=True, ep=2, etp=1),
]

ARCHITECTURES = [
    case("multi-head attention, TP 2, SP", 2, both={"num_query_groups": 8}, tp=2, sp=True),
    case("one key/value head, CP 2", 2, both={"num_query_groups": 1}, cp=2),
    case("QK norm, TP 2, SP", 2, both={"qk_layernorm": True}, tp=2, sp=True),
    case("QKV bias, TP 2", 2, both={"add_qkv_bias": True}, tp=2),
    case("squared ReLU, TP 2", 2, both={"activation_func": "squared_relu", "gated_linear_unit": False}, tp=2),
    case("half rotary, TP 2", 2, both={"rotary_percent": 0.5}, tp=2),
    case("interleaved rotary, TP 2", 2, both={"rotary_interleaved": True}, tp=2),
    case("scaled rotary (Llama 3.1), CP 2", 2, both={"rope_scaling": True, "rope_scaling_factor": 8.0}, cp=2),
    case("interpolated rotary, PP 2", 2, both={"seq_len_interpolation_factor": 2.0}, pp=2),
    case(
        "YaRN, PP 2",
        2,
        both={
            "position_embedding_type": "yarn",
            "yarn_rotary_scaling_factor": 4.0,
            "yarn_original_max_position_embeddings": 16,
            "yarn_beta_fast": 32.0,
            "yarn_beta_slow": 1.0,
            "yarn_mscale": None,
            "yarn_mscale_all_dim": None,
            "yarn_correction_range_round_to_int": False,
        },
        pp=2,
    ),
    case("zero-centred norms, TP 2, SP", 2, both={"layernorm_zero_centered_gamma": True}, tp=2, sp=True),
    case("sliding window, TP 2", 2, both={"window_size": [6, 0]}, tp=2),
    case("sliding window in every second layer, PP 2", 2, both={"window_size": [6, 0], "window_attn_skip_freq": 2}, pp=2),
    case(
        "padded vocabulary, TP 2", 2, both={"vocab_size": 100, "should_pad_vocab": True, "make_vocab_size_divisible_by": 64}, tp=2
    ),
    case("learned softmax sinks, TP 2, SP", 2, both={"softmax_type": "learnable"}, tp=2, sp=True),
    case("learned softmax sinks, CP 2", 2, both={"softmax_type": "learnable", "window_size": [6, 0]}, cp=2),
    case("learned softmax sinks, CP 2, exchanged heads", 2, both={"softmax_type": "learnable"}, cp=2, cp_comm_type="a2a"),
    case("Gemma 2 (soft caps, norms after layers, windows), TP 2, SP", 2, both=models.GEMMA2, tp=2, sp=True),
    case("Gemma 2, packed rows", 1, packed=True, packed_reference=False, both={**models.GEMMA2, "train__micro_batch_size": 2}),
    case("Gemma 3 (two rotary bases, norms after layers), PP 2", 2, both=models.GEMMA3, pp=2),
    case("Gemma 3, CP 2", 2, both=models.GEMMA3, cp=2),
    case("norms over all heads (OLMoE), TP 2, SP", 2, both={"_class": "OlMoEModelProvider", "qk_layernorm": True}, tp=2, sp=True),
    case("fused SwiGLU, TP 2", 2, both={"bias_activation_fusion": True}, tp=2),
]

MODULES = [
    case("own modules against Megatron-Core's, dense", 1, engine__modules="core-local", bound="modules"),
    case("own modules against Megatron-Core's, classic", 1, "classic", engine__modules="core-local", bound="modules"),
    case("own modules against Megatron-Core's, experts", 1, "moe", engine__modules="core-local", bound="modules"),
    case(
        "own modules against Megatron-Core's, learned softmax sinks",
        1,
        both={"softmax_type": "learnable"},
        engine__modules="core-local",
        bound="modules",
    ),
    case(
        "own modules against Megatron-Core's, softmax off by one",
        1,
        both={"softmax_type": "off-by-one"},
        engine__modules="core-local",
        bound="modules",
    ),
    case(
        "own modules against Megatron-Core's, sliding window",
        1,
        both={"window_size": [6, 0]},
        engine__modules="core-local",
        bound="modules",
    ),
]

ON = {"engine__fused_layers": "on", "engine__fused_loss": "on", "engine__fused_grad": "on"}
FUSED = [
    case(
        "fused, tied embeddings, half rotary", 1, both={"rotary_percent": 0.5, "share_embeddings_and_output_weights": True}, **ON
    ),
    case("fused, TP 2, SP", 2, tp=2, sp=True, **ON),
    case(
        "fused, DP 2, overlapped reduction and gather",
        2,
        both={"layernorm_zero_centered_gamma": True},
        ddp__overlap_grad_reduce=True,
        ddp__overlap_param_gather=True,
        **ON,
    ),
    case("fused, PP 2, VP 2, sliding window", 2, both={"window_size": [6, 0]}, pp=2, vp=2, **ON),
    case("fused, CP 2, one key/value head", 2, both={"num_query_groups": 1}, cp=2, **ON),
    case("fused, QK norm, multi-token prediction", 1, both={"qk_layernorm": True, "mtp_num_layers": 1}, **ON),
    case(
        "fused, packed rows",
        1,
        packed=True,
        packed_reference=False,
        both={"train__micro_batch_size": 2},
        **ON,
    ),
    case(
        "fused, full recompute",
        1,
        recompute_granularity="full",
        recompute_method="uniform",
        recompute_num_layers=1,
        **ON,
    ),
    case("fused, latent attention", 1, "latent", **ON),
    case(
        "fused, experts, shared experts", 1, "moe", both={"moe_shared_expert_intermediate_size": 64}, moe_grouped_gemm=True, **ON
    ),
]

PRECISION = [
    case("bf16, TP 2, SP", 2, both={"mixed_precision": "bf16_mixed"}, tp=2, sp=True, bound="bf16"),
    case("bf16, DP 2", 2, both={"mixed_precision": "bf16_mixed"}, bound="bf16"),
    case("bf16, PP 2", 2, both={"mixed_precision": "bf16_mixed"}, pp=2, bound="bf16"),
    case("bf16, CP 2", 2, both={"mixed_precision": "bf16_mixed"}, cp=2, bound="bf16"),
    case("bf16, EP 2", 2, "moe", both={"mixed_precision": "bf16_mixed"}, ep=2, bound="bf16-experts"),
    case(
        "fp16 with loss scaling, DP 2",
        2,
        both={"mixed_precision": "fp16_mixed", "optimizer__initial_loss_scale": 1024.0},
        bound="fp16",
    ),
]

SECTIONS = {
    "Parallel layouts, dense models": LAYOUTS,
    "Activation recompute": RECOMPUTE,
    "Mixtures of experts": EXPERTS,
    "Latent attention and multi-token prediction": LATENT,
    "Architecture variants": ARCHITECTURES,
    "Modules": MODULES,
    "Fused forms, in plain torch": FUSED,
    "Half precision": PRECISION,
}
ALL = [case for section in SECTIONS.values() for case in section]
