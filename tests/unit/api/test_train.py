import dataclasses
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from autorecipe.api.machine import Machine, match_gpu
from autorecipe.api.mode import infer_mode
from autorecipe.api.resolve import resolve_run
from autorecipe.api.train import TrainPlan, TrainRequest, environment_defaults, expand_paths, prepare_training
from autorecipe.catalog.hardware import load_gpus
from autorecipe.config.views import moe_layer_pattern, view_layout, view_model
from autorecipe.errors import EnvironmentProblem, NegativeAnswer, UsageError

LAPTOP = Machine(num_cores=2, memory_available_bytes=16 * 1024**3)
TOY = (
    "model.num_layers=2",
    "model.hidden_size=256",
    "model.num_attention_heads=4",
    "model.ffn_hidden_size=1024",
    "dataset.seq_length=512",
    "train.train_iters=10",
    "scheduler.lr_warmup_iters=1",
)
VANILLA = TrainRequest(recipe="vanilla_gpt_pretrain_config", overrides=TOY)


def prepare(request: TrainRequest, **changes: object) -> TrainPlan:
    return prepare_training(dataclasses.replace(request, **changes), machine=LAPTOP)  # type: ignore[arg-type]


def test_a_toy_fits_a_laptop_and_its_paths_are_where_it_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = prepare(VANILLA)
    assert plan.run.get("checkpoint.save") == f"{tmp_path}/nemo_experiments/default/checkpoints"
    assert plan.needed_bytes < plan.available_bytes
    assert plan.stages[0].parameters == 9903104


def test_recorded_home_folders_are_those_of_who_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    run = resolve_run("gpt_oss_20b_sft_openmathinstruct2_thinking_packed_config", release="0.5.1")
    assert str(run.get("dataset.dataset_root")).startswith("${HOME}/")
    assert str(expand_paths(run).get("dataset.dataset_root")).startswith("/home/someone/.cache/")


def test_the_batch_of_a_world_is_checked_before_training() -> None:
    with pytest.raises(NegativeAnswer) as caught:
        prepare(VANILLA, overrides=(*TOY, "model.tensor_model_parallel_size=3"), world_size=2)
    assert any(problem.code.startswith("PAR") for problem in caught.value.problems)


def test_a_model_that_does_not_fit_says_what_it_needs_and_offers_the_smoke_run() -> None:
    request = TrainRequest(recipe="llama3_8b_pretrain_config", world_size=2, local_world_size=2)
    with pytest.raises(EnvironmentProblem) as caught:
        prepare(request)
    [problem] = caught.value.problems
    assert problem.code == "machine-too-small"
    assert "GiB" in problem.message and "2 processes" in problem.message and "16.0 GiB" in problem.message
    assert "--shrink" in problem.hint
    assert prepare(request, check_memory=False).needed_bytes > 100 * 1024**3


@pytest.mark.parametrize(
    ("recipe", "world"),
    [("llama3_8b_pretrain_config", 2), ("qwen3_30b_a3b_pretrain_config", 16), ("deepseek_v2_lite_pretrain_config", 8)],
)
def test_a_smoke_run_keeps_structure_and_layout_and_fits(recipe: str, world: int) -> None:
    request = TrainRequest(recipe=recipe, world_size=world, local_world_size=2)
    whole = prepare(request, check_memory=False)
    toy = prepare(request, shrink=True)
    assert view_layout(toy.run) == view_layout(whole.run)
    before, after = view_model(whole.run), view_model(toy.run)
    for name in (
        "normalization",
        "gated_linear_unit",
        "position_embedding_type",
        "qk_layernorm",
        "multi_latent_attention",
        "share_embeddings_and_output_weights",
        "add_bias_linear",
    ):
        assert getattr(after, name) == getattr(before, name)
    assert bool(after.num_moe_experts) == bool(before.num_moe_experts)
    assert set(after.moe_layer_pattern) == set(before.moe_layer_pattern)
    assert after.num_layers <= before.num_layers and after.hidden_size < before.hidden_size
    assert all(text.partition("=")[0] in toy.run.values for text in toy.shrunk)


