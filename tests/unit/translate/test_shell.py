from __future__ import annotations

import pytest

from autorecipe.translate.shell.conditions import decide_test
from autorecipe.translate.shell.script import read_script

SCRIPT = r"""#!/bin/bash
# pretraining, with "quotes' in a comment
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS=8
NODES=${NODES:-2}
WORLD=$(($GPUS*NODES))
CKPT=$1
NAME="my model"
DIST=(
    --nproc_per_node $GPUS   # per node
    --nnodes $NODES
    --master_addr $(hostname)
)
MODEL_ARGS=(
    --num-layers 24 # deep
    --hidden-size 2048
)
MODEL_ARGS+=(--num-attention-heads 16)
EXTRA="--seed 42 \
  --clip-grad 1.0"
if [ "$NODES" -gt 1 ]; then
  EXTRA+=" --use-distributed-optimizer"
else
  EXTRA+=" --mock-data"
fi
if [ -f /etc/some-file ]; then MODEL_ARGS+=(--overlap-grad-reduce); fi
torchrun ${DIST[@]} pretrain_gpt.py \
    "${MODEL_ARGS[@]}" $EXTRA --global-batch-size $((WORLD * 4)) \
    --save $CKPT --wandb-exp-name "$NAME" \
    --moe-layer-freq '([0]*3+[1]*21)' 2>&1 | tee log.txt
"""


def options(text: str, **variables: str) -> list[str]:
    words = list(read_script(text, variables=variables).words)
    return words[next(i for i, word in enumerate(words) if word.endswith(".py")) + 1 :]


def test_a_usual_launch_script() -> None:
    words = options(SCRIPT)
    assert words == [
        *("--num-layers", "24", "--hidden-size", "2048", "--num-attention-heads", "16", "--seed", "42"),
        *("--clip-grad", "1.0", "--use-distributed-optimizer", "--global-batch-size", "64", "--save", "${1}"),
        *("--wandb-exp-name", "my model", "--moe-layer-freq", "([0]*3+[1]*21)"),
    ]


def test_what_only_a_shell_could_know_is_reported() -> None:
    reading = read_script(SCRIPT)
    assert any("$(hostname)" in text for text in reading.unresolved)
    assert any("${1}" in text for text in reading.unresolved)
    assert any("/etc/some-file" in text for text in reading.unresolved)
    assert [(piece.text, piece.line) for piece in reading.conditional] == [("--overlap-grad-reduce", 26)]
    assert reading.environment == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}


def test_lines_are_those_of_the_definition() -> None:
    reading = read_script(SCRIPT)
    lines = dict(zip(reading.words, reading.lines, strict=True))
    assert (lines["--num-layers"], lines["--num-attention-heads"], lines["--save"]) == (15, 18, 29)


def test_given_variables_win() -> None:
    words = options(SCRIPT, NODES="1", CKPT="/ckpt")
    assert "--mock-data" in words
    assert "--use-distributed-optimizer" not in words
    assert words[words.index("--save") + 1] == "/ckpt"
    assert words[words.index("--global-batch-size") + 1] == "32"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CMD='python pretrain_gpt.py --lr 1e-4 --bf16'\neval $CMD", ["--lr", "1e-4", "--bf16"]),
        ('CMD="python pretrain_gpt.py --lr 1e-4"\nbash -c "$CMD"', ["--lr", "1e-4"]),
        ("python pretrain_gpt.py --lr 1e-4 && python other.py", ["--lr", "1e-4"]),
        ("python pretrain_gpt.py --lr ${LR:-3e-4} > out.log 2>&1 &", ["--lr", "3e-4"]),
        ("A=1\nA=2\npython pretrain_gpt.py --lr $A", ["--lr", "2"]),
        ("EMPTY=\npython pretrain_gpt.py $EMPTY --lr 1", ["--lr", "1"]),
        ("python pretrain_gpt.py --lr 1 \\\r\n --bf16\r\n", ["--lr", "1", "--bf16"]),
        ("cat <<EOF\npython pretrain_gpt.py --lr 9 --a --b --c\nEOF\npython pretrain_gpt.py --lr 1", ["--lr", "1"]),
        ('ARGS=(--lr 1 "--name" \'a b\')\npython pretrain_gpt.py "${ARGS[@]}"', ["--lr", "1", "--name", "a b"]),
        ("OPT=--bf16\npython pretrain_gpt.py $OPT${X:+ --never}", ["--bf16"]),
    ],
)
def test_usual_ways_to_write_a_command(text: str, expected: list[str]) -> None:
    assert options(text) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (["[", "a", "=", "a", "]"], True),
        (["[[", "a", "!=", "a", "]]"], False),
        (["[", "-z", "", "]"], True),
        (["[", "!", "-n", "x", "]"], False),
        (["[", "3", "-ge", "2", "]"], True),
        (["[", "-f", "/etc/passwd", "]"], None),
        (["[", "${1}", "=", "a", "]"], None),
        (["grep", "x"], None),
    ],
)
def test_conditions_are_decided_only_where_they_can_be(fields: list[str], expected: bool | None) -> None:
    assert decide_test(fields) is expected


def test_nothing_is_executed(tmp_path: object) -> None:
    marker = f"{tmp_path}/ran"
    read_script(f"X=$(touch {marker})\n`touch {marker}`\ntouch {marker}\npython pretrain_gpt.py --lr $(touch {marker})")
    from pathlib import Path

    assert not Path(marker).exists()
