"""Layer specifications: which class serves which role, for each family of modules.

Start reading at `block_spec`.
"""

from __future__ import annotations

from typing import Any

from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.models.backends import LocalSpecProvider
from megatron.core.models.gpt import gpt_layer_specs
from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec_for_backend
from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
from megatron.core.transformer.enums import AttnMaskType, LayerType
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.moe.experts import TEGroupedMLP
from megatron.core.transformer.multi_latent_attention import MLASelfAttention, MLASelfAttentionSubmodules
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.torch_norm import L2Norm
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
from megatron.core.transformer.transformer_layer import (
    TransformerLayer,
    TransformerLayerSubmodules,
    get_transformer_layer_offset,
)

from autorecipe.engine import compat
from autorecipe.engine.modules.attention import SdpaAttention
from autorecipe.engine.modules.experts import ColumnGroupedLinear, RowGroupedLinear
from autorecipe.engine.modules.latent import DuplicatedLinear, LatentAttention, accept_duplicated_linear
from autorecipe.engine.modules.norm import Norm
from autorecipe.engine.modules.variants import AllHeadsNorm, NormedResidual, RotaryByWindow


class OwnProvider(LocalSpecProvider):
    """This project's norms, attention and grouped experts; Megatron-Core's parallel linear layers."""

    def layer_norm(self, rms_norm: bool = False, for_qk: bool = False, has_residual: bool = False) -> type:
        """Return the norm."""
        return Norm

    def core_attention(self) -> type:
        """Return the attention without projections."""
        return SdpaAttention

    def grouped_mlp_modules(self, moe_use_grouped_gemm: bool, *legacy: Any) -> Any:
        """Return the experts: grouped where asked for, one module each otherwise."""
        if moe_use_grouped_gemm:
            return compat.experts_spec(TEGroupedMLP, ColumnGroupedLinear, RowGroupedLinear)
        return super().grouped_mlp_modules(False, *legacy)


def block_spec(config: Any, modules: str, vp_stage: int | None) -> TransformerBlockSubmodules:
    """Return the specification of this stage's decoder layers.

    Args:
        config: transformer configuration.
        modules: `own`, `core-local` or `transformer-engine`.
        vp_stage: virtual pipeline stage, None without interleaving.
    """
    if modules == "transformer-engine":
        return gpt_layer_specs.get_gpt_decoder_block_spec(
            config, use_transformer_engine=True, qk_l2_norm=config.qk_l2_norm, vp_stage=vp_stage
        )
    provider = _provider(modules)
    layers = layer_specs(config, modules)
    if config.pipeline_model_parallel_layout is not None:
        numbers = config.pipeline_model_parallel_layout.get_layer_id_list(layer_type=LayerType.decoder, vp_stage=vp_stage)
        local = [layers[number] for number in numbers]
    else:
        offset = get_transformer_layer_offset(config, vp_stage=vp_stage)
        local = layers[offset : offset + get_num_layers_to_build(config, vp_stage=vp_stage)]
    norm = provider.layer_norm(rms_norm=config.normalization == "RMSNorm")
    return TransformerBlockSubmodules(layer_specs=local, layer_norm=norm)


def layer_specs(config: Any, modules: str) -> list[ModuleSpec]:
    """Return one specification per decoder layer of the whole model."""
    if modules == "transformer-engine":
        specs: list[ModuleSpec] = gpt_layer_specs.get_gpt_decoder_layer_specs(
            config, use_transformer_engine=True, qk_l2_norm=config.qk_l2_norm
        )
        return specs
    provider = _provider(modules)
    dense = _layer_spec(config, provider, num_experts=None)
    if not config.num_moe_experts:
        return [dense] * config.num_layers
    sparse = _layer_spec(config, provider, num_experts=config.num_moe_experts)
    return [sparse if flag else dense for flag in config.moe_layer_freq]


def prediction_spec(config: Any, modules: str, vp_stage: int | None) -> Any:
    """Return the specification of the multi-token-prediction layers of this stage, or None where it has none."""
    if not config.mtp_num_layers:
        return None
    # The depth's transformer layer is the decoder's last one, also where this stage holds no decoder layer.
    layer = layer_specs(config, modules)[-1]
    if modules == "transformer-engine":
        return gpt_layer_specs.get_gpt_mtp_block_spec(config, layer, use_transformer_engine=True, vp_stage=vp_stage)
    return gpt_layer_specs.get_gpt_mtp_block_spec_for_backend(config, layer, _provider(modules), vp_stage=vp_stage)


