"""What comes out of a fit passes every rule, or says which it breaks."""

import pytest

from autorecipe.api.recommend import recommend


def ask(text):
    (answer,) = recommend(text, release="0.6.2")
    return answer


@pytest.mark.parametrize(
    ("question", "path", "value", "layer"),
    [
        # In-batch packing wants two rows, and the recipe ships one.
        ("ministral3_8b_sft_config on 8 H100", "train.micro_batch_size", 2, "fingerprint"),
        # DeepEP does not run on GB200.
        ("qwen3_30b_a3b_peft_config on 4 GB200", "model.moe_flex_dispatcher_backend", "hybridep", "execution"),
        # The smallest learning rate of the recipe lies above the largest.
        ("qwen2_audio_7b_sft_config on 8 H100", "optimizer.min_lr", None, "convergence"),
    ],
)
def test_what_the_recipe_itself_breaks_is_repaired_and_labelled(question, path, value, layer):
    answer = ask(question)
    (repair,) = [change for change in answer.overrides if change.reason.code == "change.repair"]
    assert (repair.path, repair.value, repair.layer.value) == (path, value, layer)
    assert answer.check.passes
    assert answer.sizing.verdict.value == "resized"  # not as shipped
    assert path in answer.command


def test_a_repaired_micro_batch_is_the_one_that_is_sized():
    answer = ask("ministral3_8b_sft_config on 8 H100")
    assert (answer.sizing.micro_batch_size, answer.sizing.num_microbatches) == (2, 4)
    assert not [step for step in answer.on_oom if "micro-batch" in step.code]


def test_a_layout_that_a_rule_of_the_model_refuses_is_not_taken():
    # Its pipeline layouts are a table, and 12 GPUs would need PP=3, which is not in it.
    answer = ask("moonlight_16b_pretrain_config on 12 GB200")
    assert (answer.sizing.num_gpus, answer.sizing.idle_gpus, answer.sizing.layout.pp) == (8, 4, 1)
    assert answer.check.passes


def test_in_batch_packing_keeps_two_rows():
    answer = ask("qwen25_vl_72b_sft_config on 16 H200")
    assert answer.sizing.micro_batch_size >= 2
    assert answer.check.passes


def test_a_benchmark_is_not_repaired():
    answer = ask("qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config on 16 H100")
    assert answer.overrides == ()


def test_memory_of_other_inputs_is_said_to_be_missing():
    images = ask("qwen3_vl_8b_sft_config on 8 H100")
    assert "summary.memory-language" in {item.code for item in images.summary}
    assert "pitfall.engine" in {item.code for item in images.pitfalls}
    assert "summary.memory-language" not in {item.code for item in ask("Llama 3 8B pretraining on 8 H100").summary}
