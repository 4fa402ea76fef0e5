"""Makes tiny random models with transformers' own classes, and says what they compute. Not a test."""

from pathlib import Path
from typing import Any

import torch

SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
LATENT: dict[str, Any] = {
    **EXPERTS,
    "num_key_value_heads": 4,
    "num_hidden_layers": 4,
    "first_k_dense_replace": 1,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 12,
    "routed_scaling_factor": 2.5,
}
GEMMA3 = {"head_dim": 16, "sliding_window": 5, "sliding_window_pattern": 2, "query_pre_attn_scalar": 24}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama2": ("Llama", {}),
    "llama3": ("Llama", {"rope_parameters": {**LLAMA3, "original_max_position_embeddings": 8192}, "tie_word_embeddings": True}),
    "llama-yarn": ("Llama", {"rope_parameters": YARN}),
    "mistral": ("Mistral", {"sliding_window": 5, "head_dim": 16}),
    "ministral": ("Ministral", {"head_dim": 16, "sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}),
    "ministral3": ("Ministral3", {"head_dim": 16, "tie_word_embeddings": True}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2-windows": ("Qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "phi3": ("Phi3", {"pad_token_id": 0}),
    "qwen3-moe": ("Qwen3Moe", {**EXPERTS, "head_dim": 16, "num_experts": 4, "norm_topk_prob": True}),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "deepseek-v2-lite": ("DeepseekV2", {**LATENT, "q_lora_rank": None, "topk_method": "greedy", "mlp_bias": False}),
    "deepseek-v3": (
        "DeepseekV3",
        {
            **LATENT,
            "q_lora_rank": 24,
            "n_group": 4,
            "topk_group": 2,
            "num_experts_per_tok": 4,
            "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
        },
    ),
    "gpt-oss": (
        "GptOss",
        {
            "head_dim": 16,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 5,
            "rope_parameters": {**YARN, "truncate": False},
        },
    ),
    "olmoe": ("Olmoe", {"num_experts": 4, "num_experts_per_tok": 2}),
    "olmoe-heads": ("Olmoe", {"num_experts": 4, "num_experts_per_tok": 2, "num_key_value_heads": 4, "norm_topk_prob": True}),
    "gemma": ("Gemma", {"head_dim": 16}),
    "gemma2": (
        "Gemma2",
        {
            "head_dim": 16,
            "sliding_window": 5,
            "query_pre_attn_scalar": 24,
            "attn_logit_softcapping": 3.0,
            "final_logit_softcapping": 5.0,
        },
    ),
    "gemma3": ("Gemma3Text", {**GEMMA3, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "moonlight": ("DeepseekV3", {**LATENT, "q_lora_rank": None, "n_group": 1, "topk_group": 1, "rms_norm_eps": 1e-5}),
}


def make_model(name: str, folder: Path, dtype: torch.dtype = torch.float32, **changes: Any) -> torch.Tensor:
    """Save a random model in several files and return its logits, [2, 24, vocabulary]."""
    import transformers

    kind, fields = MODELS[name]
    torch.manual_seed(7)
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **fields, **changes})
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).to(dtype).eval()
    with torch.no_grad():
        buffers = (value for name, value in model.named_buffers() if "inv_freq" not in name and "embed_scale" not in name)
        for tensor in (*model.parameters(), *buffers):
            tensor.add_(0.2 * torch.randn_like(tensor))  # norms, biases and routing that matter
        model.save_pretrained(folder, max_shard_size="20KB")
        logits: torch.Tensor = model(make_tokens()).logits
    return logits


def make_tokens() -> torch.Tensor:
    """Return the tokens that logits are taken of, [2, 24]."""
    return torch.randint(0, SIZES["vocab_size"], (2, 24), generator=torch.Generator().manual_seed(3))
