import json
import shutil
import zipfile

import pytest
from toy_bridge import FILES, write_checkout, write_tree

from autorecipe.catalog import worker
from autorecipe.catalog.build import BuildOptions, build_catalog, compare_directories, verify_catalog
from autorecipe.catalog.source import open_bridge, open_core
from autorecipe.catalog.store import CATALOG_VARIABLE, Catalog, open_catalog
from autorecipe.cli.main import execute
from autorecipe.errors import EnvironmentProblem, NegativeAnswer, UsageError

pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    return write_checkout(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module")
def built(checkout, tmp_path_factory):
    seen = []
    options = BuildOptions(bridge=checkout, use_cache=False, seconds=2, jobs=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "GRACE_SECONDS", 1.0)
        report = build_catalog(options, tmp_path_factory.mktemp("out"), progress=lambda *step: seen.append(step))
    assert seen[-1][:2] == (10, 10)
    return report


@pytest.fixture(scope="module")
def catalog(built):
    return Catalog(built.directory)


def test_a_checkout_never_passes_for_a_release(built):
    assert built.meta["release"].startswith("9.1.0rc1+local.")
    assert built.meta["core_release"].startswith("0.1.0+local.")


def test_every_function_and_alias_is_there(built, catalog):
    assert (built.meta["functions"], built.meta["aliases"], built.meta["names"]) == (10, 1, 11)
    assert "my_toy_pretrain_config" in catalog.names()
    assert built.meta["broken_modules"] == {
        "megatron.bridge.recipes.broken": "ModuleNotFoundError: No module named 'a_package_that_nobody_has'"
    }


def test_values_follow_the_conventions(catalog):
    recipe = catalog.load("my_toy_pretrain_config")
    expected = {
        "model._class": "Provider",
        "model.params_dtype": "torch.bfloat16",
        "model.attention_backend": "Backend.flash",
        "model.activation_func": "torch.nn.functional:silu",
        "model.window": [3, 0],
        "train.global_batch_size": 64,
        "env_vars.NCCL_DEBUG": 1,
        "peft": None,
    }
    assert {path: recipe.fields[path] for path in expected} == expected
    assert recipe.source == "megatron/bridge/recipes/mine/own.py:5"
    assert recipe.notes["inputs"]


def test_a_name_of_both_packages_is_kept_twice(catalog):
    name = "toy_pretrain_4gpu_h100_bf16_config"
    assert catalog.meta["collisions"] == [name]
    assert catalog.load(name).fields["model.pipeline_model_parallel_size"] == 2
    assert catalog.load(f"{name}@library").fields["model.tensor_model_parallel_size"] == 4
    assert catalog.summary("toy_pretrain_config").alias_of == f"{name}@library"


def test_failures_are_recorded_with_their_reason(catalog):
    failed = {name: catalog.load(name).error for name in catalog.names() if catalog.load(name).status != "ok"}
    assert failed.keys() == {
        "toy_raises_pretrain_config",
        "toy_needs_argument_pretrain_config",
        "toy_loops_pretrain_config",
        "toy_exits_pretrain_config",
        "toy_stubborn_pretrain_config",
    }
    assert failed["toy_raises_pretrain_config"] == "NotImplementedError: by design"
    assert "missing 1 required positional argument" in failed["toy_needs_argument_pretrain_config"]
    assert "did not return within 2 seconds" in failed["toy_loops_pretrain_config"]
    assert failed["toy_stubborn_pretrain_config"].startswith("TimeoutError: did not return within 2 seconds, nor stop")
    assert failed["toy_exits_pretrain_config"].startswith("the evaluator ended with status 7")


def test_what_the_device_and_the_peft_scheme_change_is_noted(catalog):
    assert catalog.load("toy_sft_1gpu_h100_bf16_config").fields["model.hidden_size"] == 128
    without = catalog.load("toy_sft_1gpu_h100_bf16_config").notes["without_gpu"]
    assert without["fields"] == {"model.hidden_size": 32}
    assert catalog.load("toy_peft_1gpu_h100_bf16_config").dora_fields == {"peft.dim": 16, "peft.kind": "dora"}


def test_schema_comes_from_the_dataclasses(catalog):
    schema = catalog.schema()
    assert schema["model.num_layers"].type == "int"
    assert schema["model.num_layers"].default == 2
    assert schema["train.global_batch_size"].default == "<required>"
    assert schema["peft.dim"].config_classes == ("Lora",)


def test_presets_are_those_of_the_tree(catalog):
    assert dict(catalog.schema().presets) == {"toy_mixed": {"bf16": True, "gather": True, "params_dtype": "torch.bfloat16"}}


def test_a_release_without_option_table_says_so(catalog):
    with pytest.raises(EnvironmentProblem, match="no Megatron-LM option table"):
        catalog.mlm_options()


def test_a_built_catalog_is_used_through_the_environment(built, monkeypatch):
    monkeypatch.setenv(CATALOG_VARIABLE, str(built.directory.parent))
    assert open_catalog("9.1").release == built.meta["release"]
    assert open_catalog("0.6.2").release == "0.6.2"


def test_verify_names_each_value_that_differs(built, checkout, tmp_path):
    copy = shutil.copytree(built.directory, tmp_path / "copy")
    path = copy / "recipes" / "library-mine.jsonl"
    path.write_text(path.read_text().replace('"train.global_batch_size": 64', '"train.global_batch_size": 65'))
    assert [str(name) for name, _ in compare_directories(copy, built.directory)] == ["recipes/library-mine.jsonl"]
    options = BuildOptions(bridge=checkout, use_cache=False, jobs=1, only=("my_toy_pretrain_config",))
    with pytest.raises(NegativeAnswer) as caught:
        verify_catalog(options, copy)
    assert [(problem.path, problem.message) for problem in caught.value.problems] == [
        ("my_toy_pretrain_config", "train.global_batch_size: 65 is now 64")
    ]


def test_directories_are_compared_file_by_file(built, tmp_path):
    copy = shutil.copytree(built.directory, tmp_path / "copy")
    assert list(compare_directories(built.directory, copy)) == []
    (copy / "bases.jsonl").unlink()
    (copy / "new.jsonl").write_text("")
    found = {name.as_posix(): difference for name, difference in compare_directories(built.directory, copy)}
    assert found == {"bases.jsonl": "is gone", "new.jsonl": "is new"}


def test_every_machine_builds_the_same_values(built, checkout, tmp_path, monkeypatch):
    """The home folder and caches of who builds are not part of a catalog; a toy recipe writes them down."""
    name = "my_toy_pretrain_config"
    shipped = Catalog(built.directory).load(name).fields
    assert shipped["env_vars.HOME_FOLDER"] == "${HOME}/data"
    assert shipped["env_vars.NEMO"] is None
    (tmp_path / "someone").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "someone"))
    monkeypatch.setenv("NEMO_HOME", "/nemo")
    verify_catalog(BuildOptions(bridge=checkout, use_cache=False, jobs=1, only=(name,)), built.directory)


