import json
import os
import sys
from pathlib import Path

import pytest

from autorecipe.api.train import TrainRequest
from autorecipe.api.upstream import UpstreamProgram, find_program, read_numbers, run_program
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
    monkeypatch.setattr("autorecipe.api.upstream._is_installed", lambda name: False)
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
    words = list(program.command)
    assert words[1:5] == ["-m", "autorecipe.engine.upstream", "mlm", str(tmp_path.resolve())]
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
    assert program.command[1:5] == ("-m", "autorecipe.engine.upstream", "bridge", str(tmp_path.resolve()))
    assert program.command[5:9] == ("--recipe", "vanilla_gpt_pretrain_config", "--dataset", "mock")
    assert "model.num_layers=2" in program.command and "engine.modules=own" not in program.command
    assert "engine.modules=own" in program.notes[0]


def test_an_installed_bridge_is_started_by_our_own_starter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autorecipe.api.upstream._is_installed", lambda name: name == "megatron.bridge")
    command = find_program(request("bridge")).command
    assert command[1].endswith("start_bridge.py")
    assert command[2:5] == ("vanilla_gpt_pretrain_config", "mock", "")


def test_lines_pass_through_and_their_numbers_are_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = UpstreamProgram(command=(sys.executable, "-c", f"print('hello'); print({LINE!r}); raise SystemExit(5)"))
    metrics = tmp_path / "metrics.jsonl"
    assert run_program(program, metrics=metrics) == 5
    assert capsys.readouterr().out.splitlines() == ["hello", LINE]
    [row] = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert (row["iteration"], row["lm loss"], row["grad norm"]) == (2, 10.28318, 0.799)


def test_a_program_ended_by_a_signal_gives_the_shells_code() -> None:
    program = UpstreamProgram(command=(sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))
    assert run_program(program, metrics=None) == 137


def test_other_lines_hold_no_numbers() -> None:
    assert read_numbers("validation loss at iteration 10 | lm loss value: 9.5") is None