def _provider(modules: str) -> Any:
    return LocalSpecProvider() if modules == "core-local" else OwnProvider()


def _layer_spec(config: Any, provider: Any, *, num_experts: int | None) -> ModuleSpec:
    is_rms = config.normalization == "RMSNorm"
    norm = provider.layer_norm(rms_norm=is_rms)
    if num_experts is None:
        mlp = gpt_layer_specs.get_mlp_module_spec_for_backend(backend=provider)
    else:
        mlp = get_moe_module_spec_for_backend(backend=provider, num_experts=num_experts, moe_grouped_gemm=config.moe_grouped_gemm)
    attention = _latent_spec(config, provider) if config.multi_latent_attention else _attention_spec(config, provider)
    # Checkpoint keys of norms are those of Transformer Engine's fused norm and projection, so both kinds can be exchanged.
    keys = {"input_layernorm.": "self_attention.linear_qkv.layer_norm_"} if not config.multi_latent_attention else {}
    if num_experts is None and not config.multi_latent_attention:
        keys["pre_mlp_layernorm."] = "mlp.linear_fc1.layer_norm_"
    add: Any = get_bias_dropout_add
    if config.variant is not None and config.variant.has_post_norms:
        add = ModuleSpec(module=NormedResidual, params={"config": config})
        keys |= {"self_attn_bda.norm.": "self_attention.linear_proj.post_layernorm."}
        keys |= {"mlp_bda.norm.": "mlp.linear_fc2.post_layernorm."}
    return ModuleSpec(
        module=TransformerLayer,
        submodules=TransformerLayerSubmodules(
            input_layernorm=norm,
            self_attention=attention,
            self_attn_bda=add,
            pre_mlp_layernorm=norm,
            mlp=mlp,
            mlp_bda=add,
            sharded_state_dict_keys_map=keys,
        ),
    )


def _attention_spec(config: Any, provider: Any) -> ModuleSpec:
    variant = config.variant
    if variant is not None and variant.norms_all_heads:
        counts = (config.num_attention_heads, config.num_query_groups)
        norms: Any = [ModuleSpec(module=AllHeadsNorm, params={"heads": count}) for count in counts]
    else:
        norms = [_head_norm(config, provider)] * 2
    return ModuleSpec(
        module=RotaryByWindow if variant is not None and variant.rotary_bases is not None else SelfAttention,
        params={"attn_mask_type": AttnMaskType.causal},
        submodules=SelfAttentionSubmodules(
            linear_qkv=provider.column_parallel_linear(),
            core_attention=provider.core_attention(),
            linear_proj=provider.row_parallel_linear(),
            q_layernorm=norms[0],
            k_layernorm=norms[1],
        ),
    )


def _head_norm(config: Any, provider: Any) -> Any:
    if config.qk_l2_norm:
        return L2Norm
    if config.qk_layernorm:
        return provider.layer_norm(rms_norm=config.normalization == "RMSNorm", for_qk=True)
    return IdentityOp


def _latent_spec(config: Any, provider: Any) -> ModuleSpec:
    is_own = isinstance(provider, OwnProvider)
    column = provider.column_parallel_linear()
    norm = provider.layer_norm(rms_norm=config.normalization == "RMSNorm", for_qk=True) if config.qk_layernorm else IdentityOp
    if is_own:
        accept_duplicated_linear()
    return ModuleSpec(
        module=LatentAttention if is_own else MLASelfAttention,
        params={"attn_mask_type": AttnMaskType.causal},
        submodules=MLASelfAttentionSubmodules(
            linear_q_proj=column,
            linear_q_down_proj=DuplicatedLinear if is_own else column,
            linear_q_up_proj=column,
            linear_kv_down_proj=DuplicatedLinear if is_own else column,
            linear_kv_up_proj=column,
            core_attention=provider.core_attention(),
            linear_proj=provider.row_parallel_linear(),
            q_layernorm=norm if config.q_lora_rank is not None else IdentityOp,
            kv_layernorm=norm,
        ),
    )