@pytest.mark.parametrize(
    ("recipe", "world", "layout"),
    [
        ("llama3_70b_pretrain_config", 1, "TP1 PP1 CP1"),
        ("llama3_70b_pretrain_config", 4, "TP2 PP2 VP5 CP1 SP"),
        ("qwen3_30b_a3b_pretrain_config", 2, "TP1 PP1 CP1 EP2 ETP1"),
        ("deepseek_v3_pretrain_config", 4, "TP2 PP2 CP1 EP2 ETP1 SP"),
    ],
)
def test_a_smoke_run_cuts_the_axes_that_the_processes_cannot_hold(recipe: str, world: int, layout: str) -> None:
    toy = prepare(TrainRequest(recipe=recipe, world_size=world, local_world_size=world), shrink=True)
    assert view_layout(toy.run).render() == layout
    assert any("model_parallel_size=" in text for text in toy.shrunk)


def test_a_smoke_run_switches_off_what_needs_an_axis_that_was_cut() -> None:
    for recipe in ("moonlight_16b_pretrain_16gpu_h100_bf16_config", "gpt3_175b_pretrain_32gpu_h100_bf16_config"):
        prepare(TrainRequest(recipe=recipe), shrink=True)  # the check would refuse the switches


def test_what_the_user_typed_wins_over_the_smoke_run() -> None:
    request = TrainRequest(
        recipe="llama3_8b_pretrain_config", overrides=("model.num_layers=4",), shrink=True, world_size=2, local_world_size=2
    )
    assert prepare(request).run.get("model.num_layers") == 4


def test_a_bare_recipe_says_that_the_size_is_missing() -> None:
    with pytest.raises(UsageError) as caught:
        prepare(TrainRequest(recipe="vanilla_gpt_pretrain_config"))
    assert "model.hidden_size" in {problem.path for problem in caught.value.problems}


def test_engine_options_pass_by_the_schema() -> None:
    plan = prepare(VANILLA, overrides=(*TOY, "engine.modules=core-local"))
    assert plan.run.get("engine.modules") == "core-local"


@pytest.mark.parametrize(
    ("recipe", "mode"),
    [
        ("llama3_8b_pretrain_config", "pretrain"),
        ("llama3_8b_sft_config", "sft"),
        ("llama3_8b_peft_config", "lora"),
        ("odd_name", None),
    ],
)
def test_a_recipes_name_says_its_mode(recipe: str, mode: str | None) -> None:
    assert infer_mode(recipe) == mode


def test_a_mode_that_contradicts_the_recipe_is_refused() -> None:
    with pytest.raises(UsageError, match="BR-MODE-02"):
        prepare(VANILLA, mode="sft")


def test_mock_data_does_not_go_with_fine_tuning() -> None:
    with pytest.raises((NegativeAnswer, UsageError)):
        prepare(TrainRequest(recipe="llama3_8b_sft_config", dataset="mock"), check_memory=False)


def test_the_recipes_environment_is_offered() -> None:
    assert environment_defaults(prepare(VANILLA).run)["TORCH_NCCL_AVOID_RECORD_STREAMS"] == "1"


