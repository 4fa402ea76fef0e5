"""The layouts on which the closed form is compared with the traced model: dense, experts, latent attention, long context,
hybrids of them.

Each entry: name, class, configuration values, GPUs, pipeline stage. Models are small in depth where that changes nothing, so
that a trace takes seconds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class TracedLayout:
    """One comparison."""

    name: str
    group: str
    values: Mapping[str, Any]
    gpus: int
    stage: int = 0


COMMON = {
    "model.normalization": "RMSNorm",
    "model.gated_linear_unit": True,
    "model.activation_func": "torch.nn.functional:silu",
    "model.add_bias_linear": False,
    "model.position_embedding_type": "rope",
    "model.hidden_dropout": 0.0,
    "model.attention_dropout": 0.0,
    "model.bias_activation_fusion": True,
    "model.share_embeddings_and_output_weights": False,
    "mixed_precision.bf16": True,
    "mixed_precision.grad_reduce_in_fp32": True,
    "model.bf16": True,
    "ddp.use_distributed_optimizer": True,
    "optimizer.use_distributed_optimizer": True,
    "optimizer.lr": 1e-4,
    "train.micro_batch_size": 1,
    "model.transformer_impl": "local",
}
LLAMA_8B = {
    "model.num_layers": 4,
    "model.hidden_size": 4096,
    "model.ffn_hidden_size": 14336,
    "model.num_attention_heads": 32,
    "model.num_query_groups": 8,
    "model.vocab_size": 128256,
}
LLAMA_70B = {
    "model.num_layers": 8,
    "model.hidden_size": 8192,
    "model.ffn_hidden_size": 28672,
    "model.num_attention_heads": 64,
    "model.num_query_groups": 8,
    "model.vocab_size": 128256,
}
GPT = {
    "model.num_layers": 4,
    "model.hidden_size": 2048,
    "model.ffn_hidden_size": 8192,
    "model.num_attention_heads": 16,
    "model.num_query_groups": 16,
    "model.vocab_size": 50304,
    "model.normalization": "LayerNorm",
    "model.gated_linear_unit": False,
    "model.activation_func": "torch.nn.functional:gelu",
    "model.add_bias_linear": True,
    "model.position_embedding_type": "learned_absolute",
    "model.share_embeddings_and_output_weights": True,
}
EXPERTS = {
    "model.moe_grouped_gemm": True,
    "model.moe_token_dispatcher_type": "alltoall",
    "model.moe_router_load_balancing_type": "aux_loss",
    "model.moe_aux_loss_coeff": 1e-3,
}
QWEN3_30B = {
    "model.num_layers": 4,
    "model.hidden_size": 2048,
    "model.ffn_hidden_size": 6144,
    "model.num_attention_heads": 32,
    "model.num_query_groups": 4,
    "model.kv_channels": 128,
    "model.vocab_size": 151936,
    "model.qk_layernorm": True,
    "model.num_moe_experts": 128,
    "model.moe_router_topk": 8,
    "model.moe_ffn_hidden_size": 768,
    **EXPERTS,
}
QWEN3_235B = {
    **QWEN3_30B,
    "model.num_layers": 8,
    "model.hidden_size": 4096,
    "model.ffn_hidden_size": 12288,
    "model.num_attention_heads": 64,
    "model.moe_ffn_hidden_size": 1536,
}
MIXTRAL = {
    **LLAMA_8B,
    "model.num_layers": 4,
    "model.vocab_size": 32000,
    "model.num_moe_experts": 8,
    "model.moe_router_topk": 2,
    "model.moe_ffn_hidden_size": 14336,
    **EXPERTS,
}
DEEPSEEK = {
    "model.num_layers": 4,
    "model.hidden_size": 7168,
    "model.ffn_hidden_size": 18432,
    "model.num_attention_heads": 128,
    "model.num_query_groups": 128,
    "model.vocab_size": 129280,
    "model.multi_latent_attention": True,
    "model.q_lora_rank": 1536,
    "model.kv_lora_rank": 512,
    "model.qk_head_dim": 128,
    "model.qk_pos_emb_head_dim": 64,
    "model.v_head_dim": 128,
    "model.qk_layernorm": True,
    "model.num_moe_experts": 64,
    "model.moe_router_topk": 8,
    "model.moe_ffn_hidden_size": 2048,
    "model.moe_shared_expert_intermediate_size": 2048,
    "model.moe_layer_freq": [0, 1, 1, 1],
    **EXPERTS,
}
AXES = {
    "tp": "model.tensor_model_parallel_size",
    "pp": "model.pipeline_model_parallel_size",
    "vp": "model.virtual_pipeline_model_parallel_size",
    "cp": "model.context_parallel_size",
    "ep": "model.expert_model_parallel_size",
    "etp": "model.expert_tensor_parallel_size",
}


def _make(
    name: str, group: str, model: Mapping[str, Any], *, gpus: int, seq: int = 4096, gbs: int = 64, stage: int = 0, **rest: Any
) -> TracedLayout:
    values: dict[str, Any] = {
        **COMMON,
        **model,
        "dataset.seq_length": seq,
        "model.seq_length": seq,
        "train.global_batch_size": gbs,
    }
    for key, value in rest.items():
        values[AXES.get(key, key.replace("__", "."))] = value
    if values.get("model.tensor_model_parallel_size", 1) > 1:
        values.setdefault("model.sequence_parallel", True)
    return TracedLayout(name=name, group=group, values=values, gpus=gpus, stage=stage)


FULL = {"model__recompute_granularity": "full", "model__recompute_method": "uniform", "model__recompute_num_layers": 1}
BLOCK = {"model__recompute_granularity": "full", "model__recompute_method": "block", "model__recompute_num_layers": 1}


def selective(*modules: str) -> dict[str, Any]:
    """Return the overrides of selective recomputation."""
    return {"model__recompute_granularity": "selective", "model__recompute_modules": list(modules)}


def lora(*targets: str, rank: int = 16) -> dict[str, Any]:
    """Return the overrides of low-rank adapters on frozen weights."""
    names = targets or ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
    return {
        "peft___class": "LoRA",
        "peft__dim": rank,
        "peft__alpha": 2 * rank,
        "peft__target_modules": list(names),
    }


LAYOUTS = (
    _make("8b one gpu", "dense", LLAMA_8B, gpus=1),
    _make("8b mbs 2", "dense", LLAMA_8B, gpus=8, train__micro_batch_size=2),
    _make("8b tp2", "dense", LLAMA_8B, gpus=8, tp=2),
    _make("8b tp4 pp2 first", "dense", LLAMA_8B, gpus=8, tp=4, pp=2),
    _make("8b tp4 pp2 last", "dense", LLAMA_8B, gpus=8, tp=4, pp=2, stage=1),
    _make(
        "8b replicated optimizer",
        "dense",
        {**LLAMA_8B, "ddp.use_distributed_optimizer": False, "optimizer.use_distributed_optimizer": False},
        gpus=4,
    ),
    _make("8b full recompute", "dense", LLAMA_8B, gpus=8, **FULL),
    _make("8b block recompute pp4", "dense", LLAMA_8B, gpus=8, pp=4, **BLOCK),
    _make("8b mlp recompute", "dense", LLAMA_8B, gpus=8, **selective("mlp")),
    _make("70b tp8 pp4 vp2 first", "dense", LLAMA_70B, gpus=64, tp=8, pp=4, vp=2),
    _make("70b tp8 pp4 vp2 second", "dense", LLAMA_70B, gpus=64, tp=8, pp=4, vp=2, stage=1),
    _make("70b tp4 pp8 middle", "dense", LLAMA_70B, gpus=64, tp=4, pp=8, stage=3),
    _make("gpt learned positions", "dense", GPT, gpus=4, seq=2048),
    _make("gpt tp2 pp2", "dense", GPT, gpus=8, seq=2048, tp=2, pp=2),
    _make("8b 16-bit gradients", "dense", {**LLAMA_8B, "mixed_precision.grad_reduce_in_fp32": False}, gpus=8),
    _make("30b-a3b ep8", "moe", QWEN3_30B, gpus=8, ep=8),
    _make("30b-a3b ep4 dp", "moe", QWEN3_30B, gpus=16, ep=4),
    _make("30b-a3b tp2 ep4", "moe", QWEN3_30B, gpus=8, tp=2, ep=4),
    _make("235b tp4 pp4 ep8 first", "moe", QWEN3_235B, gpus=64, tp=4, pp=4, ep=8),
    _make("235b tp4 pp4 ep8 second", "moe", QWEN3_235B, gpus=64, tp=4, pp=4, ep=8, stage=1),
    _make("235b act and norm recompute", "moe", QWEN3_235B, gpus=64, tp=4, pp=4, ep=8, **selective("moe_act", "layernorm")),
    _make("235b full recompute", "moe", QWEN3_235B, gpus=64, tp=4, pp=4, ep=8, stage=1, **FULL),
    _make("8x7b tp2 ep4 etp1", "moe", MIXTRAL, gpus=8, tp=2, ep=4, etp=1),
    _make("8x7b ep8 mbs 2", "moe", MIXTRAL, gpus=8, ep=8, train__micro_batch_size=2),
    _make("671b-like ep16", "mla", DEEPSEEK, gpus=16, ep=16),
    _make("671b-like tp2 ep8", "mla", DEEPSEEK, gpus=16, tp=2, ep=8),
    _make("671b-like pp2 ep8 last", "mla", DEEPSEEK, gpus=16, pp=2, ep=8, stage=1),
    _make("8b lora", "peft", LLAMA_8B, gpus=8, **lora()),
    _make("8b lora tp2 qkv", "peft", LLAMA_8B, gpus=8, tp=2, **lora("linear_qkv")),
    _make("70b lora tp4 pp2 last", "peft", LLAMA_70B, gpus=8, tp=4, pp=2, stage=1, **lora()),
    _make("8b dora", "peft", LLAMA_8B, gpus=8, **{**lora(), "peft___class": "DoRA"}),
    _make("8b dora tp2 full recompute", "peft", LLAMA_8B, gpus=8, tp=2, **{**lora(), "peft___class": "DoRA", **FULL}),
    _make("8b 32k cp4", "long", LLAMA_8B, gpus=8, seq=32768, cp=4),
    _make("8b 64k cp8 tp2", "long", LLAMA_8B, gpus=16, seq=65536, cp=8, tp=2),
    _make("8b 128k cp8 full recompute", "long", LLAMA_8B, gpus=16, seq=131072, cp=8, gbs=16, **FULL),
    _make("8b 32k cp4 over heads", "long", LLAMA_8B, gpus=8, seq=32768, cp=4, model__cp_comm_type="a2a"),
)
