import pytest

from autorecipe.config.views import evaluate_list_expression, moe_layer_pattern, view_batch, view_layout, view_model
from autorecipe.errors import UsageError
from autorecipe.schema import RunConfig


def config(**values):
    return RunConfig(values={key.replace("__", "."): value for key, value in values.items()})


def test_unset_expert_tensor_size_follows_bridge():
    base = {"model__tensor_model_parallel_size": 4, "model__num_moe_experts": 8}
    assert view_layout(config(**base)).etp == 4
    assert view_layout(config(**base, model__expert_model_parallel_size=2)).etp == 1


def test_sequence_comes_from_the_dataset():
    batch = view_batch(
        config(
            dataset__seq_length=8192,
            model__seq_length=4096,
            train__global_batch_size=8,
            train__micro_batch_size=1,
        )
    )
    assert batch.seq_length == 8192


def test_all_missing_paths_at_once():
    with pytest.raises(UsageError) as caught:
        view_model(config())
    assert [problem.path for problem in caught.value.problems] == [
        "model.num_layers",
        "model.hidden_size",
        "model.num_attention_heads",
    ]


@pytest.mark.parametrize("heads", [0, -4])
def test_sizes_below_one_are_named_with_those_that_are_missing(heads):
    with pytest.raises(UsageError) as caught:
        view_model(config(model__num_layers=2, model__hidden_size=0, model__num_attention_heads=heads))
    problems = {problem.path: problem.message for problem in caught.value.problems}
    assert problems == {
        "model.hidden_size": "is 0, and a model needs at least 1",
        "model.num_attention_heads": f"is {heads}, and a model needs at least 1",
    }


def test_moe_layer_pattern():
    assert sum(moe_layer_pattern("([0]*3+[1]*58)", 61)) == 58
    assert moe_layer_pattern(2, 4) == (True, False, True, False)
    with pytest.raises(UsageError, match="gives 2 layers"):
        moe_layer_pattern([1, 0], 3)


@pytest.mark.parametrize("text", ["__import__('os')", "[1]*10**9", "open('x')", "[1]*999999999", "(", "1.5"])
def test_list_expressions_execute_nothing(text):
    with pytest.raises(UsageError):
        evaluate_list_expression(text)
