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
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama2": ("Llama", {}),
    "llama3": ("Llama", {"rope_parameters": {**LLAMA3, "original_max_position_embeddings": 8192}, "tie_word_embeddings": True}),
    "mistral": ("Mistral", {"sliding_window": 5, "head_dim": 16}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "qwen3-moe": (
        "Qwen3Moe",
        {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True},
    ),
}


def make_model(name: str, folder: Path, dtype: torch.dtype = torch.float32, **changes: Any) -> torch.Tensor:
    """Save a random model in several files and return its logits, [2, 24, vocabulary]."""
    import transformers

    kind, fields = MODELS[name]
    torch.manual_seed(7)
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **fields, **changes})
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{kind}ForCausalLM")(config).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases that matter
            parameter.add_(0.2 * torch.randn_like(parameter))
        model.save_pretrained(folder, max_shard_size="20KB")
        logits: torch.Tensor = model(make_tokens()).logits
    return logits


def make_tokens() -> torch.Tensor:
    """Return the tokens that logits are taken of, [2, 24]."""
    return torch.randint(0, SIZES["vocab_size"], (2, 24), generator=torch.Generator().manual_seed(3))
