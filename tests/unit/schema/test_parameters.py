import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autorecipe.catalog.hfconfig import facts_from_config
from autorecipe.catalog.store import open_catalog
from autorecipe.config.views import view_model
from autorecipe.schema.model import ModelShape
from autorecipe.schema.parameters import count_parameters
from autorecipe.schema.run import RunConfig

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "parameters.json").read_text())
"""Parameters of instantiated models; multi-token prediction and buffers are not in them."""

WITHIN = {
    "google/gemma-2-2b": 1e-4,
    "google/gemma-2-9b": 1e-4,
    "google/gemma-2-27b": 1e-4,
    "google/gemma-3-1b-pt": 1e-4,
    "zai-org/GLM-5.1": 2e-3,
    "zai-org/GLM-5.2": 2e-3,
    "deepseek-ai/DeepSeek-V4-Flash": 1e-2,
    "deepseek-ai/DeepSeek-V4-Pro": 1e-2,
}
"""Relative error of models with parts that the count leaves out."""


def shape_of(facts):
    return view_model(RunConfig(values={f"model.{name}": value for name, value in facts.items()}))


@pytest.mark.parametrize("hf_id", sorted(GOLDEN))
def test_count_agrees_with_the_instantiated_model(hf_id):
    count = count_parameters(shape_of(open_catalog("0.6.2").model_card(hf_id).facts))
    found = count.total - count.multi_token_prediction
    assert found == pytest.approx(GOLDEN[hf_id], rel=WITHIN.get(hf_id, 0), abs=0)


@pytest.mark.parametrize(
    ("hf_id", "billions"),
    [
        ("Qwen/Qwen3-30B-A3B", 3.3),
        ("Qwen/Qwen3-235B-A22B", 22),
        ("deepseek-ai/DeepSeek-V3", 37),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", 3),
    ],
)
def test_active_parameters_agree_with_the_model_name(hf_id, billions):
    count = count_parameters(shape_of(open_catalog("0.6.2").model_card(hf_id).facts))
    assert count.active / 1e9 == pytest.approx(billions, rel=0.3)
    assert count.active < count.total / 8


@pytest.mark.parametrize(
    "hf_id", ["Qwen/Qwen3-8B", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b", "zai-org/GLM-4.5", "Qwen/Qwen2.5-7B"]
)
def test_a_local_config_gives_the_same_count_as_the_card(hf_id):
    from autorecipe.catalog.configs import gather_configs

    facts, missing = facts_from_config(gather_configs(use_cache=False).configs[hf_id])
    assert not missing
    expected = count_parameters(shape_of(open_catalog("0.6.2").model_card(hf_id).facts))
    assert count_parameters(shape_of(facts)).total == expected.total


@given(
    layers=st.integers(1, 8),
    hidden=st.sampled_from([64, 128]),
    experts=st.integers(2, 8),
    topk=st.integers(1, 2),
    tied=st.booleans(),
)
def test_parts_add_up_and_experts_scale(layers, hidden, experts, topk, tied):
    def shape(count):
        return ModelShape(
            num_layers=layers,
            hidden_size=hidden,
            ffn_hidden_size=4 * hidden,
            num_attention_heads=4,
            num_query_groups=2,
            kv_channels=16,
            vocab_size=1000,
            seq_length=128,
            share_embeddings_and_output_weights=tied,
            num_moe_experts=count,
            moe_router_topk=topk,
            moe_ffn_hidden_size=hidden,
            moe_layer_pattern=(True,) * layers,
        )

    few, many = count_parameters(shape(experts)), count_parameters(shape(2 * experts))
    assert sum(few.parts.values()) == few.total
    assert many.experts == 2 * few.experts
    assert many.active - few.active == layers * experts * hidden  # router rows alone
    assert few.embedding == 1000 * hidden * (1 if tied else 2)


def test_hybrid_layers_count_once_each():
    common = {
        "hidden_size": 64,
        "ffn_hidden_size": 128,
        "num_attention_heads": 4,
        "num_query_groups": 4,
        "kv_channels": 16,
        "vocab_size": 0,
        "seq_length": 16,
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "mamba_state_dim": 16,
        "mamba_num_groups": 1,
        "gated_linear_unit": False,
    }
    single = {letter: count_parameters(ModelShape(num_layers=1, hybrid_layer_pattern=letter, **common)).total for letter in "M*-"}
    both = count_parameters(ModelShape(num_layers=4, hybrid_layer_pattern="MM*-", **common)).total
    assert both == 2 * single["M"] + single["*"] + single["-"] - 3 * 64  # the final norm is there once
