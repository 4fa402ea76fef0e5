"""The shape of a model: what decides its parameters, FLOPs and memory.

Field names keep Megatron's spelling. `config.views.view_model` makes one from a resolved configuration.
"""

from __future__ import annotations

from collections.abc import Sequence

from autorecipe.record import dataclass


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Architecture of a decoder LLM (the language model of a multimodal one).

    Attributes:
        moe_layer_pattern: one flag per decoder layer, True where the layer is a mixture of experts; empty for dense models.
        window_size: sliding-window attention as (left, right) or None.
        hybrid_layer_pattern: layer letters of a hybrid model (`M` Mamba, `*` attention, `-` MLP, `E` MoE), empty otherwise.
        mtp_num_layers: multi-token-prediction depths.
        has_post_norms: whether attention and feed-forward layers are normalised once more before they are added (Gemma 2, 3).
        norms_all_heads: whether query and key norms run over all heads at once (OLMoE).
    """

    num_layers: int
    hidden_size: int
    ffn_hidden_size: int
    num_attention_heads: int
    num_query_groups: int
    kv_channels: int
    vocab_size: int
    seq_length: int
    normalization: str = "RMSNorm"
    activation_func: str = "silu"
    gated_linear_unit: bool = True
    add_bias_linear: bool = False
    add_qkv_bias: bool = False
    qk_layernorm: bool = False
    position_embedding_type: str = "rope"
    max_position_embeddings: int | None = None
    share_embeddings_and_output_weights: bool = False
    make_vocab_size_divisible_by: int = 128
    attention_output_gate: bool = False
    softmax_type: str = "vanilla"
    window_size: tuple[int, int] | None = None
    window_attn_skip_freq: int | Sequence[int] | None = None
    # What model classes of Megatron Bridge add (see `config.variants`).
    has_post_norms: bool = False
    norms_all_heads: bool = False
    # Multi-latent attention.
    multi_latent_attention: bool = False
    q_lora_rank: int | None = None
    kv_lora_rank: int | None = None
    qk_head_dim: int | None = None
    qk_pos_emb_head_dim: int | None = None
    v_head_dim: int | None = None
    # Mixture of experts.
    num_moe_experts: int | None = None
    moe_router_topk: int | None = None
    moe_ffn_hidden_size: int | None = None
    moe_shared_expert_intermediate_size: int | None = None
    moe_shared_expert_gate: bool = False
    moe_router_enable_expert_bias: bool = False
    moe_latent_size: int | None = None
    moe_layer_pattern: tuple[bool, ...] = ()
    # Multi-token prediction.
    mtp_num_layers: int = 0
    # Hybrid (Mamba, linear attention).
    hybrid_layer_pattern: str = ""
    mamba_num_heads: int | None = None
    mamba_head_dim: int | None = None
    mamba_state_dim: int | None = None
    mamba_num_groups: int | None = None
    experimental_attention_variant: str | None = None
    linear_attention_freq: int | Sequence[int] | None = None
    linear_num_key_heads: int | None = None
    linear_num_value_heads: int | None = None
    linear_key_head_dim: int | None = None
    linear_value_head_dim: int | None = None
    linear_conv_kernel_dim: int | None = None

    @property
    def is_moe(self) -> bool:
        """Whether any layer is a mixture of experts."""
        return bool(self.num_moe_experts)

    @property
    def num_moe_layers(self) -> int:
        """Decoder layers that are mixtures of experts."""
        return sum(self.moe_layer_pattern)

    @property
    def is_hybrid(self) -> bool:
        """Whether layers other than attention and MLP occur."""
        return bool(self.hybrid_layer_pattern)
