"""When an option acts at all. One that does not act is written for neither its default nor its given value.

Each condition reads the effective Megatron-LM configuration; names are those of the mapping table's `when`.
"""

from __future__ import annotations

from collections.abc import Callable

from autorecipe.record import dataclass
from autorecipe.translate.effective import MlmConfig


@dataclass(frozen=True)
class Condition:
    """When options act.

    Attributes:
        holds: whether they act in a configuration.
        needs: what has to be given for it, for a sentence that starts with "acts only".
    """

    holds: Callable[[MlmConfig], bool]
    needs: str


def _virtual(config: MlmConfig) -> bool:
    return config.get("virtual_pipeline_model_parallel_size") is not None


def _reads_files(config: MlmConfig) -> bool:
    paths = ("data_path", "data_args_path", "train_data_path", "valid_data_path", "test_data_path")
    return not config.on("mock_data") and any(config.get(dest) is not None for dest in paths)


CONDITIONS: dict[str, Condition] = {
    "constant_decay": Condition(
        lambda config: config.get("weight_decay_incr_style") == "constant",
        "while --weight-decay-incr-style is constant; otherwise start and end values act",
    ),
    "cuda_graphs": Condition(lambda config: config.get("cuda_graph_impl") not in (None, "none"), "with CUDA graphs"),
    "gelu": Condition(
        lambda config: not config.on("swiglu") and config.on("add_bias_linear"), "with biases and without --swiglu"
    ),
    "swiglu": Condition(lambda config: config.on("swiglu"), "with --swiglu"),
    "dsa": Condition(
        lambda config: config.get("experimental_attention_variant") == "dsa", "with --experimental-attention-variant dsa"
    ),
    "experts": Condition(lambda config: config.get("num_experts") is not None, "with --num-experts"),
    "fp8": Condition(lambda config: config.get("fp8") is not None, "with --fp8-format"),
    "hybrid": Condition(lambda config: config.get("hybrid_layer_pattern") is not None, "with --hybrid-layer-pattern"),
    "linear_attention": Condition(
        lambda config: config.get("experimental_attention_variant") not in (None, "dsa"),
        "with a linear --experimental-attention-variant",
    ),
    "lion": Condition(lambda config: config.get("optimizer") == "lion", "with --optimizer lion"),
    "local_layers": Condition(lambda config: config.get("transformer_impl") == "local", "with --transformer-impl local"),
    "megatron_fsdp": Condition(lambda config: config.on("use_megatron_fsdp"), "with --use-megatron-fsdp"),
    "mla": Condition(lambda config: config.on("multi_latent_attention"), "with --multi-latent-attention"),
    "mtp": Condition(lambda config: bool(config.get("mtp_num_layers")), "with --mtp-num-layers"),
    "muon": Condition(
        lambda config: config.get("optimizer") in ("muon", "dist_muon", "adaptive_muon"), "with --optimizer muon or dist_muon"
    ),
    "no_biases": Condition(lambda config: not config.on("add_bias_linear"), "with --disable-bias-linear"),
    "not_mla": Condition(lambda config: not config.on("multi_latent_attention"), "without --multi-latent-attention"),
    "optimizer_offload": Condition(lambda config: config.on("optimizer_cpu_offload"), "with --optimizer-cpu-offload"),
    "profile": Condition(lambda config: config.on("profile"), "with --profile"),
    "qk_clip": Condition(lambda config: config.on("qk_clip"), "with --qk-clip"),
    "real_data": Condition(
        _reads_files, "on data from files (--data-path); core splits made-up data evenly, whatever it is told"
    ),
    "rope": Condition(
        lambda config: config.get("position_embedding_type") in ("rope", "yarn", "mrope"), "with rotary position embeddings"
    ),
    "tp_overlap": Condition(lambda config: config.on("tp_comm_overlap"), "with --tp-comm-overlap"),
    "varying_decay": Condition(
        lambda config: config.get("weight_decay_incr_style") != "constant", "with --weight-decay-incr-style linear or cosine"
    ),
    "virtual_pipeline": Condition(_virtual, "with virtual pipeline stages"),
    "wsd": Condition(lambda config: config.get("lr_decay_style") == "WSD", "with --lr-decay-style WSD"),
    "yarn": Condition(
        lambda config: config.get("position_embedding_type") == "yarn" or config.get("rope_type") == "yarn",
        "with YaRN position embeddings",
    ),
}
