import pytest

from autorecipe.config.resolve import resolve_config
from autorecipe.errors import UsageError
from autorecipe.schema import Mode, OriginKind, RecipeKind

OVERLAP = {
    "comm_overlap._class": "CommOverlapConfig",
    "comm_overlap.tp_comm_overlap": False,
    "comm_overlap.overlap_grad_reduce": None,
    "comm_overlap.overlap_param_gather": None,
    "comm_overlap.bucket_size": None,
}


def with_overlap(make_recipe, **changes):
    recipe = make_recipe(ddp__use_distributed_optimizer=True, drop=["comm_overlap"], **changes)
    recipe.fields.update(OVERLAP)
    return recipe


def notes_of(config, trap):
    return [note for note in config.notes if note.startswith(f"{trap}:")]


def test_each_value_says_where_it_came_from(make_recipe, schema):
    config = resolve_config(make_recipe(), schema, ["model.num_layers=2"])
    assert config.origins["rng.seed"].kind is OriginKind.DEFAULT
    assert config.origins["optimizer.lr"].kind is OriginKind.RECIPE
    assert config.origins["model.num_layers"].kind is OriginKind.OVERRIDE
    assert config.origins["model.num_layers"].detail == "model.num_layers=2"
    assert config.origins["model.num_layers"].replaced == 4
    assert config.origins["model.ffn_hidden_size"].kind is OriginKind.DERIVED
    assert set(config.origins) == set(config.values)


def test_a_lone_model_sequence_is_reset_to_the_datasets(make_recipe, schema):
    config = resolve_config(make_recipe(), schema, ["model.seq_length=32768"])
    assert config.get("model.seq_length") == 4096
    assert config.origins["model.seq_length"].replaced == 32768
    assert config.origins["model.seq_length"].given == "model.seq_length=32768"
    (note,) = notes_of(config, "TRAP-SEQ")
    assert "dataset.seq_length=32768" in note


def test_the_dataset_moves_every_copy_of_the_sequence(make_recipe, schema):
    config = resolve_config(make_recipe(), schema, ["dataset.seq_length=512"])
    assert [config.get(f"{path}") for path in ("model.seq_length", "dataset.sequence_length")] == [512, 512]
    assert not config.notes


def test_the_precision_preset_overwrites_what_was_typed(make_recipe, schema):
    config = resolve_config(make_recipe(), schema, ["mixed_precision=bf16_mixed", "ddp.grad_reduce_in_fp32=False"])
    assert config.get("ddp.grad_reduce_in_fp32") is True
    assert config.get("model.bf16") is True
    assert config.get("optimizer.bf16") is True
    assert config.get("model.params_dtype") == "torch.bfloat16"
    origin = config.origins["ddp.grad_reduce_in_fp32"]
    assert (origin.kind, origin.replaced) == (OriginKind.PRESET, False)
    (note,) = notes_of(config, "TRAP-MP")
    assert "mixed_precision={_target_:" in note


def test_the_remedy_of_the_precision_note_works(make_recipe, schema):
    config = resolve_config(make_recipe(), schema, ["mixed_precision=bf16_mixed", "ddp.grad_reduce_in_fp32=False"])
    remedy = notes_of(config, "TRAP-MP")[0].rpartition(" object: '")[2].rstrip("'")
    fixed = resolve_config(make_recipe(), schema, [remedy])
    assert fixed.get("ddp.grad_reduce_in_fp32") is False
    assert fixed.get("model.bf16") is True
    assert not fixed.notes


def test_no_preset_leaves_precision_alone(make_recipe, schema):
    config = resolve_config(make_recipe(mixed_precision="bf16_mixed"), schema, ["mixed_precision=null", "model.bf16=false"])
    assert config.get("model.bf16") is False
    assert not config.notes


def test_an_unknown_preset_names_the_known_ones(make_recipe, schema):
    with pytest.raises(UsageError, match="fp16_mixed"):
        resolve_config(make_recipe(), schema, ["mixed_precision=16-mixed"])


def test_hyphens_in_a_preset_are_underscores(make_recipe, schema):
    assert resolve_config(make_recipe(), schema, ["mixed_precision=bf16-mixed"]).get("model.bf16") is True