def test_verify_refuses_another_core_before_it_evaluates(built, checkout, tmp_path):
    core = write_tree(tmp_path, {name: text for name, text in FILES.items() if "/core/" in name})
    (core / "megatron/core/package_info.py").write_text('MAJOR = 0\nMINOR = 2\nPATCH = 0\nPRE_RELEASE = ""\n')
    with pytest.raises(UsageError, match=r"was evaluated with Megatron-Core 0\.1\.0\S* and 0\.2\.0\S* would be used"):
        verify_catalog(BuildOptions(bridge=checkout, core=core, use_cache=False), built.directory)
    with pytest.raises(UsageError, match=r"holds no release\.json"):
        verify_catalog(BuildOptions(bridge=checkout, use_cache=False), tmp_path)


def test_a_name_that_nothing_exports_is_refused(checkout, old):
    options = BuildOptions(bridge=checkout, use_cache=False, jobs=1, only=("my_toy_pretrain_config", "my_toy_pretrian_config"))
    with pytest.raises(UsageError, match="did you mean 'my_toy_pretrain_config'"):
        build_catalog(options, old)
    assert untouched(old)


def test_a_place_that_cannot_be_written_is_named(checkout, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="no catalog can be written there"):
        build_catalog(BuildOptions(bridge=checkout, use_cache=False), tmp_path / "file" / "out")


