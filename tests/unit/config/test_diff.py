import pytest

from autorecipe.config.diff import diff_configs, judge_changes
from autorecipe.config.layers import classify_path, layer_of
from autorecipe.config.resolve import resolve_config
from autorecipe.schema import Layer


def compare(make_recipe, schema, before=(), after=(), **changes):
    recipe = make_recipe(**changes)
    return diff_configs(resolve_config(recipe, schema, before), resolve_config(recipe, schema, after), schema)


def paths(changes, *, inert=False):
    return {change.path for change in changes if change.inert is inert}


def test_a_configuration_does_not_differ_from_itself(make_recipe, schema):
    config = resolve_config(make_recipe(mixed_precision="bf16_mixed"), schema, ["optimizer.weight_decay=3"])
    assert diff_configs(config, config, schema) == ()
    assert judge_changes(()).label == "identical"


def test_router_and_auxiliary_losses_are_a_new_experiment(make_recipe, schema):
    typed = ["model.moe_router_load_balancing_type=none", "model.moe_aux_loss_coeff=0.0001"]
    changes = compare(make_recipe, schema, after=typed)
    assert {change.layer for change in changes} == {Layer.CONVERGENCE}
    assert judge_changes(changes).label == "new convergence experiment"


def test_forced_balancing_is_benchmark_only_and_a_new_experiment(make_recipe, schema):
    changes = compare(make_recipe, schema, after=["model.moe_router_force_load_balancing=true"])
    assert changes[0].layer is Layer.BENCHMARK_ONLY
    assert judge_changes(changes).label == "new convergence experiment"


def test_a_layout_is_execution_only(make_recipe, schema):
    changes = compare(make_recipe, schema, after=["model.tensor_model_parallel_size=2"], model__vocab_size=32000)
    verdict = judge_changes(changes)
    assert not verdict.convergence
    assert verdict.label.startswith("execution only")


def test_a_layout_that_pads_the_vocabulary_wider_is_a_new_experiment(make_recipe, schema):
    changes = compare(make_recipe, schema, after=["model.tensor_model_parallel_size=8"], tokenizer__vocab_size=50257)
    assert [change.path for change in judge_changes(changes).convergence] == ["derived.padded_vocab_size"]


def test_a_micro_batch_is_allowed_while_the_global_batch_stays(make_recipe, schema):
    verdict = judge_changes(compare(make_recipe, schema, after=["train.micro_batch_size=1"]))
    assert verdict.fingerprint_allowed is True
    assert verdict.label.startswith("execution fingerprint")
    assert not verdict.convergence


@pytest.mark.parametrize("moved", ["train.global_batch_size=64", "dataset.random_seed=9", "train.train_iters=900"])
def test_a_micro_batch_is_not_allowed_with_the_batch_members_or_budget(make_recipe, schema, moved):
    verdict = judge_changes(compare(make_recipe, schema, after=["train.micro_batch_size=1", moved]))
    assert verdict.fingerprint_allowed is False
    assert verdict.convergence


def test_a_weight_decay_that_does_not_act_is_inert(make_recipe, schema):
    changes = compare(make_recipe, schema, after=["optimizer.weight_decay=0.5"])
    assert paths(changes) == set()
    (change,) = changes
    assert (change.path, change.before, change.after, change.inert) == ("optimizer.weight_decay", 0.033, 0.5, True)
    verdict = judge_changes(changes)
    assert verdict.label == "identical"
    assert verdict.inert == changes


def test_an_override_that_a_preset_undoes_is_inert(make_recipe, schema):
    changes = compare(make_recipe, schema, after=["ddp.grad_reduce_in_fp32=false"], mixed_precision="bf16_mixed")
    assert paths(changes) == set()
    assert paths(changes, inert=True) == {"ddp.grad_reduce_in_fp32"}


def test_a_preset_name_equals_an_object_with_its_fields(make_recipe, schema):
    named = resolve_config(make_recipe(), schema, ["mixed_precision=bf16_mixed"])
    target = "megatron.bridge.training.mixed_precision.MixedPrecisionConfig"
    typed = f"mixed_precision={{_target_:{target},bf16:true,params_dtype:bf16,pipeline_dtype:bf16}}"
    built = resolve_config(make_recipe(), schema, [typed])
    assert not paths(diff_configs(named, built, schema)) & {"mixed_precision", "mixed_precision.bf16", "model.bf16"}


