#!/usr/bin/env bash
# Install Slurm for the launch tests, on Debian or Ubuntu. Nothing is configured system-wide: a test starts its own
# controller, two pretended hosts and munge inside a temporary folder, and stops them again.
set -euo pipefail
[ "$(id -u)" = 0 ] || { echo "error: run it as root"; exit 3; }
apt-get update
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends slurm-wlm munge
sinfo --version
