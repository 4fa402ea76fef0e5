"""What goes wrong is said in Japanese when Japanese is asked for: same codes, values and commands."""

import os
import re
import subprocess
import sys

import pytest

from autorecipe.cli.main import execute

ENGLISH = re.compile(r"(?<![\w./=-])[a-z]{2,}(?: [a-z]{2,}){1,}(?![\w.])")
LINES = (
    ["--gpus", "0"],
    ["--gpus", "x"],
    ["--goal", "foo"],
    ["--lan", "x"],
    ["--gpu", "h10"],
    ["--bridge", "9.9"],
    ["--dataset", "sqad", "--goal", "sft", "--model", "llama3 8b"],
    ["--nodes", "3", "--gpus", "8"],
    ["--nodes", "2", "--gpus-per-node", "8", "--gpus", "8"],
    ["--gpus", "9", "--gpus-per-node", "2"],
    ["--goal", "dora"],
    ["--model", "mine.py:my_config"],
    ["--model", "/nope/config.json", "--goal", "sft"],
    ["--model", "qwen3"],
    ["SFT と事前学習 llama3 8b"],
    ["llama3 8b dora ベンチマーク 8 H100"],
    ["llama3 8b sft 8 RTX4090"],
    ["Llama3 8B 事前学習 H100 8枚 H200 16枚"],
    ["Llama 3 8B 事前学習; qwen3"],
    ["zork sft"],
)


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_an_error_is_said_in_japanese_with_its_facts(words, capsys):
    said = {}
    for lang in ("en", "ja"):
        status = execute(["recommend", *words, "--lang", lang])
        said[lang] = status, capsys.readouterr().err
    assert said["en"][0] == said["ja"][0] != 0
    english, japanese = said["en"][1], said["ja"][1]
    assert re.findall(r"^error(\[[\w-]+\])?", english, re.M) == re.findall(r"^エラー(\[[\w-]+\])?", japanese, re.M)
    for line in japanese.splitlines():
        assert re.search("[\u3040-\u9fff]", line), line
        assert ENGLISH.search(re.sub(r"`[^`]*`|'[^']*'", "", line)) is None, line
    for fact in re.findall(r"(?<![a-z])'[^'\n]*'|`autorecipe[^`]*`|--[a-z-]+|\d+(?:\.\d+)?", english):
        assert fact in japanese, (fact, japanese)


def test_an_error_for_a_program_is_said_in_japanese_too(capsys):
    assert execute(["recommend", "--gpu", "h10", "--format", "json", "--lang=ja"]) == 2
    assert "\"message\": \"未知の GPU 'h10'。'h100' の間違いではありませんか\"" in capsys.readouterr().err


ON_A_TERMINAL = """
import sys
from autorecipe.cli.main import execute
sys.exit(execute(["recommend", "おすすめは?", "--brief", "--lang", "ja"]))
"""


def test_a_terminal_asks_in_japanese_and_takes_japanese_answers():
    pty = pytest.importorskip("pty")
    main, side = pty.openpty()
    process = subprocess.Popen([sys.executable, "-X", "utf8", "-c", ON_A_TERMINAL], stdin=side, stdout=side, stderr=side)
    os.close(side)
    os.write(main, "qwen3 8b\n学習\n微調整\nたくさん\n８枚\nh10\nＨ１００\n１６Ｋ\n".encode())
    shown = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:  # the other side has gone
            break
        if not part:
            break
        shown += part
    text = shown.decode()
    assert process.wait(timeout=60) == 0, text
    assert "--goal: 目的は?" in text and "--gpus: GPU は何台ですか?" in text
    assert "未知の答え '学習'" in text and "'たくさん' は 0 より大きい整数ではありません" in text and "'h100' の間違い" in text
    assert re.search(r"qwen3_8b_sft_\w*config は", text) and "8 x H100" in text and "16384 トークン" in text
