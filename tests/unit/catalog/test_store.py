import pytest

from autorecipe.catalog.hardware import load_gpus, make_cluster
from autorecipe.catalog.store import open_catalog, shipped_releases
from autorecipe.errors import UsageError
from autorecipe.schema.recipe import Mode, RecipeKind


@pytest.fixture(scope="module")
def catalog():
    return open_catalog("0.6.2")


def test_release_has_every_exported_name(catalog):
    summaries = catalog.summaries()
    assert len(summaries) == 1014
    assert sum(summary.alias_of is None for summary in summaries) == 737
    assert [summary.name for summary in summaries] == sorted(summary.name for summary in summaries)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama3_8b_pretrain_config", {"tp": 1, "pp": 1, "cp": 2, "sp": False, "gpus": 2, "seq": 8192}),
        ("llama31_405b_pretrain_config", {"tp": 8, "pp": 8, "cp": 4, "sp": True, "gpus": 256, "seq": 131072}),
        ("llama3_70b_peft_config", {"tp": 8, "pp": 1, "cp": 1, "sp": False, "gpus": 8, "seq": 4096}),
        ("deepseek_v3_pretrain_config", {"tp": 2, "pp": 16, "cp": 1, "sp": True, "gpus": 1024, "seq": 4096}),
    ],
)
def test_spot_values(catalog, name, expected):
    recipe = catalog.load(name)
    fields = recipe.fields
    assert {
        "tp": fields["model.tensor_model_parallel_size"],
        "pp": fields["model.pipeline_model_parallel_size"],
        "cp": fields["model.context_parallel_size"],
        "sp": fields["model.sequence_parallel"],
        "gpus": recipe.gpus,
        "seq": fields["dataset.seq_length"],
    } == expected


def test_alias_keeps_its_name_and_has_its_targets_fields(catalog):
    alias = catalog.load("llama3_8b_pretrain_config")
    target = catalog.load("llama3_8b_pretrain_2gpu_h100_bf16_config")
    assert alias.alias_of == target.name == alias.canonical_name
    assert alias.fields == target.fields


@pytest.mark.parametrize(("release", "count", "newest"), [("0.6.2", 15, True), ("0.5.1", 14, False), ("0.4.2", 14, False)])
def test_every_release_has_its_own_precision_presets(release, count, newest):
    presets = open_catalog(release).schema().presets
    assert len(presets) == count
    assert ("nemotron_3_ultra_bf16_with_nvfp4_mixed" in presets) is newest
    assert presets["bf16_mixed"]["grad_reduce_in_fp32"] is True


def test_fields_are_complete(catalog):
    fields = catalog.load("qwen3_30b_a3b_sft_8gpu_h100_bf16_config").fields
    assert fields["model.num_moe_experts"] == 128
    assert fields["model.activation_func"] == "torch.nn.functional:silu"
    assert fields["model.params_dtype"] == "torch.bfloat16"
    assert fields["optimizer.adam_eps"] == 1e-8
    assert len(fields) > 700


def test_shared_name_is_the_benchmark_and_the_library_one_is_marked(catalog):
    name = "qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config"
    assert catalog.load(name).kind is RecipeKind.BENCHMARK
    assert catalog.load(f"{name}@library").kind is RecipeKind.LIBRARY
    assert len(catalog.meta["collisions"]) == 10


def test_failing_recipe_is_kept_with_its_reason(catalog):
    recipe = catalog.load("qwen3_next_80b_a3b_peft_config")
    assert recipe.status == "failed"
    assert recipe.error.startswith("NotImplementedError")
    assert recipe.mode is Mode.PEFT


def test_unknown_name_suggests_near_misses(catalog):
    with pytest.raises(UsageError, match="llama3_8b_pretrain_config"):
        catalog.load("llama3_8b_pretrian_config")


def test_short_release_finds_the_long_one():
    assert open_catalog("0.6").release == "0.6.2"
    assert "0.6.2" in shipped_releases()
    with pytest.raises(UsageError, match="unknown release"):
        open_catalog("9.9")


def test_gpus_state_a_source_for_every_fact():
    gpus = load_gpus()
    assert {"a100", "h100", "h200", "b200", "b300", "gb200", "gb300", "vr200"} <= gpus.keys()
    for gpu in gpus.values():
        assert gpu.peak_flops["bf16"] > gpu.peak_flops["fp32"]
        seen = {"visible_memory_bytes", "measured_hbm_bandwidth"}
        facts = {name for name in gpu.__dataclass_fields__ if name not in ("name", "title", "provenance")}
        assert facts - seen <= set(gpu.provenance) <= facts
        assert all(fact.source and fact.evidence for fact in gpu.provenance.values())
        assert {name for name in seen if getattr(gpu, name) is not None} == seen & set(gpu.provenance)
    assert gpus["b200"].provenance["measured_hbm_bandwidth"].evidence.value == "measured"


def test_cluster_smaller_than_a_node_is_one_host():
    assert make_cluster("H100", 2).num_nodes == 1
    assert make_cluster("gb200", 16).num_nodes == 4


def test_options_and_cards_are_joined(catalog):
    assert catalog.mlm_options()["--num-layers"].bridge_field == "model.num_layers"
    card = catalog.model_card("meta-llama/Meta-Llama-3-8B")
    assert card.facts["num_query_groups"] == 8
    assert card.num_parameters == 8030261248
    assert catalog.schema()["model.tensor_model_parallel_size"].default == 1


@pytest.mark.parametrize(("release", "core", "functions"), [("0.5.1", "0.18.1", 234), ("0.4.2", "0.17.1", 208)])
def test_older_releases_are_shipped(release, core, functions):
    older = open_catalog(release)
    assert (older.meta["core_release"], older.meta["functions"]) == (core, functions)
    assert older.load("llama3_8b_pretrain_config").fields["model.num_layers"] == 32
    assert older.mlm_options()["--num-layers"].bridge_field == "model.num_layers"
    assert len(older.meta["failed"]) <= 6


def test_one_recipe_in_two_releases():
    from autorecipe.api.recipes import diff_recipes

    changes = diff_recipes("llama3_8b_pretrain_config", "llama3_8b_pretrain_config", before="0.5", after="0.6.2")
    paths = {change.path for change in changes}
    assert {"model.moe_deepep_num_sms", "env_vars.NCCL_NVLS_ENABLE"} <= paths
    assert "model.dsa_indexer_topk_freq" not in paths  # 0.6.2 alone has it, and leaves it at its default
    assert diff_recipes("llama3_8b_pretrain_config", "llama3_8b_pretrain_2gpu_h100_bf16_config") == ()
