"""The reader against bash itself: both must hand the same words to the training program.

The scripts are made of what public launch scripts do; `torchrun` is a function that prints its words, and no other program runs.
"""

from __future__ import annotations

import shutil
import subprocess

import pytest

from autorecipe.translate.shell.arithmetic import evaluate
from autorecipe.translate.shell.script import read_script

SCRIPTS = {
    "arrays that hold several words": """
DTYPE="fp8"
DTYPE_ARGS=()
if [[ "$DTYPE" == "fp8" ]]; then
    DTYPE_ARGS+=(
        "--fp8-format hybrid"
        "--fp8-param-gather"   # a comment
    )
fi
TRAINING=(--lr 1e-4)
TRAINING+=("${DTYPE_ARGS[@]}" --clip-grad 1.0)
torchrun pretrain_gpt.py ${TRAINING[@]}
""",
    "conditions joined by or": """
TOKENIZER_ARG=tok
DATA_ARG=MOCK
ARGS=()
if [[ "$TOKENIZER_ARG" == "MOCK" ]] || [[ "$DATA_ARG" == "MOCK" ]] || [[ -z "$TOKENIZER_ARG" ]]; then
    ARGS+=("--mock-data" "--split '99,1,0'")
else
    ARGS+=("--data-path $DATA_ARG")
fi
torchrun pretrain_gpt.py ${ARGS[@]}
""",
    "conditions joined by and": """
SP=true; TP=1
if [ $SP = true ] && [ $TP -gt 1 ]; then
    sp_options=" --sequence-parallel"
elif [ $SP = false ]; then
    sp_options=" "
fi
[ $TP -eq 1 ] && more="--one" || more="--many"
[[ $TP > 1 ]] && never="--never"
[[ $TP -ge 1 && ( $SP == t* || $SP == x ) ]] && glob=--glob
torchrun pretrain_gpt.py --lr 1 $sp_options $more $never $glob
""",
    "a command kept in a text": r"""
megatron_options="  \
	--log-throughput \
        --lr 1e-5 \
        --eod-mask-loss
        "
TP=2
TP_COMM_OVERLAP=$(( ($TP > 1) ? 1 : 0 ))
if [ $TP_COMM_OVERLAP -eq 1 ]; then
    comm="--tp-comm-overlap"
fi
ARGS="--nproc_per_node 8"
run_cmd="torchrun $ARGS pretrain_gpt.py
 ${megatron_options} ${comm} \
 "
run_cmd="$run_cmd | cat - "
eval ${run_cmd}
""",
    "case": """
SIZE=1.7B
MODE=moe-8x
case $SIZE in
  0.5B) LAYERS=12;;
  1.7B|1.8B)
     LAYERS=24
     HIDDEN=2048
     ;;
  *) LAYERS=1 ;;
esac
case "$MODE" in moe-*) EXTRA="--num-experts ${MODE#moe-}"; EXTRA=${EXTRA%x} ;; *) EXTRA=;; esac
torchrun pretrain_gpt.py --num-layers $LAYERS --hidden-size $HIDDEN $EXTRA
""",
    "functions and loops": """
add() { OPTIONS="$OPTIONS --$1 $2"; }
function add_many {
  local name
  for pair in "$@"; do
    add ${pair%%=*} ${pair#*=}
  done
}
OPTIONS=""
add lr 1e-4
add_many num-layers=2 hidden-size=64
run() {
  torchrun pretrain_gpt.py $OPTIONS "$@"
}
run --seed 3 --name "a b"
""",
    "arithmetic": """
GPUS=8; NODES=$((2)); WORLD=$(($GPUS*NODES))
TOKENS=300000000000
GBS=$(( WORLD * 4 ))
ITERS=$(( ${TOKENS} * 3 / ${GBS} / 2048 ))
if (( WORLD > 8 && NODES != 1 )); then BIG=--big; fi
torchrun pretrain_gpt.py --global-batch-size $GBS --train-iters $ITERS $BIG --x $((7 % 4 ** 2 - -1)) --y $(( -7 / 2 ))
""",
    "defaults and cuts": r"""
NAME=/data/my-corpus_text_document.bin
A=${1:-"checkpoints/llama3"}
B=${UNSET_BY_ALL:=given}
C=${NAME##*/}
LIST=(a b c)
torchrun pretrain_gpt.py --save $A --b $B $UNSET_BY_ALL --c ${C%.bin} --n ${#LIST[@]} --i ${LIST[1]} --u ${B^^} \
  --r ${NAME//-/_} --s ${B:1:3} ${X+--no} ${B+--yes}
""",
    "commented lines inside arrays and texts": r"""
ARGS=(
    --micro-batch-size 1
    # --lr-decay-iters 320000
#    --moe-grouped-gemm
    --clip-grad 1.0   # --bf16
)
TEXT=" --bf16 \
  --lr 2e-5"
torchrun pretrain_gpt.py "${ARGS[@]}" $TEXT # --not-this
""",
    "here documents are data": """
cat <<EOT > /dev/null
torchrun pretrain_gpt.py --a 1 --b 2 --c 3 --d 4
EOT
read -r LINE <<< "--lr 5"
torchrun pretrain_gpt.py --lr 1 && true
""",
    "nested conditions": """
A=1
if [ "$A" = 1 ]; then
  if [ "$A" = 2 ]; then X=--two; else
    if [[ ! $A == 3 ]]; then X=--not-three; fi
  fi
elif [ "$A" = 4 ]; then X=--four
else X=--none
fi
if ! [ "$A" = 1 ]; then Y=--wrong; fi
{ Z=--grouped; }
torchrun pretrain_gpt.py $X $Y $Z
""",
    "a variable in front of the command": """
OPTS="--bf16 --lr 1"
CUDA_VISIBLE_DEVICES=0 OMP_NUM_THREADS=1 torchrun --nproc_per_node=2 pretrain_gpt.py $OPTS 2>&1
""",
    "export with values": """
export LR=3e-4 MIN_LR=1e-5
declare -a ARGS=(--lr $LR)
readonly SEED=5
torchrun pretrain_gpt.py "${ARGS[@]}" --min-lr $MIN_LR --seed ${SEED}
""",
    "texts that are run": r"""
export LAUNCHER="torchrun --nnodes 2 \
   --tee 3 \
  "
CMD=" \
  pretrain_gpt.py --num-layers 4 --pattern 'a|b c' \
  "
SRUN="--wait=60 "
eval "$LAUNCHER --node_rank \${RANK:-0} $CMD" 2>&1 | cat -
""",
    "blanks in values": r"""
NAME="two words"
ARGS=(--a "$NAME" --b $NAME)
OPTIONS=" --c '$NAME' --d	tab "
torchrun pretrain_gpt.py "${ARGS[@]}" $OPTIONS ${ARGS[@]}
""",
    "quotes of every kind": r"""
A='single $NOT'; B="double \"inner\" $((1+1))"; C=mixed'one'"two"
torchrun pretrain_gpt.py --a "$A" --b "$B" --c $C --d a\ b --e '' --f "x
y"
""",
}


