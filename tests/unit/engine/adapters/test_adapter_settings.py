"""What the adapter fields mean, and which are refused."""

from typing import Any

import pytest

from autorecipe.engine.adapters.settings import AdapterSettings, read_adapter
from autorecipe.errors import UsageError
from autorecipe.schema.run import RunConfig


def read(**fields: Any) -> AdapterSettings:
    values = {"peft._class": "LoRA", **{f"peft.{name}": value for name, value in fields.items()}}
    found = read_adapter(RunConfig(values=values))
    assert found is not None
    return found


def test_a_run_without_adapter_trains_the_model() -> None:
    assert read_adapter(RunConfig(values={"peft": None})) is None


def test_defaults_are_upstreams() -> None:
    settings = read()
    assert (settings.dim, settings.alpha, settings.scale, settings.a_init, settings.b_init) == (32, 32, 1, "xavier", "zero")
    assert read(_class="DoRA").alpha == 64


@pytest.mark.parametrize(
    ("targets", "name", "expected"),
    [
        (["linear_qkv"], "decoder.layers.1.self_attention.linear_qkv", True),
        (["linear_qkv"], "decoder.layers.1.mlp.linear_fc1", False),
        (["*.layers.0.*.linear_qkv"], "decoder.layers.0.self_attention.linear_qkv", True),
        (["*.layers.0.*.linear_qkv"], "decoder.layers.10.self_attention.linear_qkv", False),
        (["*mlp*"], "decoder.layers.1.mlp.linear_fc2", True),
        (["linear_fc1"], "decoder.layers.1.mlp.experts.local_experts.3.linear_fc1", True),
        (["*.experts.linear_fc1"], "decoder.layers.1.mlp.experts.linear_fc1", True),
        (["*.experts.linear_fc1"], "decoder.layers.1.mlp.experts.local_experts.3.linear_fc1", True),
        (["*.local_experts.3.*"], "decoder.layers.1.mlp.experts.local_experts.3.linear_fc1", True),
        (["*.local_experts.3.*"], "decoder.layers.1.mlp.experts.local_experts.13.linear_fc1", False),
        (["*.experts.*"], "decoder.layers.1.mlp.shared_experts.linear_fc1", False),
        (["*.shared_experts.*"], "decoder.layers.1.mlp.shared_experts.linear_fc1", True),
    ],
)
def test_targets_are_names_or_patterns(targets: list[str], name: str, expected: bool) -> None:
    assert read(target_modules=targets).matches(name) is expected


def test_without_targets_everything_not_excluded_is_meant() -> None:
    settings = read(target_modules=[], exclude_modules=["linear_fc1"])
    assert settings.matches("decoder.layers.0.mlp.linear_fc2")
    assert not settings.matches("decoder.layers.0.mlp.linear_fc1")


@pytest.mark.parametrize(
    ("kind", "model", "given", "expected"),
    [
        ("LoRA", {"model.num_moe_experts": 4, "model.moe_grouped_gemm": True}, None, True),
        ("LoRA", {"model.num_moe_experts": 4, "model.moe_grouped_gemm": True}, False, False),
        ("LoRA", {"model.num_moe_experts": 4, "model.moe_grouped_gemm": False}, True, False),
        ("LoRA", {"model.moe_grouped_gemm": True}, True, False),
        ("DoRA", {"model.num_moe_experts": 4, "model.moe_grouped_gemm": True}, None, False),
    ],
)
def test_grouped_experts_share_an_adapter_unless_told_otherwise(
    kind: str, model: dict[str, Any], given: bool | None, expected: bool
) -> None:
    found = read_adapter(RunConfig(values={"peft._class": kind, "peft.share_expert_adapters": given, **model}))
    assert found is not None and found.shares_experts is expected
    assert ("shares_experts" in found.identity()) is expected


def test_all_that_does_not_act_is_refused_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        read(dim=0, dropout=1.5, dropout_position="middle", lora_A_init_method="svd", normalize_moe_lora=True)
    assert [problem.path for problem in caught.value.problems] == [
        "peft.normalize_moe_lora",
        "peft.dim",
        "peft.dropout",
        "peft.dropout_position",
        "peft.lora_A_init_method",
    ]
    with pytest.raises(UsageError, match="BottleneckAdapter"):
        read(_class="BottleneckAdapter")
    with pytest.raises(UsageError, match="the only place that DoRA knows"):
        read(_class="DoRA", dropout_position="post")