def test_the_machines_gpu_is_recognised_by_its_longest_name() -> None:
    gpus = load_gpus()
    machine = Machine(num_cores=8, memory_available_bytes=1, num_gpus=8, gpu_title="NVIDIA H200", gpu_memory_bytes=1)
    assert match_gpu(machine, gpus) is gpus["h200"]
    assert match_gpu(dataclasses.replace(machine, gpu_title="Quadro"), gpus) is None


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """Import scripts/training/run_recipe.py."""
    path = Path(__file__).resolve().parents[3] / "scripts" / "training" / "run_recipe.py"
    spec = importlib.util.spec_from_file_location("run_recipe", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_recipe"] = module
    spec.loader.exec_module(module)
    return module


def test_flags_become_overrides_and_typed_overrides_come_last(script: ModuleType) -> None:
    words = ["--recipe", "llama3_8b_pretrain_config", "--tp", "2", "--max-steps", "5", "--lr", "1e-4", "train.train_iters=7"]
    request, given = script.parse_request(words)
    assert not given.fresh
    assert "model.tensor_model_parallel_size=2" in request.overrides
    assert request.overrides.index("train.train_iters=5") < request.overrides.index("train.train_iters=7")


def test_a_model_stem_and_a_mode_name_the_recipe(script: ModuleType) -> None:
    request, _ = script.parse_request(["--model", "llama3_8b", "--mode", "lora"])
    assert request.recipe == "llama3_8b_peft_config"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--recipe", "a", "--model", "b"],
        ["--recipe", "a", "--no-such-flag"],
        ["--recipe", "a", "stray"],
        ["--recipe", "a", "--dataset-path", "p"],
        ["--recipe", "a", "--dataset", "megatron-indexed"],
        ["--recipe", "a", "--step_func", "vlm_step"],
    ],
)
def test_a_command_line_that_cannot_be_understood_is_a_usage_error(script: ModuleType, words: list[str]) -> None:
    with pytest.raises(UsageError):
        script.parse_request(words)


def test_indexed_data_is_named_by_its_prefixes(script: ModuleType) -> None:
    words = ["--recipe", "a", "--dataset", "megatron-indexed", "--dataset-path", "x", "--dataset-path", "y"]
    assert "dataset.data_path=[x,y]" in script.parse_request(words)[0].overrides


def test_rows_for_megatron_bridge_are_placed_in_its_fields(script: ModuleType, tmp_path: Path) -> None:
    words = ["--recipe", "llama3_8b_sft_config", "--engine", "bridge", "--dataset", "squad", "--dataset-path", str(tmp_path)]
    overrides = script.parse_request(words)[0].overrides
    assert f"dataset.hf_dataset.path_or_dataset={tmp_path}" in overrides and "dataset.hf_dataset.dataset_name=null" in overrides


def test_a_dense_layer_stays_in_front_of_the_experts() -> None:
    toy = prepare(TrainRequest(recipe="deepseek_v2_lite_pretrain_config", shrink=True, world_size=8, local_world_size=2))
    pattern = moe_layer_pattern(toy.run.get("model.moe_layer_freq"), toy.run.get("model.num_layers"))
    assert pattern[0] is False and pattern[-1] is True


SQUAD = TrainRequest(recipe="llama3_8b_sft_config", dataset="squad", world_size=2, local_world_size=2)


def test_a_smoke_run_of_fine_tuning_needs_neither_weights_nor_a_tokenizer() -> None:
    with pytest.raises(NegativeAnswer, match="CKP031"):
        prepare(TrainRequest(recipe="llama3_8b_peft_config", dataset="squad"))
    toy = prepare(TrainRequest(recipe="llama3_8b_peft_config", dataset="squad"), shrink=True)
    assert (toy.run.get("tokenizer.tokenizer_type"), toy.run.get("tokenizer.tokenizer_model")) == ("ByteTokenizer", None)
    typed = prepare(SQUAD, shrink=True, overrides=("tokenizer.tokenizer_type=NullTokenizer",))
    assert typed.run.get("tokenizer.tokenizer_type") == "NullTokenizer"


def test_a_smoke_run_keeps_a_tokenizer_of_this_machine_and_its_vocabulary(tmp_path: Path) -> None:
    toy = prepare(SQUAD, shrink=True, overrides=(f"tokenizer.tokenizer_model={tmp_path}",))
    assert (toy.run.get("tokenizer.tokenizer_type"), toy.run.get("model.vocab_size")) == ("HuggingFaceTokenizer", 128256)


def test_the_preset_takes_the_place_of_the_recipes_data() -> None:
    assert prepare(SQUAD, check_memory=False).run.get("dataset.enable_offline_packing") is False
    assert prepare(SQUAD, dataset=None, check_memory=False).run.get("dataset.enable_offline_packing") is True