def test_precision_is_never_performance_only(make_recipe, schema):
    changes = compare(make_recipe, schema, before=["mixed_precision=bf16_mixed"], after=["mixed_precision=fp16_mixed"])
    assert judge_changes(changes).label == "new convergence experiment"


def test_logging_moves_nothing(make_recipe, schema):
    assert judge_changes(compare(make_recipe, schema, after=["logger.log_interval=1"])).label == "input and output only"


def test_padding_is_execution_for_a_dense_model_only(make_recipe, schema):
    dense = compare(make_recipe, schema, after=["dataset.pad_to_max_length=true"], dataset__pad_to_max_length=False)
    assert dense[0].layer is Layer.EXECUTION
    moe = compare(
        make_recipe,
        schema,
        after=["dataset.pad_to_max_length=true"],
        dataset__pad_to_max_length=False,
        model__num_moe_experts=8,
    )
    assert moe[0].layer is Layer.CONVERGENCE


def test_true_is_not_one(make_recipe, schema):
    changes = compare(make_recipe, schema, before=["+env_vars.A=1"], after=["+env_vars.A=true"])
    assert paths(changes) == {"env_vars.A"}


@pytest.mark.parametrize(
    ("path", "layer"),
    [
        ("train.micro_batch_size", Layer.FINGERPRINT),
        ("train.global_batch_size", Layer.CONVERGENCE),
        ("dataset.enable_offline_packing", Layer.CONVERGENCE),
        ("dataset.offline_packing_specs.packed_sequence_size", Layer.CONVERGENCE),
        ("mixed_precision.fp8", Layer.CONVERGENCE),
        ("model.moe_expert_capacity_factor", Layer.CONVERGENCE),
        ("model.moe_token_dispatcher_type", Layer.EXECUTION),
        ("model.tensor_model_parallel_size", Layer.EXECUTION),
        ("ddp.overlap_grad_reduce", Layer.EXECUTION),
        ("ddp.grad_reduce_in_fp32", Layer.CONVERGENCE),
        ("train.skip_sync_grad_norm_across_mp", Layer.CONVERGENCE),
        ("checkpoint.load", Layer.CONVERGENCE),
        ("checkpoint.save_interval", Layer.IO),
        ("checkpoint.async_save", Layer.EXECUTION),
        ("logger.wandb_project", Layer.IO),
        ("logger.something_new", Layer.IO),
        ("peft.dim", Layer.CONVERGENCE),
        ("env_vars.NCCL_ALGO", Layer.EXECUTION),
        ("env_vars.NVTE_DPA_FP8_RECIPE", Layer.CONVERGENCE),
        ("env_vars.NVTE_SOMETHING_NEW", Layer.CONVERGENCE),
        ("env_vars.NVTE_FUSED_ATTN", Layer.EXECUTION),
        ("env_vars.CUDA_DEVICE_MAX_CONNECTIONS", Layer.EXECUTION),
        ("env_vars.HF_HUB_OFFLINE", Layer.IO),
        ("dataset._class", Layer.CONVERGENCE),
        ("dataset.dataset_kwargs.pad_to_max_length", Layer.CONVERGENCE),
    ],
)
def test_layers(schema, path, layer):
    found, reason = layer_of(path, schema)
    assert found is layer
    assert reason


@pytest.mark.parametrize("path", ["model.brand_new_switch", "env_vars.MY_OWN_THING"])
def test_an_unknown_path_is_treated_like_convergence(schema, path):
    assert classify_path(path, schema)[0] is None
    layer, reason = layer_of(path, schema)
    assert layer is Layer.CONVERGENCE
    assert "not classified" in reason


def test_every_field_of_the_shipped_releases_is_classified():
    from autorecipe.catalog.store import open_catalog, shipped_releases

    for release in shipped_releases():
        release_schema = open_catalog(release).schema()
        assert [path for path in release_schema if classify_path(path, release_schema)[0] is None] == []
