from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autorecipe.api.parity_run import RunRequest, run_parity
from autorecipe.errors import EnvironmentProblem, NegativeAnswer
from autorecipe.parity.experiment import SideRun, prepare_folder, run_side
from autorecipe.schema.parity import Verdict

TINY = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64"
TINY += " --micro-batch-size 1 --global-batch-size 2 --train-iters 3 --lr 1e-3 --mock-data --bf16 --tokenizer-type NullTokenizer"
TINY += " --vocab-size 256"

FAKE = """
import sys
options = sys.argv[1:]
assert "--num-layers" in options and "--transformer-impl" in options, options
steps = int(options[options.index("--train-iters") + 1])
rate = float(options[options.index("--lr") + 1])
total = 0.0
for step in range(1, steps + 1):
    loss = 5.0 - 0.1 * step - rate
    total += loss
    shown = total / 2 if step == 2 else loss
    print(f" [2026-12-01 05:36:0{step}.965169] iteration {step:8d}/{steps:8d} | consumed samples: {2 * step:12d} |"
          f" learning rate: {rate:.6E} | lm loss: {shown:.6E} | grad norm: 1.000 |")
"""


def fake_checkout(folder: Path) -> Path:
    checkout = folder / "Megatron-LM"
    checkout.mkdir()
    (checkout / "pretrain_gpt.py").write_text(FAKE)
    return checkout


def test_a_stale_result_folder_is_moved_aside_and_said(tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        (tmp_path / "nemo_experiments").mkdir()
        prepare_folder(tmp_path, say=said.append)
    assert not (tmp_path / "nemo_experiments").exists()
    assert len(list(tmp_path.glob("nemo_experiments.stale-*"))) == 2
    assert len(said) == 2
    assert "would have been resumed" in said[0]


def test_output_is_captured_and_failures_show_its_end(tmp_path: Path) -> None:
    good = tmp_path / "good.py"
    good.write_text("import os; print('rank', os.environ['RANK'], 'in', os.getcwd())")
    outcome = run_side(SideRun(name="a", program=(str(good),), processes=2), tmp_path, say=lambda text: None)
    text = Path(outcome.log).read_text()
    assert "rank 0" in text
    assert "rank 1" in text
    assert str(tmp_path / "a") in text
    bad = tmp_path / "bad.py"
    bad.write_text("raise SystemExit('out of luck')")
    with pytest.raises(NegativeAnswer, match="out of luck"):
        run_side(SideRun(name="b", program=(str(bad),), processes=1), tmp_path, say=lambda text: None)


def test_two_megatron_lm_sides_run_from_a_checkout_that_is_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("megatron.core")
    monkeypatch.setattr("autorecipe.api.upstream.has_cuda", lambda: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    checkout = fake_checkout(tmp_path)
    before = {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()}
    said: list[str] = []
    request = RunRequest(
        a=TINY, b=TINY.replace("--lr 1e-3", "--lr 2e-3"), output=tmp_path / "out", megatron_lm=checkout, timeout_s=300
    )
    outcomes, report = run_parity(request, say=said.append)
    assert [outcome.name for outcome in outcomes] == ["a-mlm", "b-mlm"]
    assert report.verdict is Verdict.BROKEN
    assert report.divergence is not None
    assert report.divergence.metric == "learning rate"
    assert any("no CUDA: added for Megatron-LM" in text for text in said)
    assert before == {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()}


def test_a_bridge_and_a_megatron_lm_that_are_packages_run_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autorecipe.api.upstream.has_cuda", lambda: False)
    monkeypatch.setattr("autorecipe.api.parity_run.run_side", lambda side, *rest, **options: started.append(side) or Done())
    monkeypatch.setattr("autorecipe.api.parity_run.compare_log_files", lambda *_, **__: ("report",))
    started: list[SideRun] = []

    class Done:
        log = "x"

    mlm, bridge = tmp_path / "mlm", tmp_path / "bridge"
    (mlm / "megatron" / "training").mkdir(parents=True)
    (bridge / "megatron" / "bridge").mkdir(parents=True)
    request = RunRequest(a=TINY, b=TINY, engine_a="mlm", engine_b="bridge", output=tmp_path, megatron_lm=mlm, bridge=bridge)
    run_parity(request, say=lambda text: None)
    first, second = started
    assert first.program[:4] == ("-m", "autorecipe.engine.upstream", "mlm", str(mlm))
    assert second.program[:6] == (
        "-m",
        "autorecipe.engine.upstream",
        "bridge",
        str(bridge),
        "--recipe",
        "vanilla_gpt_pretrain_config",
    )
    assert "model.transformer_impl=local" in second.program
    # Bridge brings no core of its own here: it takes the one beside Megatron-LM, before anything installed.
    assert second.environment["PYTHONPATH"].split(os.pathsep)[1] == str(mlm)


def test_a_missing_checkout_is_named_with_its_option(tmp_path: Path) -> None:
    request = RunRequest(a=TINY, b=TINY, engine_a="mlm", output=tmp_path, megatron_lm=tmp_path / "none")
    with pytest.raises(EnvironmentProblem, match="--megatron-lm"):
        run_parity(request, say=lambda text: None)


def test_options_that_cannot_be_translated_stop_a_run(tmp_path: Path) -> None:
    request = RunRequest(a=f"{TINY} --enable-mhc-connections", b=TINY, engine_a="core", output=tmp_path)
    with pytest.raises(NegativeAnswer, match="enable-mhc-connections"):
        run_parity(request, say=lambda text: None)


def test_the_upstream_starter_says_what_it_needs(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "autorecipe.engine.upstream"]
    usage = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (usage.returncode, "usage:" in usage.stderr) == (2, True)
    missing = subprocess.run([*program, "mlm", str(tmp_path)], capture_output=True, text=True, check=False)
    assert (missing.returncode, "no-checkout" in missing.stderr) == (3, True)


def test_sides_that_draw_other_weights_are_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Done:
        log = "x"

    monkeypatch.setattr("autorecipe.api.parity_run.run_side", lambda *_, **__: Done())
    monkeypatch.setattr("autorecipe.api.parity_run.compare_log_files", lambda *_, **__: ("report",))
    said: list[str] = []
    for other in (TINY, f"{TINY} --tensor-model-parallel-size 2", TINY.replace("--micro-batch-size 1", "--micro-batch-size 2")):
        run_parity(RunRequest(a=TINY, b=other, engine_a="core", engine_b="core", output=tmp_path), say=said.append)
    assert [text.partition(")")[0] for text in said] == ["A and B (TP 1 / 2", "A and B (micro batch 1 / 2"]
