"""`plan` and `estimate` read one run: a planned layout given to `estimate` as overrides has the same numbers, digit by digit."""

import pytest

from autorecipe.api.estimate import estimate_target_memory, estimate_target_time, find_target
from autorecipe.api.plan import PlanQuestion, plan_run
from autorecipe.errors import UsageError
from autorecipe.plan.settings import render_override

QUESTIONS = [
    PlanQuestion(model="Qwen/Qwen3-8B", num_gpus=16, gpu="h100", max_micro_batch_size=1),
    PlanQuestion(model="Qwen/Qwen3-30B-A3B", num_gpus=64, gpu="gb200", max_micro_batch_size=2),
    PlanQuestion(model="meta-llama/Meta-Llama-3-70B", num_gpus=64, gpu="b200", max_micro_batch_size=1, seq_length=16384),
    PlanQuestion(
        model="Qwen/Qwen3-30B-A3B",
        num_gpus=32,
        gpu="h100",
        max_micro_batch_size=1,
        overrides=("model.moe_token_dispatcher_type=alltoall", "mixed_precision=bf16_with_fp8_current_scaling_mixed"),
    ),
    PlanQuestion(recipe="deepseek_v3_pretrain_config", num_gpus=512, gpu="h100", max_micro_batch_size=1),
    PlanQuestion(recipe="llama3_8b_pretrain_config", num_gpus=8, gpu="h200", max_micro_batch_size=1, with_fsdp=True),
    PlanQuestion(recipe="llama3_70b_peft_config", num_gpus=16, gpu="a100", max_micro_batch_size=1),
    PlanQuestion(recipe="nemotron_3_nano_pretrain_config", num_gpus=32, gpu="h100", max_micro_batch_size=1),
    PlanQuestion(recipe="qwen3_235b_a22b_pretrain_256gpu_h100_fp8cs_config", num_gpus=256, gpu="h100", max_micro_batch_size=1),
]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.recipe or question.model)
def test_a_planned_layout_has_the_numbers_that_estimate_gives_it(question):
    plan = plan_run(question, top=4)
    shipped = (plan.shipped,) if plan.shipped is not None else ()
    assert plan.choices
    for choice in (*plan.choices, *plan.pareto[-1:], *shipped):
        texts = [render_override(path, value) for path, value in choice.overrides.items()]
        lengths = [f"dataset.seq_length={question.seq_length}"] if question.seq_length else []
        target = find_target(
            recipe=question.recipe or None,
            model=question.model or None,
            overrides=(*question.overrides, *lengths, *texts),
            gpus=question.num_gpus,
            gpu=question.gpu,
        )
        time = estimate_target_time(target).time
        assert time.step_seconds == choice.step_seconds, choice.candidate.render()
        assert time.tflops_per_gpu == choice.tflops_per_gpu
        assert estimate_target_memory(target).peak_bytes == choice.peak_bytes, choice.candidate.render()


@pytest.mark.parametrize(
    ("tokens", "price", "named"), [(0.0, None, 1), (float("nan"), -1.0, 2), (None, 2.0, 1), (-5.0, float("inf"), 2)]
)
def test_budgets_that_are_none_are_named(tokens, price, named):
    target = find_target(model="Qwen/Qwen3-8B", gpus=8, gpu="h100")
    with pytest.raises(UsageError) as caught:
        estimate_target_time(target, tokens=tokens, price=price)
    assert len(caught.value.problems) == named


def test_an_override_wins_over_the_settings_of_a_tuned_run():
    tuned = find_target(model="Qwen/Qwen3-30B-A3B", gpus=16, gpu="h100", overrides=("model.expert_model_parallel_size=8",))
    assert tuned.inputs.policy.dispatcher == "deepep"
    given = find_target(
        model="Qwen/Qwen3-30B-A3B",
        gpus=16,
        gpu="h100",
        overrides=("model.expert_model_parallel_size=8", "model.moe_token_dispatcher_type=alltoall"),
    )
    assert given.inputs.policy.dispatcher == "alltoall"
    assert estimate_target_time(given).time.step_seconds > estimate_target_time(tuned).time.step_seconds
