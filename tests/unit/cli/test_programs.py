"""The programs in scripts/: every option that upstream's have is accounted for, and what each does is what is said."""

import json
from pathlib import Path

import pytest

from autorecipe.catalog.store import open_catalog
from autorecipe.cli.programs import benchmark, experiment
from autorecipe.cli.programs.benchmark_options import SETTINGS
from autorecipe.cli.programs.reference import PROGRAMS, render_reference
from autorecipe.cli.programs.training import flag_overrides, make_parser, parse_request
from autorecipe.config.resolve import resolve_config
from autorecipe.errors import UsageError

ROOT = Path(__file__).resolve().parents[3]
UPSTREAM = [json.loads(line) for line in (ROOT / "tests/golden/launch/upstream_options.jsonl").read_text().splitlines()]
SELECTORS = ["-m", "qwen", "-mr", "qwen3_30b_a3b", "-ng", "16", "-g", "h100", "--dryrun"]
LIBRARY = ["-m", "llama", "-mr", "llama3_8b", "-ng", "8", "-g", "h100", "--use_recipes", "--dryrun"]
SITE = ["--account", "A", "--partition", "P", "--container-image", "I", "--dry-run"]
TRAINING = ["--nodes", "1", "--gpus-per-node", "8", *SITE, "--recipe", "llama3_8b_pretrain_config", "--dataset", "mock"]


def problems(run, words):
    with pytest.raises(UsageError) as caught:
        run(words)
    return caught.value.problems


@pytest.fixture
def shown(capsys):
    def show(run, words):
        run(words)
        text = capsys.readouterr()
        return text.out.replace(" \\\n    ", " "), text.err

    return show


@pytest.mark.parametrize("row", UPSTREAM, ids=lambda row: row["program"])
def test_every_option_of_upstreams_program_is_accounted_for(row):
    known = {name for action in PROGRAMS[row["program"]]()._actions for name in action.option_strings}
    assert not [names for names in row["options"] if not set(names) <= known]


def test_the_reference_page_is_up_to_date():
    page = ROOT / "docs" / "reference" / "launcher-options.md"
    assert page.read_text(encoding="utf-8") == render_reference(), "run scripts/dev/write_launcher_options.py"


PARSERS = {
    "benchmark": (benchmark.make_parser, benchmark.run, SELECTORS),
    "experiment": (experiment.make_parser, experiment.run, TRAINING),
    "training": (make_parser, parse_request, ["--recipe", "llama3_8b_pretrain_config"]),
}


@pytest.mark.parametrize("name", PARSERS)
def test_refused_options_are_named_with_what_to_do_and_never_their_value(name):
    maker, run, words = PARSERS[name]
    for item in maker().refused:
        for spelling in item.names:
            (problem,) = problems(run, [*words, spelling, *(["hush"] if item.takes_value else [])])
            assert (problem.code, problem.path, problem.hint) == ("refused-option", spelling, item.text)
            assert "hush" not in problem.render()


def test_refusals_come_all_at_once():
    found = problems(benchmark.run, [*SELECTORS, "-hf", "t", "-wdk", "k", "--head_only"])
    assert [problem.path for problem in found] == ["-hf", "-wdk", "--head_only"]


@pytest.mark.parametrize("name", PARSERS)
def test_idle_options_say_so(name):
    maker, _, words = PARSERS[name]
    parser = maker()
    for item in parser.idle:
        given, _ = parser.parse_known_args([*words, item.names[0], *(["x"] if item.takes_value else [])])
        (note,) = parser.check_asides(given)
        assert note == f"note: {item.names[0]} has no effect here: {item.text}"


@pytest.mark.parametrize(
    ("run", "words", "path", "meant"),
    [
        (experiment.run, [*TRAINING, "--acount", "A"], "--acount", "--account"),
        (experiment.run, [*TRAINING, "--max-step", "3"], "--max-step", "--max-steps"),
        (benchmark.run, [*SELECTORS, "--comput_dtype", "bf16"], "--comput_dtype", "--compute_dtype"),
    ],
)
def test_a_mistyped_option_does_not_reach_the_queue(run, words, path, meant):
    found = {problem.path: problem.hint for problem in problems(run, words)}
    assert meant in found[path]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.dest)
def test_every_setting_sets_paths_that_exist(setting):
    catalog = open_catalog(None)
    value = {"model.recompute_modules": "core_attn,moe_act", "profiling.profile_ranks": "0,8", "model.cuda_graph_scope": "attn"}
    value["tokenizer.tokenizer_type"] = "NullTokenizer"
    chosen = next((value[path] for path in setting.sets if path in value), "true" if setting.is_switch else "3")  # a text, too
    recipe = {"dataset.dataset_root": "llama3_8b_sft_config", "dataset.path": "flux_12b_pretrain_config"}.get(
        next(iter(setting.sets)), "qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config"
    )
    for typed in (chosen, *(["false"] if setting.is_switch else [])):
        config = resolve_config(catalog.load(recipe), catalog.schema(), setting.overrides(typed), world_size=16)
        for text in setting.overrides(typed):
            path = text.partition("=")[0].lstrip("+")
            assert str(config.origins[path].kind) != "default", text


