#!/usr/bin/env bash
# Train a recipe under Slurm: hosts, container and variables here, everything else goes to run_recipe.py unchanged.
#
#   ./scripts/training/train.sh --nodes 2 --gpus-per-node 8 --account ACCOUNT --partition PARTITION \
#       --container-image IMAGE --recipe qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config --mode pretrain
#
# --dry-run prints the whole submission; --help lists the options.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
exec "${PYTHON:-python3}" "$here/setup_experiment.py" "$@"
