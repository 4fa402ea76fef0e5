import json
import os
from pathlib import Path

import pytest

from autorecipe.api.train import TrainRequest
from autorecipe.api.upstream import UpstreamProgram, find_place, find_program, look_up_place
from autorecipe.api.upstream_run import run_program
from autorecipe.errors import EnvironmentProblem

TOY = (
    "model.num_layers=2",
    "model.hidden_size=256",
    "model.num_attention_heads=4",
    "model.ffn_hidden_size=1024",
    "dataset.seq_length=512",
    "train.train_iters=10",
    "scheduler.lr_warmup_iters=1",
    "engine.modules=own",
)
LINE = (
    " [2026-12-01 05:38:57] iteration        2/      10 | consumed samples:           64 |"
    " elapsed time per iteration (ms): 9830.6 | learning rate: 2.460000E-04 |"
    " global batch size:    32 | lm loss: 1.028318E+01 | loss scale: 1.0 | grad norm: 0.799 |"
)


def request(engine: str) -> TrainRequest:
    return TrainRequest(recipe="vanilla_gpt_pretrain_config", overrides=TOY, engine=engine, dataset="mock")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Start each test where no upstream program is."""
    monkeypatch.delenv("MEGATRON_BRIDGE", raising=False)
    monkeypatch.delenv("MEGATRON_LM", raising=False)
    monkeypatch.setattr("autorecipe.api.upstream.is_installed", lambda name: False)
    monkeypatch.setattr("autorecipe.api.upstream.has_cuda", lambda: False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("engine", ["bridge", "mlm"])
def test_a_program_that_is_not_here_is_an_environment_problem(engine: str) -> None:
    with pytest.raises(EnvironmentProblem) as caught:
        find_program(request(engine))
    assert caught.value.exit_code == 3
    assert "--engine core needs neither" in caught.value.problems[0].hint


def test_megatron_lm_gets_the_translated_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pretrain_gpt.py").touch()
    monkeypatch.setenv("MEGATRON_LM", str(tmp_path))
    program = find_program(request("mlm"))
    words = list(program.words)
    assert words[:4] == ["-m", "autorecipe.engine.upstream", "mlm", str(tmp_path.resolve())]
    for flag, value in (("--num-layers", "2"), ("--hidden-size", "256"), ("--seq-length", "512"), ("--train-iters", "10")):
        assert words[words.index(flag) + 1] == value
    assert "--mock-data" in words
    assert not any("engine.modules" in word for word in words)
    assert (Path(program.environment["PYTHONPATH"].split(os.pathsep)[0]) / "autorecipe").is_dir()


def test_a_bridge_checkout_is_started_through_its_own_launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "scripts" / "training" / "run_recipe.py"
    script.parent.mkdir(parents=True)
    script.touch()
    monkeypatch.setenv("MEGATRON_BRIDGE", str(tmp_path))
    program = find_program(request("bridge"))
    assert program.words[:4] == ("-m", "autorecipe.engine.upstream", "bridge", str(tmp_path.resolve()))
    assert program.words[4:8] == ("--recipe", "vanilla_gpt_pretrain_config", "--dataset", "mock")
    assert "model.num_layers=2" in program.words and "engine.modules=own" not in program.words
    assert "engine.modules=own" in program.notes[0]


def test_an_installed_bridge_is_started_from_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autorecipe.api.upstream.is_installed", lambda name: name == "megatron.bridge")
    words = find_program(request("bridge")).words
    assert words[:8] == (
        "-m",
        "autorecipe.engine.upstream",
        "bridge",
        "-",
        "--recipe",
        "vanilla_gpt_pretrain_config",
        "--dataset",
        "mock",
    )


def test_without_cuda_the_options_that_a_cpu_needs_are_added_and_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "megatron" / "training").mkdir(parents=True)
    monkeypatch.setenv("MEGATRON_LM", str(tmp_path))
    program = find_program(request("mlm"))
    assert "--no-persist-layer-norm" in program.words
    assert any("no CUDA" in note for note in program.notes)
    monkeypatch.setattr("autorecipe.api.upstream.has_cuda", lambda: True)
    program = find_program(request("mlm"))
    assert "--no-persist-layer-norm" not in program.words
    assert not any("no CUDA" in note for note in program.notes)


def test_places_are_tried_in_order_and_a_named_one_must_hold_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert look_up_place("mlm") is None
    monkeypatch.setattr("autorecipe.api.upstream.is_installed", lambda name: True)
    assert find_place("mlm").path is None
    usual = tmp_path / "3rdparty" / "Megatron-LM"
    usual.mkdir(parents=True)
    (usual / "pretrain_gpt.py").touch()
    assert find_place("mlm").found_by == "3rdparty/Megatron-LM"
    package = tmp_path / "wheel"
    (package / "megatron" / "training").mkdir(parents=True)
    monkeypatch.setenv("MEGATRON_LM", str(package))
    assert find_place("mlm").path == package
    assert not find_place("mlm").is_checkout
    assert find_place("mlm", usual).is_checkout
    with pytest.raises(EnvironmentProblem, match=r"holds neither pretrain_gpt\.py nor megatron/training"):
        find_place("mlm", tmp_path)


def test_lines_pass_through_and_their_numbers_are_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = upstream(f"print('hello'); print({LINE!r}); raise SystemExit(5)", engine="bridge")
    metrics = tmp_path / "metrics.jsonl"
    assert run_program(program, metrics=metrics) == 5
    assert capsys.readouterr().out.splitlines() == ["hello", LINE]
    [row] = read_rows(metrics)
    assert (row["iteration"], row["lm loss"], row["grad norm"]) == (2, 10.28318, 0.799)


def test_the_second_line_of_megatron_lm_is_recorded_without_the_first(tmp_path: Path) -> None:
    first = LINE.replace("        2/", "        1/").replace("1.028318E+01", "1.042335E+01")
    second = LINE.replace("1.028318E+01", "1.035326E+01")
    third = LINE.replace("        2/", "        3/").replace("1.028318E+01", "1.014491E+01")
    lines = f"print({first!r}); print({second!r}); print({third!r})"
    for engine, expected in (("mlm", 10.28317), ("bridge", 10.35326)):
        metrics = tmp_path / f"{engine}.jsonl"
        assert run_program(upstream(lines, engine=engine), metrics=metrics) == 0
        losses = [row["lm loss"] for row in read_rows(metrics)]
        assert losses == [10.42335, pytest.approx(expected, abs=1e-9), 10.14491]


def test_a_program_ended_by_a_signal_gives_the_shells_code() -> None:
    program = upstream("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", engine="bridge")
    assert run_program(program, metrics=None) == 137


def upstream(source: str, *, engine: str) -> UpstreamProgram:
    return UpstreamProgram(engine=engine, words=("-c", source))


def read_rows(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
