import pytest

from autorecipe.config.cohort import check_cohort
from autorecipe.config.contract import DIMENSIONS, OPEN_PATHS, Contract, dimension_of, parse_contract
from autorecipe.config.layers import starts_new_experiment
from autorecipe.config.resolve import resolve_config
from autorecipe.errors import UsageError
from autorecipe.schema import Layer, RecipeKind


def members(make_recipe, schema, *typed, **changes):
    recipe = make_recipe(**changes)
    return {f"m{index}": resolve_config(recipe, schema, texts) for index, texts in enumerate(typed)}


def test_equal_members_are_like_for_like(make_recipe, schema):
    report = check_cohort(members(make_recipe, schema, [], ["model.tensor_model_parallel_size=2"]), Contract())
    assert report.label == "like-for-like evidence"
    assert report.aligned
    assert not report.deviations


def test_a_deviation_comes_with_the_override_that_removes_it(make_recipe, schema):
    report = check_cohort(members(make_recipe, schema, [], ["optimizer.lr=1", "dataset.seq_length=512"]), Contract())
    assert report.label == "not a cohort: align it first"
    assert {(item.dimension, item.path, item.override) for item in report.deviations} == {
        ("optimizer", "optimizer.lr", "optimizer.lr=0.0003"),
        ("sequence", "dataset.seq_length", "dataset.seq_length=4096"),
    }
    overrides = ["optimizer.lr=1", "dataset.seq_length=512", *report.members[1].overrides]
    assert check_cohort(members(make_recipe, schema, [], overrides), Contract()).aligned


def test_precision_is_aligned_as_a_whole(make_recipe, schema):
    typed = (["mixed_precision=bf16_mixed"], ["mixed_precision=fp16_mixed"])
    report = check_cohort(members(make_recipe, schema, *typed), Contract())
    assert "mixed_precision=bf16_mixed" in report.members[1].overrides
    aligned = members(make_recipe, schema, typed[0], [*typed[1], *report.members[1].overrides])
    assert check_cohort(aligned, Contract()).aligned


def test_a_weight_decay_that_does_not_act_is_no_deviation(make_recipe, schema):
    assert check_cohort(members(make_recipe, schema, [], ["optimizer.weight_decay=9"]), Contract()).aligned


def test_a_dense_member_has_no_routing_to_deviate_with(make_recipe, schema):
    moe = ["model.num_moe_experts=8", "model.moe_aux_loss_coeff=0.01"]
    report = check_cohort(members(make_recipe, schema, moe, []), Contract())
    assert report.aligned
    assert report.label.startswith("aligned cohort: trends at equal tokens only")


def test_a_tokenizer_of_another_model_is_forced(make_recipe, schema):
    typed = ([], ["model.hidden_size=512", "tokenizer.vocab_size=9"])
    report = check_cohort(members(make_recipe, schema, *typed), Contract())
    assert "tokenizer.vocab_size" in {item.path for item in report.deviations}
    assert all(item.forced for item in report.deviations)
    assert "never absolute losses" in " ".join(report.reasons)


def test_mock_data_and_benchmark_recipes_are_no_evidence(make_recipe, schema):
    report = check_cohort(members(make_recipe, schema, [], [], kind=RecipeKind.BENCHMARK), Contract())
    assert report.label.startswith("not convergence evidence")
    mocked = check_cohort(members(make_recipe, schema, [], [], dataset__mock=False), Contract())
    assert mocked.members[0].doubts == ("mock data",)


def test_token_checkpoints_fall_on_saved_steps(make_recipe, schema):
    per_step = 32 * 4096
    contract = Contract(token_checkpoints=(100 * per_step, 300 * per_step))
    recipe = {"checkpoint__save_interval": 500}
    report = check_cohort(members(make_recipe, schema, [], [], **recipe), contract)
    assert report.members[0].checkpoint_steps == (100, 300)
    assert {item.override for item in report.deviations} == {"checkpoint.save_interval=100"}
    beyond = Contract(token_checkpoints=(2000 * per_step,))
    found = check_cohort(members(make_recipe, schema, [], [], **recipe), beyond)
    assert "train.train_iters=2000" in {item.override for item in found.deviations}
    uneven = check_cohort(members(make_recipe, schema, [], []), Contract(token_checkpoints=(per_step + 1,)))
    assert "choose a multiple" in uneven.deviations[0].why


CONTRACT = """
name: bounded
values:
  train.global_batch_size: 64
  optimizer.lr: "*"
ignore: [rng.seed]
token_checkpoints: [8388608]
"""


def test_a_contract_file_overrules_the_reference(make_recipe, schema):
    contract = parse_contract(CONTRACT, schema, name="c.yaml")
    assert contract.token_checkpoints == (8388608,)
    report = check_cohort(members(make_recipe, schema, [], ["train.global_batch_size=64", "rng.seed=9"]), contract)
    assert report.contract == "bounded"
    assert {(item.member, item.path) for item in report.deviations if item.dimension != "token checkpoints"} == {
        ("m0", "train.global_batch_size")
    }


def test_a_contract_also_holds_for_values_that_are_derived(make_recipe, schema):
    contract = Contract(values={"scheduler.lr_decay_iters": 700})
    report = check_cohort(members(make_recipe, schema, [], []), contract)
    assert {item.override for item in report.deviations} == {"scheduler.lr_decay_iters=700"}


def test_a_contract_file_is_checked_as_a_whole(schema):
    text = "valus: {}\nvalues: {optimizer.lrr: 1, train.train_iters: x}\nignore: [a.b]\ntoken_checkpoints: [1.5]\n"
    with pytest.raises(UsageError) as caught:
        parse_contract(text, schema, name="c.yaml")
    text = str(caught.value)
    for expected in ("'values'", "'optimizer.lr'", "an integer", "a.b", "whole token counts"):
        assert expected in text


@pytest.mark.parametrize("text", ["- a", "{", "1"])
def test_a_contract_is_a_mapping(schema, text):
    with pytest.raises(UsageError):
        parse_contract(text, schema, name="c.yaml")


def test_every_convergence_path_but_the_architecture_is_in_a_dimension():
    from autorecipe.catalog.store import open_catalog

    schema = open_catalog().schema()
    found = {path: dimension_of(path) for path in schema}
    assert set(found.values()) >= set(DIMENSIONS)
    left_out = {
        path.split(".", 1)[0]
        for path, declared in schema.items()
        if declared.layer is Layer.CONVERGENCE and "." in path and not found[path] and path not in OPEN_PATHS
    }
    assert left_out == {"model"}
    moved = {path for path, name in found.items() if name and not starts_new_experiment(path, schema[path].layer)}
    assert moved == {"checkpoint.save_interval"}