def test_a_tensor_parallel_size_brings_sequence_parallelism_with_it():
    assert flag_overrides({"tensor_model_parallel_size": "2", "virtual_pipeline_model_parallel_size": "None"}) == [
        "model.tensor_model_parallel_size=2",
        "model.sequence_parallel=true",
        "model.virtual_pipeline_model_parallel_size=null",
    ]
    assert "model.sequence_parallel=false" in flag_overrides({"tensor_model_parallel_size": 1})


def test_what_a_launcher_checks_is_what_will_run(shown):
    out, err = shown(experiment.run, [*TRAINING, "--tp", "4", "-gb", "64"])
    assert "--tp 4 -gb 64" in out
    assert "TP4" in err and "64 micro batches" in err


def test_indexed_c4_is_laid_out_by_split(shown):
    out, _ = shown(benchmark.run, [*SELECTORS, "--data", "c4", "--c4_root", "/c4/", "--c4_train_shards", "6", "7"])
    train = "[[/c4/c4-train.en_6_text_document,/c4/c4-train.en_7_text_document],[50.0,50.0]]"
    held_out = "[[/c4/c4-validation-91205-samples.en_text_document],null]"
    assert f"'dataset.blend_per_split=[{train},{held_out},{held_out}]'" in out
    assert "dataset.split=null" in out


def test_indexed_text_is_named_by_its_prefixes(shown):
    words = ["--data", "rp2", "--dataset_paths", "/a", "/b", "--index_mapping_dir", "/cache"]
    out, _ = shown(benchmark.run, [*SELECTORS, *words])
    for text in ("'dataset.data_path=[/a,/b]'", "dataset.path_to_cache=/cache", "99990,8,2"):
        assert text in out
    assert problems(benchmark.run, [*SELECTORS, "--data", "rp2"])[0].path == "--dataset_paths"


def test_a_benchmark_keeps_its_own_data(shown):
    out, _ = shown(benchmark.run, [*SELECTORS, "--data", "mock"])
    assert "--dataset" not in out
    assert "--use_recipes" in problems(benchmark.run, [*SELECTORS, "--data", "squad"])[0].hint
    out, _ = shown(benchmark.run, [*LIBRARY, "--data", "mock"])
    assert "--dataset mock" in out


def test_determinism_sets_configuration_and_variables(shown):
    out, _ = shown(benchmark.run, [*SELECTORS, "--deterministic"])
    assert "model.deterministic_mode=true" in out and "comm_overlap.tp_comm_overlap=false" in out
    assert 'export NCCL_ALGO="${NCCL_ALGO:-Ring}"' in out
    request, _ = parse_request(["--recipe", "llama3_8b_pretrain_config", "--deterministic", "++env_vars.NCCL_ALGO=Tree"])
    assert request.overrides.index("++env_vars.NCCL_ALGO=Ring") < request.overrides.index("++env_vars.NCCL_ALGO=Tree")


def test_dense_layers_follow_the_number_of_layers():
    given = benchmark.make_parser().parse_args([*SELECTORS, "--num_layers", "6", "--first_k_dense_replace", "2"])
    recipe = open_catalog(None).load("qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config")
    assert benchmark._layer_overrides(given, recipe) == ["model.num_layers=6", "model.moe_layer_freq=[0,0,1,1,1,1]"]


def test_values_that_a_job_sets_are_exported_and_reach_the_container(shown):
    words = ["-E", "NCCL_DEBUG=INFO now", "-nh", "/nemo", "--offline", "-i", "IMAGE", "-lgc", "1980"]
    out, _ = shown(benchmark.run, [*SELECTORS, *words])
    for text in (
        "export NCCL_DEBUG='INFO now'",
        "export NEMO_HOME=/nemo",
        "export HF_HUB_OFFLINE=1",
        "nvidia-smi -lgc 1980,1980",
    ):
        assert text in out
    (names,) = [word for word in out.split() if word.startswith("--container-env=")]
    assert {"NCCL_DEBUG", "NEMO_HOME", "HF_HUB_OFFLINE"} <= set(names.partition("=")[2].split(","))


def test_vr200_benchmarks_lock_the_memory_clock_that_they_are_measured_at(shown):
    words = ["--nodes", "2", "--gpus-per-node", "4", *SITE, "--recipe", "qwen3_30b_a3b_pretrain_8gpu_vr200_bf16_config"]
    out, _ = shown(experiment.run, words)
    assert "nvidia-smi -lmc 4752,4752" in out
    assert "nvidia-smi" not in shown(experiment.run, [*words, "-lmc", "-1"])[0]


def test_gpus_that_fill_no_host_are_refused():
    words = ["-m", "qwen", "-mr", "qwen3_30b_a3b", "-ng", "12", "-g", "h100", "--dryrun"]
    assert "no whole number of hosts" in problems(benchmark.run, words)[0].message


def test_a_folder_of_indexed_text_is_all_that_lies_in_it(tmp_path):
    for name in ("b.bin", "b.idx", "a.bin", "a.idx"):
        (tmp_path / name).touch()
    words = ["--recipe", "llama3_8b_pretrain_config", "--dataset", "megatron-indexed", "--dataset-path", str(tmp_path)]
    request, _ = parse_request([*words, "--dataset-path", "/c/text.bin"])
    assert f"dataset.data_path=[{tmp_path}/a,{tmp_path}/b,/c/text]" in request.overrides


def test_upstreams_indexed_data_are_told_how_to_be_named():
    (problem,) = problems(parse_request, ["--recipe", "llama3_8b_pretrain_config", "--dataset", "c4"])
    assert "megatron-indexed" in problem.hint
