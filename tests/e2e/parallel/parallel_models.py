"""Small models of each architecture family, as `model.*` fields."""

DENSE = {
    "num_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_query_groups": 4,
    "ffn_hidden_size": 128,
    "normalization": "RMSNorm",
    "gated_linear_unit": True,
    "activation_func": "silu",
    "add_bias_linear": False,
    "position_embedding_type": "rope",
    "share_embeddings_and_output_weights": False,
    "seq_length": 32,
    "vocab_size": 128,
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "calculate_per_token_loss": True,
}
CLASSIC = {
    **DENSE,
    "num_query_groups": None,
    "ffn_hidden_size": 256,
    "normalization": "LayerNorm",
    "gated_linear_unit": False,
    "activation_func": "gelu",
    "add_bias_linear": True,
    "position_embedding_type": "learned_absolute",
    "share_embeddings_and_output_weights": True,
}
MOE = {
    **DENSE,
    "num_moe_experts": 4,
    "moe_router_topk": 2,
    "moe_ffn_hidden_size": 64,
    "moe_token_dispatcher_type": "alltoall",
    "moe_router_load_balancing_type": "none",
    "moe_grouped_gemm": False,
}
LATENT = {
    **DENSE,
    "num_query_groups": None,
    "multi_latent_attention": True,
    "q_lora_rank": 32,
    "kv_lora_rank": 16,
    "qk_head_dim": 8,
    "qk_pos_emb_head_dim": 8,
    "v_head_dim": 8,
    "rope_type": "rope",
    "qk_layernorm": True,
}
DEEPSEEK = {
    **MOE,
    **{name: LATENT[name] for name in LATENT if name not in DENSE},
    "num_query_groups": None,
    "num_moe_experts": 8,
    "moe_grouped_gemm": True,
    "moe_layer_freq": [0, 1],
    "moe_router_score_function": "sigmoid",
    "moe_router_enable_expert_bias": True,
    "moe_router_bias_update_rate": 1e-3,
    "moe_router_num_groups": 4,
    "moe_router_group_topk": 2,
    "moe_router_topk_scaling_factor": 2.5,
    "moe_router_dtype": "fp32",
    "moe_shared_expert_intermediate_size": 64,
    "moe_router_load_balancing_type": "seq_aux_loss",
    "moe_aux_loss_coeff": 1e-3,
    # With losses summed over tokens Megatron-Core scales auxiliary gradients by each rank's own tokens, so that they depend on
    # TP and CP; with means of micro batches they do not.
    "calculate_per_token_loss": False,
    "mtp_num_layers": 1,
    "mtp_loss_scaling_factor": 0.1,
}
GEMMA2 = {
    "_class": "Gemma2ModelProvider",
    "activation_func": "megatron.core.activations:fast_gelu",
    # Weights are drawn around 1: norms that add another 1 would double what passes, and amplify rounding tenfold.
    "layernorm_zero_centered_gamma": False,
    "share_embeddings_and_output_weights": True,
    "window_size": [6, 0],
    "query_pre_attn_scalar": 24,
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 3.0,
}
GEMMA3 = {
    **{name: value for name, value in GEMMA2.items() if "soft" not in name and "pre_attn" not in name},
    "_class": "Gemma3ModelProvider",
    "qk_layernorm": True,
    "window_size": 7,
    "interleaved_attn_pattern": [1, 1],
    "rotary_base": [100, 10000],
    "rope_scaling_factor": 2.0,
    "softmax_scale": 0.3,
}
# Pipelines need more layers to cut.
DEEP = {"deepseek": {"num_layers": 4, "moe_layer_freq": [0, 1, 1, 1]}}
FAMILIES = {"dense": DENSE, "classic": CLASSIC, "moe": MOE, "latent": LATENT, "deepseek": DEEPSEEK}

TRAINING = {
    "train.micro_batch_size": 1,
    "train.global_batch_size": 4,
    "optimizer.optimizer": "adam",
    "optimizer.lr": 5e-3,
    "optimizer.min_lr": 5e-3,
    "optimizer.adam_eps": 1e-6,
    "optimizer.weight_decay": 0.01,
    "optimizer.clip_grad": 1.0,
    "optimizer.use_distributed_optimizer": True,
}

SHORT = {
    "tp": "model.tensor_model_parallel_size",
    "pp": "model.pipeline_model_parallel_size",
    "vp": "model.virtual_pipeline_model_parallel_size",
    "cp": "model.context_parallel_size",
    "ep": "model.expert_model_parallel_size",
    "etp": "model.expert_tensor_parallel_size",
    "sp": "model.sequence_parallel",
    "mixed_precision": "mixed_precision",
}


def make_values(family, **settings):
    """Return a run's values: a family, then settings by short axis name, dotted path (`__`) or bare model field."""
    values = {f"model.{name}": value for name, value in FAMILIES[family].items()} | TRAINING
    for name, value in settings.items():
        path = SHORT.get(name) or (name.replace("__", ".") if "__" in name else f"model.{name}")
        values[path] = value
    return values
