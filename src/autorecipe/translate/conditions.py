"""When an option acts at all. Options that do not act are not set for the sake of a differing default.

Each condition reads the effective Megatron-LM configuration; names are those of the mapping table's `when`.
"""

from __future__ import annotations

from collections.abc import Callable

from autorecipe.translate.effective import MlmConfig


def _virtual(config: MlmConfig) -> bool:
    return config.get("virtual_pipeline_model_parallel_size") is not None


CONDITIONS: dict[str, Callable[[MlmConfig], bool]] = {
    "cuda_graphs": lambda config: config.get("cuda_graph_impl") not in (None, "none"),
    "gelu": lambda config: not config.on("swiglu") and config.on("add_bias_linear"),
    "swiglu": lambda config: config.on("swiglu"),
    "dsa": lambda config: config.get("experimental_attention_variant") == "dsa",
    "experts": lambda config: config.get("num_experts") is not None,
    "fp8": lambda config: config.get("fp8") is not None,
    "hybrid": lambda config: config.get("hybrid_layer_pattern") is not None,
    "linear_attention": lambda config: config.get("experimental_attention_variant") not in (None, "dsa"),
    "lion": lambda config: config.get("optimizer") == "lion",
    "local_layers": lambda config: config.get("transformer_impl") == "local",
    "megatron_fsdp": lambda config: config.on("use_megatron_fsdp"),
    "mla": lambda config: config.on("multi_latent_attention"),
    "mtp": lambda config: bool(config.get("mtp_num_layers")),
    "muon": lambda config: config.get("optimizer") in ("muon", "dist_muon", "adaptive_muon"),
    "no_biases": lambda config: not config.on("add_bias_linear"),
    "not_mla": lambda config: not config.on("multi_latent_attention"),
    "optimizer_offload": lambda config: config.on("optimizer_cpu_offload"),
    "qk_clip": lambda config: config.on("qk_clip"),
    "rope": lambda config: config.get("position_embedding_type") in ("rope", "yarn", "mrope"),
    "tp_overlap": lambda config: config.on("tp_comm_overlap"),
    "virtual_pipeline": _virtual,
    "wsd": lambda config: config.get("lr_decay_style") == "WSD",
    "yarn": lambda config: config.get("position_embedding_type") == "yarn" or config.get("rope_type") == "yarn",
}