def test_a_folder_without_releases_is_not_passed_over(tmp_path, monkeypatch):
    monkeypatch.setenv(CATALOG_VARIABLE, str(tmp_path))
    with pytest.raises(UsageError, match=CATALOG_VARIABLE):
        open_catalog("0.6.2")


@pytest.fixture
def old(tmp_path):
    directory = tmp_path / "out" / "1.0"
    directory.mkdir(parents=True)
    (directory / "release.json").write_text('{"release": "1.0"}')
    return tmp_path / "out"


def untouched(out):
    return [path.relative_to(out).as_posix() for path in sorted(out.rglob("*"))] == ["1.0", "1.0/release.json"]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda path: None, UsageError, "no such file or directory"),
        (lambda path: path.write_bytes(b"PK\x03\x04 not really"), EnvironmentProblem, "not a readable wheel"),
        (lambda path: path.mkdir(), EnvironmentProblem, "neither src/megatron/bridge nor megatron/bridge"),
        (lambda path: (path / "megatron/bridge").mkdir(parents=True), EnvironmentProblem, "neither recipes nor perf_recipes"),
        (
            lambda path: zipfile.ZipFile(path, "w").writestr("other/__init__.py", ""),
            EnvironmentProblem,
            "holds no megatron/bridge",
        ),
        (lambda path: write_zip(path, "../evil.py"), EnvironmentProblem, "points outside the archive"),
    ],
)
def test_bad_input_is_named_and_leaves_the_old_catalog_alone(tmp_path, old, make, error, text):
    path = tmp_path / "megatron_bridge.whl"
    make(path)
    with pytest.raises(error, match=text):
        build_catalog(BuildOptions(bridge=path, use_cache=False), old)
    assert untouched(old)


def write_zip(path, name):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, "x = 1\n")


def test_a_truncated_wheel_is_corrupt(tmp_path, old):
    whole = tmp_path / "whole.whl"
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("megatron/bridge/recipes/long.py", "".join(f"value_{number} = {number}\n" for number in range(500)))
        for name, text in FILES.items():
            archive.writestr(name, text)
    content = bytearray(whole.read_bytes())
    middle = content.index(b"PK\x03\x04", 4) - 40  # inside the first file's compressed text
    content[middle : middle + 8] = b"\xff" * 8
    flipped = tmp_path / "flipped.whl"
    flipped.write_bytes(content)
    with pytest.raises(EnvironmentProblem, match="not a readable wheel"), open_bridge(flipped):
        pass
    cut = tmp_path / "cut.whl"
    cut.write_bytes(whole.read_bytes()[:-200])
    with pytest.raises(EnvironmentProblem, match="not a readable wheel"), open_bridge(cut):
        pass
    with open_bridge(whole) as tree:
        assert tree.release == "9.1.0rc1"


def test_a_tree_that_cannot_be_imported_says_why(tmp_path, old):
    files = FILES | {"megatron/bridge/recipes/__init__.py": "import a_package_that_nobody_has\n"}
    tree = write_tree(tmp_path / "tree", files)
    with pytest.raises(EnvironmentProblem, match="a_package_that_nobody_has"):
        build_catalog(BuildOptions(bridge=tree, core=tree, use_cache=False, jobs=1), old)
    assert untouched(old)


def test_the_submodule_of_a_checkout_is_its_core(checkout):
    with open_core(None, bridge=checkout) as core:
        assert core.directory == (checkout / "3rdparty/Megatron-LM").resolve()


def test_the_command_reports_bad_input_with_its_exit_code(tmp_path, capsys):
    assert execute(["catalog", "build", "--bridge", str(tmp_path / "none.whl"), "--out", str(tmp_path / "out")]) == 2
    assert "no such file or directory" in capsys.readouterr().err
    assert execute(["catalog", "build", "--bridge", str(tmp_path), "--out", str(tmp_path / "out"), "--format", "json"]) == 3
    assert json.loads(capsys.readouterr().err)["errors"][0]["code"] == "wrong-tree"