def test_fields_of_a_preset_name_cannot_be_set(make_recipe, schema):
    with pytest.raises(UsageError) as caught:
        resolve_config(make_recipe(mixed_precision="bf16_mixed"), schema, ["mixed_precision.grad_reduce_in_fp32=false"])
    assert caught.value.problems[0].code == "TRAP-MPNAME"


def test_comm_overlap_overwrites_ddp(make_recipe, schema):
    config = resolve_config(with_overlap(make_recipe), schema, ["ddp.overlap_grad_reduce=false"], world_size=8)
    assert config.get("ddp.overlap_grad_reduce") is True
    assert config.get("ddp.bucket_size") == 128 * 1024 * 1024
    (note,) = notes_of(config, "TRAP-OVL")
    assert "set comm_overlap.overlap_grad_reduce=false" in note


def test_comm_overlap_takes_its_own_fields(make_recipe, schema):
    typed = ["comm_overlap.overlap_grad_reduce=false", "comm_overlap.overlap_param_gather=false"]
    config = resolve_config(with_overlap(make_recipe), schema, typed, world_size=8)
    assert config.get("ddp.overlap_grad_reduce") is False
    assert config.get("ddp.overlap_param_gather") is False
    assert not config.notes


def test_comm_overlap_switches_overlap_off_on_one_rank(make_recipe, schema):
    config = resolve_config(with_overlap(make_recipe, ddp__overlap_grad_reduce=True), schema, world_size=1)
    assert config.get("ddp.overlap_grad_reduce") is False


def test_fields_of_a_null_section_cannot_be_set(make_recipe, schema):
    with pytest.raises(UsageError, match="comm_overlap is null"):
        resolve_config(make_recipe(), schema, ["comm_overlap.tp_comm_overlap=true"])


@pytest.mark.parametrize(
    ("preset", "typed"),
    [
        (None, "comm_overlap.tp_comm_overlap=false"),
        ("bf16_mixed", "mixed_precision.grad_reduce_in_fp32=false"),
        (None, "peft.dim=8"),
    ],
)
def test_the_hint_for_a_closed_section_can_be_run(make_recipe, schema, preset, typed):
    recipe = make_recipe(mixed_precision=preset)
    with pytest.raises(UsageError) as caught:
        resolve_config(recipe, schema, [typed])
    fixed = caught.value.problems[0].hint.partition('"')[2].partition('"')[0]
    path, _, _ = typed.partition("=")
    config = resolve_config(recipe, schema, [fixed])
    assert config.get(path) in (False, 8)
    assert not config.notes


def test_either_distributed_optimizer_turns_both_on(make_recipe, schema):
    recipe = make_recipe(optimizer__use_distributed_optimizer=True, ddp__use_distributed_optimizer=True)
    config = resolve_config(recipe, schema, ["ddp.use_distributed_optimizer=false"])
    assert config.get("ddp.use_distributed_optimizer") is True
    (note,) = notes_of(config, "TRAP-SYNC")
    assert "ddp.use_distributed_optimizer=false optimizer.use_distributed_optimizer=false" in note
    both = ["ddp.use_distributed_optimizer=false", "optimizer.use_distributed_optimizer=false"]
    assert resolve_config(recipe, schema, both).get("ddp.use_distributed_optimizer") is False


def test_the_schedulers_weight_decay_acts(make_recipe, schema):
    config = resolve_config(make_recipe(), schema, ["optimizer.weight_decay=0.2"])
    assert config.get("optimizer.weight_decay") == 0.033
    assert config.origins["optimizer.weight_decay"].replaced == 0.2
    (note,) = notes_of(config, "TRAP-WD")
    assert "scheduler.start_weight_decay=0.2 scheduler.end_weight_decay=0.2" in note
    moved = ["scheduler.start_weight_decay=0.2", "scheduler.end_weight_decay=0.2"]
    assert resolve_config(make_recipe(), schema, moved).get("optimizer.weight_decay") == 0.2


def test_a_short_run_caps_the_warmup_and_says_so(make_recipe, schema):
    config = resolve_config(make_recipe(), schema, ["train.train_iters=10"])
    assert config.get("scheduler.lr_decay_iters") == 10
    assert config.get("scheduler.lr_decay_steps") == 320
    assert config.get("scheduler.lr_warmup_steps") == 319
    assert notes_of(config, "TRAP-WARMUP")