FUNCTIONS = r"""
torchrun() { printf '%s\0' "$@"; }
cat() { while IFS= read -r -d '' word; do printf '%s\0' "$word"; done; }
PATH=/nowhere
"""


def bash_words(script: str) -> list[str]:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not here")
    command = [bash, "--norc", "--noprofile"]
    done = subprocess.run(command, input=FUNCTIONS + script, capture_output=True, text=True, env={}, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return done.stdout.split("\0")[:-1]


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_words_are_those_that_bash_gives(name: str) -> None:
    expected = bash_words(SCRIPTS[name])
    words = list(read_script(SCRIPTS[name]).words)
    assert words[words.index("torchrun") + 1 :] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("2 ** 3 ** 2", 512),
        ("-7 % 3", -1),
        ("1 << 4 | 1", 17),
        ("1 < 2 ? 10 : 20", 10),
        ("0 || 3 && 0", 0),
        ("!0 + ~0", 0),
        ("010", 8),
        ("A * 2", 6),
        ("${A} + $A", 6),
        ("B + 1", None),
        ("1 / 0", None),
        ("9 ** 999999", None),
        ("1 +", None),
        ("__import__('os')", None),
        ("((((1))))", 1),
        ("(" * 5000, None),
    ],
)
def test_arithmetic(text: str, expected: int | None) -> None:
    assert evaluate(text, {"A": 3}.get) == expected


