#!/usr/bin/env bash
# The main job on real input: recommend a recipe, train its smoke run on 2 processes and on 1, prove the same loss.
# usage: bash scripts/demo.sh BIN        (BIN holds python and autorecipe, such as .venv/bin; output goes to demo-output/)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
bin=${1:?usage: scripts/demo.sh BIN}
case $bin in /*) ;; *) bin=$(pwd)/$bin ;; esac
python=$bin/python
export PYTHONPATH=$root/src${PYTHONPATH:+:$PYTHONPATH}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
out=$root/demo-output
rm -rf "$out"
mkdir -p "$out"
cd "$root"

say() { printf '\n== %s\n' "$*"; }
show() { printf '$ %s\n' "$*"; "$@"; }

# The smoke run: the model of upstream's correlation guide, small enough for two CPU cores. Weights are drawn on the host:
# drawn on the devices, each tensor-parallel rank draws its own, and two layouts start from different models.
common=(--recipe vanilla_gpt_pretrain_config --dataset mock
  model.num_layers=2 model.hidden_size=256 model.num_attention_heads=4 model.ffn_hidden_size=1024
  model.seq_length=128 dataset.seq_length=128 model.attention_dropout=0 model.hidden_dropout=0 model.use_cpu_initialization=true
  train.train_iters=10 train.global_batch_size=8 train.micro_batch_size=2
  validation.eval_interval=10 validation.eval_iters=1
  optimizer.lr=3e-4 optimizer.min_lr=3e-5 scheduler.lr_warmup_iters=1 scheduler.lr_decay_iters=10
  rng.seed=1234 logger.log_interval=1 logger.tensorboard_dir=null)

train() { # NAME PROCESSES OVERRIDES...
  local name=$1 processes=$2
  shift 2
  show "$python" -m torch.distributed.run --nproc_per_node="$processes" scripts/training/run_recipe.py \
    "${common[@]}" "checkpoint.save=$out/$name/checkpoints" "$@" 2>&1 | tee "$out/$name.log"
}

say "1/4  which recipe for Llama 3 8B on 8 H100?"
show "$python" -m autorecipe recommend "Llama 3 8B" --gpus 8 --gpu h100 --goal pretrain

say "2/4  smoke run on 2 processes: tensor parallel 2, sequence parallel"
train tp2 2 model.tensor_model_parallel_size=2 model.sequence_parallel=true

say "3/4  the same on 1 process"
train single 1

say "4/4  do both train alike?"
show "$python" -m autorecipe parity compare "$out/single.log" "$out/tp2.log" --plot "$out/parity.png"

say "done: logs, checkpoints and parity.png are in ${out#"$root"/}/"