def test_max_steps_keeps_the_schedule_of_the_full_run(make_recipe, schema):
    config = resolve_config(make_recipe(), schema, ["train.train_iters=10", "scheduler.max_steps=1000"])
    assert config.get("scheduler.lr_decay_steps") == 32_000
    assert config.get("scheduler.lr_warmup_steps") == 3_200
    assert not config.notes


def test_samples_give_the_iterations(make_recipe, schema):
    typed = ["train.train_iters=null", "train.train_samples=6400", "scheduler.lr_warmup_iters=0"]
    config = resolve_config(make_recipe(), schema, typed)
    assert config.get("train.train_iters") == 200
    assert config.get("scheduler.lr_decay_steps") == 6400
    both = resolve_config(make_recipe(), schema, ["train.train_samples=6400"])
    assert notes_of(both, "TRAP-SAMPLES")


def test_sequence_parallelism_needs_tensor_parallelism(make_recipe, schema):
    config = resolve_config(make_recipe(), schema, ["model.sequence_parallel=true"])
    assert config.get("model.sequence_parallel") is False
    assert notes_of(config, "TRAP-SP")


@pytest.mark.parametrize(("ep", "etp"), [(1, 4), (2, 1)])
def test_unset_expert_tensor_size(make_recipe, schema, ep, etp):
    typed = ["model.tensor_model_parallel_size=4", f"model.expert_model_parallel_size={ep}", "model.num_moe_experts=8"]
    assert resolve_config(make_recipe(), schema, typed).get("model.expert_tensor_parallel_size") == etp


@pytest.mark.parametrize(("tp", "padded"), [(1, 50304), (8, 51200)])
def test_a_tokenizer_vocabulary_is_padded_with_the_tensor_size(make_recipe, schema, tp, padded):
    recipe = make_recipe(tokenizer__vocab_size=50257)
    config = resolve_config(recipe, schema, [f"model.tensor_model_parallel_size={tp}"])
    assert config.get("derived.padded_vocab_size") == padded


def test_an_explicit_vocabulary_is_not_padded(make_recipe, schema):
    recipe = make_recipe(tokenizer__vocab_size=50257)
    config = resolve_config(recipe, schema, ["model.tensor_model_parallel_size=8", "model.vocab_size=50432"])
    assert config.get("derived.padded_vocab_size") == 50432


def test_the_seed_of_the_data_is_its_own(make_recipe, schema):
    config = resolve_config(make_recipe(), schema, ["rng.seed=7"])
    assert config.get("dataset.random_seed") == 1234
    assert notes_of(config, "TRAP-SEED")


def test_deprecated_evaluation_copies_win(make_recipe, schema):
    recipe = make_recipe(train__eval_iters=5)
    config = resolve_config(recipe, schema, ["validation.eval_iters=50"])
    assert config.get("validation.eval_iters") == 5
    assert notes_of(config, "TRAP-EVAL")


def test_evaluation_batches_follow_the_training(make_recipe, schema):
    config = resolve_config(make_recipe(), schema)
    assert config.get("validation.eval_global_batch_size") == 32
    assert config.get("validation.eval_micro_batch_size") == 2


def test_fsdp_without_a_strategy_shards_nothing(make_recipe, schema):
    config = resolve_config(make_recipe(), schema, ["ddp.use_megatron_fsdp=true"])
    assert config.get("dist.use_megatron_fsdp") is True
    assert config.get("optimizer.use_distributed_optimizer") is True
    assert notes_of(config, "TRAP-FSDP")


def test_fine_tuning_with_context_parallelism_averages_per_token(make_recipe, schema):
    recipe = make_recipe(mode=Mode.SFT, dataset__enable_offline_packing=False)
    config = resolve_config(recipe, schema, ["model.context_parallel_size=2"])
    assert config.get("model.calculate_per_token_loss") is True


def test_a_benchmark_recipe_scales_its_batch_with_the_gpus(make_recipe, schema):
    recipe = make_recipe(kind=RecipeKind.BENCHMARK, gpus=8)
    assert resolve_config(recipe, schema).get("train.global_batch_size") == 32
    config = resolve_config(recipe, schema, world_size=16)
    assert config.get("train.global_batch_size") == 64
    assert notes_of(config, "TRAP-GBS")
    kept = resolve_config(recipe, schema, ["train.global_batch_size=32"], world_size=16)
    assert kept.get("train.global_batch_size") == 32