def test_what_nothing_sets_is_taken_as_unset_and_said() -> None:
    reading = read_script(
        'if [ -z "$VP" ]; then vp=""; else vp="--vp $VP"; fi\n'
        'if [ -n "$KEY" ]; then LOG="--wandb-project p"; fi\n'
        "torchrun pretrain_gpt.py --lr 1 $vp $LOG"
    )
    assert reading.words == ("torchrun", "pretrain_gpt.py", "--lr", "1")
    assert [piece.text for piece in reading.conditional] == ["--vp", "--wandb-project"]
    assert {text.split()[0] for text in reading.unresolved} == {"VP", "KEY"}
    given = read_script(
        'if [ -n "$KEY" ]; then LOG="--wandb-project p"; fi\ntorchrun pretrain_gpt.py --lr 1 $LOG', variables={"KEY": "x"}
    )
    assert given.words[-2:] == ("--wandb-project", "p")
    assert given.unresolved == ()


def test_an_undecided_part_of_a_list_is_left_out_and_reported() -> None:
    reading = read_script(
        '[ -f conf ] && ARGS="--extra 1"\ngrep -q x file || ARGS="--other 2"\ntorchrun pretrain_gpt.py --lr 1 $ARGS'
    )
    assert [piece.text for piece in reading.conditional] == ["--extra"]
    assert any("[ -f conf ]" in text for text in reading.unresolved)


def test_a_file_that_is_sourced_is_named() -> None:
    reading = read_script("source ./config.sh\ntorchrun pretrain_gpt.py --lr $LR --a 1 --b 2")
    assert any("./config.sh" in text for text in reading.unresolved)
    assert "${LR}" in reading.words


def test_functions_that_nothing_calls_are_read_last() -> None:
    reading = read_script("train() {\n  torchrun pretrain_gpt.py --lr 1 --bf16\n}\n")
    assert reading.words[-3:] == ("--lr", "1", "--bf16")


@pytest.mark.parametrize(
    "text",
    [
        "if",
        "case x",
        "case x in a",
        "for",
        "( ( (",
        "} ) fi done esac",
        "a() {",
        "[[ a",
        "((",
        "${",
        "x=(",
        "<<EOF",
        "!",
        "&& ||",
    ],
)
def test_broken_scripts_are_read_to_their_end(text: str) -> None:
    assert read_script(text).words == ()
    assert read_script(f"{text}\n").words == ()


def test_a_text_is_split_although_a_part_of_it_is_not_known() -> None:
    text = (
        'DATA=$1\nopts=" --lr 1e-4 --data-path ${DATA} --save $(date +%F)/ckpt --bf16"\ntorchrun pretrain_gpt.py ${opts} --seed 2'
    )
    words = ("torchrun", "pretrain_gpt.py", "--lr", "1e-4", "--data-path", "${1}", "--save", "$(date +%F)/ckpt", "--bf16")
    assert read_script(text).words == (*words, "--seed", "2")
    assert read_script(text, arguments=["/data"]).words[5] == "/data"
    assert read_script(text, variables={"1": "/data"}).words[5] == "/data"


def test_a_shell_that_a_scheduler_starts_is_followed() -> None:
    text = 'CMD="python pretrain_gpt.py --lr 1 --bf16"\n'
    text += 'srun --jobid $JOB bash -c "$CMD --node_rank \\$SLURM_PROCID" 2>&1 | tee log\n'
    assert read_script(text).words == ("python", "pretrain_gpt.py", "--lr", "1", "--bf16", "--node_rank", "${SLURM_PROCID}")


def test_what_an_undecided_branch_assigns_is_not_taken_as_empty() -> None:
    reading = read_script(
        "if [ $1 = 7B ]; then LAYERS=32; fi\nA=1\nif [ -f x ]; then A=2; fi\npython pretrain_gpt.py --num-layers $LAYERS --a $A"
    )
    assert reading.words[2:] == ("--num-layers", "${LAYERS}", "--a", "1")
    assert any("may give A another value" in text for text in reading.unresolved)
    assert (
        read_script("if [ $1 = 7B ]; then LAYERS=32; fi\npython pretrain_gpt.py --num-layers $LAYERS", arguments=["7B"]).words[-1]
        == "32"
    )
