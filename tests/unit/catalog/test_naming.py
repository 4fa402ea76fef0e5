import pytest

from autorecipe.catalog.naming import forward_step_of, modality_of, mode_of, parse_name
from autorecipe.catalog.store import open_catalog
from autorecipe.schema.recipe import Mode


@pytest.mark.parametrize(
    ("name", "model", "mode", "gpus", "gpu_type", "precision", "variant"),
    [
        ("llama3_8b_pretrain_2gpu_h100_bf16_config", "llama3_8b", Mode.PRETRAIN, 2, "h100", "bf16", None),
        (
            "qwen3_30b_a3b_pretrain_16gpu_gb200_fp8mx_paged_stash_dev_config",
            "qwen3_30b_a3b",
            Mode.PRETRAIN,
            16,
            "gb200",
            "fp8mx",
            "paged_stash_dev",
        ),
        ("llama3_70b_peft_config", "llama3_70b", Mode.PEFT, None, None, None, None),
        ("glm52_sft_416gpu_h100_bf16_config@library", "glm52", Mode.SFT, 416, "h100", "bf16", None),
        ("deepseek_v3_pretrain_config_32nodes", "deepseek_v3", Mode.PRETRAIN, None, None, None, None),
    ],
)
def test_names_are_split(name, model, mode, gpus, gpu_type, precision, variant):
    parts = parse_name(name)
    assert (parts.model, parts.mode, parts.gpus, parts.gpu_type, parts.precision, parts.variant) == (
        model,
        mode,
        gpus,
        gpu_type,
        precision,
        variant,
    )


def test_every_shipped_name_with_hardware_is_understood():
    for summary in open_catalog("0.6.2").summaries():
        name = summary.name.removesuffix("@library")
        if "gpu_" in name:
            parts = parse_name(name)
            assert parts.gpus and parts.gpu_type and parts.precision, name


def test_modality_follows_the_forward_step():
    assert forward_step_of("qwen3_vl_8b_sft_config") == "qwen3_vl_step"
    assert modality_of("qwen3_vl_8b_sft_config") == "vlm"
    assert modality_of("wan_1_3b_text2video_pretrain_config") == "diffusion"
    assert modality_of("llama3_8b_sft_config") == "text"
    assert mode_of("vanilla_gpt_config") is None