def test_stage_counts_that_do_not_fit_are_cleared(make_recipe, schema):
    recipe = make_recipe(model__num_layers_in_first_pipeline_stage=1, model__pipeline_model_parallel_size=2)
    config = resolve_config(recipe, schema, ["model.pipeline_model_parallel_size=3"])
    assert config.get("model.num_layers_in_first_pipeline_stage") is None
    assert notes_of(config, "TRAP-LAYOUT")


def test_a_field_that_the_recipes_class_lacks_is_unknown(make_recipe, schema):
    recipe = make_recipe(drop=["train.eval_iters"])
    with pytest.raises(UsageError, match="has no such field"):
        resolve_config(recipe, schema, ["train.eval_iters=1"])


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("+train.train_iters=5", "already 1000"),
        ("+mixed_precision=fp16_mixed", "already bf16_mixed|already 'bf16_mixed'"),
        ("comm_overlap.tp_comm_overlap_cfg=null", "comm_overlap is null|unknown key"),
        ("~train.train_samples", "it is not set"),
        ("~train.train_iters=5", "it is 1000, not 5"),
        ("model.recompute_modules.3=mlp", "has no item 3"),
    ],
)
def test_what_the_grammar_allows_and_this_recipe_does_not(make_recipe, schema, typed, message):
    with pytest.raises(UsageError, match=message):
        resolve_config(make_recipe(mixed_precision="bf16_mixed"), schema, [typed])


def test_keys_of_dictionaries_are_added_and_deleted(make_recipe, schema):
    config = resolve_config(make_recipe(), schema, ["+env_vars.A=1", "env_vars={B:2}", "~env_vars.A"])
    assert "env_vars.A" not in config.values
    assert config.get("env_vars.B") == 2
    emptied = resolve_config(make_recipe(), schema, ["+env_vars.A=1", "~env_vars.A"])
    assert emptied.get("env_vars") == {}


def test_a_new_key_without_a_plus_sign_is_reported(make_recipe, schema):
    config = resolve_config(make_recipe(), schema, ["env_vars.A=1"])
    assert config.get("env_vars.A") == 1
    assert "+env_vars.A=1" in notes_of(config, "TRAP-NEWKEY")[0]
    merged = resolve_config(make_recipe(), schema, ["env_vars={A:1}"])
    assert "+env_vars={A:1}" in notes_of(merged, "TRAP-NEWKEY")[0]


def test_deleting_a_declared_field_has_no_effect_and_is_reported(make_recipe, schema):
    config = resolve_config(make_recipe(), schema, ["~train.train_iters"])
    assert config.get("train.train_iters") == 1000
    assert notes_of(config, "TRAP-DELETE")


def test_one_item_of_a_list(make_recipe, schema):
    recipe = make_recipe(model__recompute_modules=["core_attn", "mlp"])
    config = resolve_config(recipe, schema, ["model.recompute_modules.1=moe"])
    assert config.get("model.recompute_modules") == ["core_attn", "moe"]


def test_interpolations_resolve_after_all_overrides(make_recipe, schema):
    config = resolve_config(make_recipe(), schema, ["scheduler.lr_decay_iters=${train.train_iters}", "train.train_iters=700"])
    assert config.get("scheduler.lr_decay_iters") == 700
    with pytest.raises(UsageError, match="nowhere"):
        resolve_config(make_recipe(), schema, ["scheduler.lr_decay_iters=${train.nowhere}"])
    with pytest.raises(UsageError, match="not an integer"):
        resolve_config(make_recipe(), schema, ["scheduler.lr_decay_iters=${optimizer.lr}"])


def test_later_overrides_win(make_recipe, schema):
    assert resolve_config(make_recipe(), schema, ["train.train_iters=5", "train.train_iters=700"]).get("train.train_iters") == 700


def test_a_pretraining_dataset_without_data_is_mock_data(make_recipe, schema):
    recipe = make_recipe(dataset__mock=False, dataset__split="9999,8,2")
    config = resolve_config(recipe, schema, ["dataset.split='99,1,0'"])
    assert config.get("dataset.mock") is True
    assert config.get("dataset.split") == "1,1,1"
    assert notes_of(config, "TRAP-MOCK")
    given = resolve_config(recipe, schema, ["dataset.blend=[[/data/a],null]"])
    assert given.get("dataset.mock") is False
