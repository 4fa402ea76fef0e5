from __future__ import annotations

import json
from pathlib import Path

import pytest

from autorecipe.cli.main import execute
from autorecipe.parity.sparkline import draw_sparkline

MLM = "gpt_2l256h_bf16__mlm_documented.log"


def test_exit_status_follows_the_verdict(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mlm = str(golden / MLM)
    assert execute(["parity", "compare", mlm, str(golden / "gpt_2l256h_bf16__bridge_matched.log")]) == 0
    assert capsys.readouterr().out.startswith("identical: ")
    assert execute(["parity", "compare", mlm, str(golden / "gpt_2l256h_bf16__bridge_documented.log")]) == 1
    assert "the learning rate differs first" in capsys.readouterr().out
    assert execute(["parity", "compare", mlm]) == 2
    assert execute(["parity", "compare", mlm, "absent.log"]) == 2


def test_json_holds_the_verdict_and_every_point(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [MLM, "gpt_2l256h_bf16__bridge_matched.log", "gpt_2l256h_bf16__bridge_documented.log"]
    assert execute(["parity", "compare", *(str(golden / name) for name in names), "--format", "json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["holds"] is False
    assert [report["verdict"] for report in data["reports"]] == ["identical", "broken"]
    assert {len(series["points"]) for report in data["reports"] for series in report["series"]} == {10}


def test_pictures_are_written(golden: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    png, html = tmp_path / "new" / "curve.png", tmp_path / "curve.html"
    logs = [str(golden / MLM), str(golden / "gpt_2l256h_bf16__bridge_documented.log")]
    assert execute(["parity", "compare", *logs, "--plot", str(png), "--html", str(html)]) == 1
    assert png.read_bytes().startswith(b"\x89PNG")
    page = html.read_text()
    assert "the learning rate differs first" in page
    assert "<script" not in page
    assert "http" not in page


def test_a_sparkline_keeps_its_width_and_marks_what_is_not_finite() -> None:
    assert draw_sparkline([0.0, 1.0]) == "▁█"
    assert draw_sparkline([0.0, float("nan"), 1.0]) == "▁!█"
    assert len(draw_sparkline([float(i) for i in range(1000)], width=48)) == 48
    assert draw_sparkline([]) == ""
