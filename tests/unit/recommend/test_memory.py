"""The fit that an answer states is what `autorecipe estimate memory` says about its command."""

import json

import pytest

from autorecipe.api.estimate import estimate_target_memory, find_target
from autorecipe.api.recommend import recommend
from autorecipe.api.resolve import resolve_run
from autorecipe.cli.main import execute
from autorecipe.config.views import view_layout
from autorecipe.launch.training import render_override


@pytest.mark.parametrize(
    "question",
    [
        "Llama 3 8B pretraining on 8 H100",
        "llama3_8b_128k_pretrain_config on 16 H200",
        "Qwen3 8B SFT on 4 A100",
        "Qwen3 8B SFT on 8 H100 with 32K tokens",
        "LoRA of Llama 3 70B on 8 H100",
        "DoRA of Llama 3 70B on 8 H100",
        "DoRA of Qwen3 8B on 1 B200 with squad",
        "Qwen3 30B-A3B SFT on 16 H100",
        "Qwen3 30B-A3B LoRA on 4 GB200",
        "deepseek_v3_pretrain_config on 512 H100",
        "Llama 3.1 405B pretraining with 8K tokens on 128 B300",
        "qwen3_vl_8b_sft_config on 8 H100",
        "qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config on 16 H100",
    ],
)
def test_the_stated_fit_is_the_estimate_of_the_command(question):
    (answer,) = recommend(question, release="0.6.2")
    sizing, stated = answer.sizing, answer.sizing.memory
    target = find_target(
        recipe=answer.pick.name,
        overrides=[render_override(change.path, change.value) for change in answer.overrides],
        gpus=sizing.num_gpus,
        gpu=sizing.gpu,
        mode="dora" if answer.question.adapter == "dora" else None,
        dataset=answer.dataset.preset or None,
        release="0.6.2",
    )
    estimate = estimate_target_memory(target)
    assert stated.peak_bytes == pytest.approx(estimate.peak_bytes, rel=1e-9)
    assert stated.verdict is estimate.verdict
    assert (stated.capacity_bytes, stated.capacity_fact) == (estimate.capacity_bytes, estimate.capacity_fact)
    low = estimate.reserved_bytes[0] + estimate.outside_bytes[0]
    assert stated.device_bytes == pytest.approx((low, estimate.reserved_bytes[1] + estimate.outside_bytes[1]), rel=1e-9)


def test_the_estimate_takes_what_a_launch_says(capsys):
    given = ["estimate", "memory", "llama3_70b_peft_config", "--gpus", "8", "--gpu", "h200", "--format", "json"]
    assert execute([*given, "--mode", "dora", "--dataset", "squad"]) == 0
    assert json.loads(capsys.readouterr().out)["capacity_fact"] == "visible_memory_bytes"
    assert execute([*given, "--dataset", "sqad"]) == 2
    assert "squad" in capsys.readouterr().err
    assert execute(["estimate", "memory", "--model", "Qwen/Qwen3-8B", "--gpus", "8", "--gpu", "h100", "--mode", "dora"]) == 2
    assert "--mode go" in capsys.readouterr().err


def test_what_fits_is_judged_by_what_a_process_sees_where_that_is_known():
    seen, printed = (recommend(f"Llama 3 8B pretraining on 8 {gpu}", release="0.6.2")[0] for gpu in ("H200", "GB200"))
    assert seen.sizing.memory.capacity_fact == "visible_memory_bytes"
    assert round(seen.sizing.memory.capacity_bytes / 2**30, 1) == 139.8  # sold as 141 GB, which are 131.3 GiB
    assert printed.sizing.memory.capacity_fact == "memory_bytes"
    assert "139.8 GiB that a process sees" in " ".join(line.text for line in seen.summary)
    assert "173.2 GiB by the data sheet" in " ".join(line.text for line in printed.summary)


def test_dora_needs_more_than_lora():
    lora, dora = (recommend(f"{adapter} of Llama 3 70B on 8 H100", release="0.6.2")[0] for adapter in ("LoRA", "DoRA"))
    assert dora.sizing.memory.peak_bytes > lora.sizing.memory.peak_bytes
    assert all("--mode dora" in step for step in dora.next_steps[:2])


def test_a_preset_that_switches_packing_off_is_named():
    packs, own = (recommend(question, release="0.6.2")[0] for question in ("Qwen3 8B SFT on 4 H100", "Qwen3-Next SFT on 64 H100"))
    (pitfall,) = [item for item in packs.pitfalls if item.code == "pitfall.packing-off"]
    assert pitfall.facts == {"preset": "tulu3", "tokens": 2048}
    assert "pitfall.packing-off" not in [item.code for item in own.pitfalls]


def test_an_expert_tensor_size_that_is_unset_is_written_where_it_would_change():
    """TP=4 and EP=1 give an unset ETP of 4; EP=2 alone would make it 1, and the experts four times as large a share."""
    (answer,) = recommend("nemotron_omni_cord_v2_sft_config on 8 H100", release="0.6.2")
    assert answer.sizing.shipped.ep == 1 < answer.sizing.layout.ep
    texts = [render_override(change.path, change.value) for change in answer.overrides]
    assert view_layout(resolve_run(answer.pick.name, texts, release="0.6.2", world_size=8)) == answer.sizing.layout
