"""What a config.json means, and what of it is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from autorecipe.engine.hf.model import MISSING, HfModel, read_hf_model
from autorecipe.engine.hf.quantized import expand_blocks, expand_four_bits
from autorecipe.errors import EnvironmentProblem, UsageError

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 96,
    "max_position_embeddings": 64,
}
DEEPSEEK: dict[str, Any] = {
    **LLAMA,
    "model_type": "deepseek_v3",
    "moe_intermediate_size": 24,
    "n_routed_experts": 8,
    "num_experts_per_tok": 4,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "n_group": 4,
    "topk_group": 2,
}


def read(folder: Path, config: Any) -> HfModel:
    (folder / "config.json").write_text(json.dumps(config))
    return read_hf_model(folder)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rotary scaling 'dynamic'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 2.0}}, "rotary scaling {"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu'"),
        ({"attention_bias": True}, "attention_bias=True"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers='two' is no whole number"),
        ({"logit_scale": 0.0625}, "logit_scale=0.0625"),
        ({"torch_dtype": "float64"}, "dtype='float64'"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization 'awq'"),
        ({"model_type": "mistral", "sliding_window": 4, "layer_types": ["full_attention"]}, "layer_types=['full_attention']"),
        ({"model_type": "bert"}, "model_type 'bert' is not converted"),
        ({"model_type": "lama"}, "did you mean 'llama'?"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, {**LLAMA, **changes})
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"topk_group": 4, "n_group": 8}, "groups are ranked by their two best scores"),
        ({"num_experts_per_tok": 1, "n_group": 1, "topk_group": 1}, "num_experts_per_tok=1"),
        ({"norm_topk_prob": False}, "norm_topk_prob=False"),
        ({"rope_interleave": False}, "rope_interleave=False"),
        ({"model_type": "deepseek_v2", "topk_method": "group_limited_greedy"}, "ranks groups of experts by the sum"),
    ],
)
def test_routers_that_are_not_megatron_cores_are_refused(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    assert read(tmp_path, DEEPSEEK).values["model.moe_router_num_groups"] == 4
    with pytest.raises(UsageError, match=expected):
        read(tmp_path, {**DEEPSEEK, **changes})


@pytest.mark.parametrize("family", list(MISSING))
def test_a_family_that_is_not_built_is_refused_with_what_is_missing(tmp_path: Path, family: str) -> None:
    with pytest.raises(UsageError, match="which this engine does not build"):
        read(tmp_path, {**LLAMA, "model_type": family})


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_damaged_file_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(EnvironmentProblem, match=r"config\.json: cannot be read"):
        read_hf_model(tmp_path)


def test_blocks_of_8_bit_numbers_get_their_own_factors() -> None:
    weight = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    found = expand_blocks(weight.to(torch.float8_e4m3fn), torch.tensor([[2.0, 3.0], [5.0, 7.0]]), size=2)
    factors = torch.tensor([[2, 2, 3, 3], [2, 2, 3, 3], [5, 5, 7, 7]])
    assert torch.equal(found, weight.to(torch.float8_e4m3fn).float() * factors)


def test_4_bit_numbers_are_read_as_transformers_reads_them() -> None:
    mxfp4 = pytest.importorskip("transformers.integrations.mxfp4")
    generator = torch.Generator().manual_seed(1)
    blocks = torch.randint(0, 256, (2, 6, 3, 16), generator=generator, dtype=torch.uint8)
    exponents = torch.randint(110, 140, (2, 6, 3), generator=generator, dtype=torch.uint8)
    expected = mxfp4.convert_moe_packed_tensors(blocks, exponents, dtype=torch.float32)
    assert torch.equal(expand_four_bits(blocks, exponents), expected)
