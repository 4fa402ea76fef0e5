"""Throughput of the engine on one CUDA GPU: TFLOP/s (Megatron-LM's formula), MFU, peak memory, time to the first step.

`python bench/engine.py [WORD ...] [--iterations N] [--logs FOLDER]` runs the rows whose names contain all the words, each in a
process of its own through scripts/training/run_recipe.py, and prints one table. Beside the default of each dense shape the plain
PyTorch loop of bench/plain_torch.py runs, because one GPU differs from the next by more than most changes: look at the ratio.
Without a CUDA device it says so and ends.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

import golden_runs  # noqa: E402

DENSE_BF16_PEAK_TFLOPS = 989  # H100 and H200, vendor's datasheet
MEGATRON_LM_TFLOPS = {"1.2B, 1 x 4096": 130.7, "1.2B, 4 x 2048": 197.9}  # its local layers on one H200, measured

DENSE = golden_runs.RUNS["perf_1b_s4096"]
SHAPES = {
    "1.2B, 1 x 4096": DENSE,
    "1.2B, 4 x 2048": {
        **DENSE,
        "model.seq_length": 2048,
        "dataset.seq_length": 2048,
        "train.micro_batch_size": 4,
        "train.global_batch_size": 16,
    },
    "8 experts, top 2, 1 x 4096": {
        **DENSE,
        "model.num_moe_experts": 8,
        "model.moe_router_topk": 2,
        "model.moe_ffn_hidden_size": 4096,
        "model.moe_grouped_gemm": True,
        "model.moe_token_dispatcher_type": "alltoall",
        "model.moe_router_load_balancing_type": "aux_loss",
        "model.moe_aux_loss_coeff": 1e-2,
    },
}
VARIANTS = {
    "1.2B, 1 x 4096": {
        "default": [],
        "without graphs": ["engine.graphs=off"],
        "without fused update": ["engine.fused_update=off"],
        "without fused loss": ["engine.fused_loss=off"],
        "without fused gradients": ["engine.fused_grad=off"],
        "without fused layers": ["engine.fused_layers=off"],
        "nothing fused": [
            f"engine.{name}=off" for name in ("fused_loss", "fused_grad", "fused_layers", "fused_update", "graphs")
        ],
        "full recompute": [
            "model.recompute_granularity=full",
            "model.recompute_method=uniform",
            "model.recompute_num_layers=1",
        ],
    },
    "1.2B, 4 x 2048": {"default": []},
    "8 experts, top 2, 1 x 4096": {
        "default": [],
        "without graphs": ["engine.graphs=off"],
        "one module per expert": ["model.moe_grouped_gemm=false"],
    },
}
PLAIN = {"1.2B, 1 x 4096": (1, 4096, 8), "1.2B, 4 x 2048": (4, 2048, 4)}  # rows, length, micro batches

COLUMNS = (
    "shape",
    "variant",
    "TFLOP/s",
    "lowest to highest",
    "MFU",
    "x plain PyTorch",
    "x Megatron-LM local",
    "peak MiB",
    "first step s",
)
ELAPSED = re.compile(r"elapsed time per iteration \(ms\): ([\d.]+)")
THROUGHPUT = re.compile(r"throughput per GPU \(TFLOP/s/GPU\): ([\d.]+)")
PEAK = re.compile(r"max allocated: ([\d.]+)")


def run(shape, options, iterations, log):
    values = {**SHAPES[shape], "train.train_iters": iterations}
    started, first = time.monotonic(), None
    lines = []
    command = golden_runs.command(values, options, log.with_suffix(""))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout:
            lines.append(line)
            if first is None and "iteration        1/" in line:
                first = time.monotonic() - started
    text = "".join(lines)
    log.write_text(text)
    if process.returncode:
        return None, text[-600:]
    rates = [float(found) for found in THROUGHPUT.findall(text)]
    times = [float(found) for found in ELAPSED.findall(text)]
    peak = max((float(found) for found in PEAK.findall(text)), default=0.0)
    losses = golden_runs.read_lines(text)
    row = {
        "rate": statistics.median(rates[3:]),
        "spread": f"{min(rates[3:]):.0f} to {max(rates[3:]):.0f}",
        "peak": peak,
        "first": first,
        "losses": (float(losses[0][1]), float(losses[-1][1])),
        "step_tflop": rates[0] * times[0] / 1000,
    }
    return row, ""


def run_plain(shape, iterations, step_tflop):
    """Return the TFLOP/s of the plain loop, its peak MiB and its first step's seconds."""
    command = [sys.executable, str(ROOT / "bench" / "plain_torch.py"), *map(str, PLAIN[shape]), str(iterations)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout.splitlines()[-1])
    return step_tflop / statistics.median(figures["ms"][3:]) * 1000, figures["peak_mib"], figures["ms"][0] / 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--logs", type=Path, default=Path("bench-out"))
    arguments = parser.parse_args()
    if not has_cuda():
        print("no CUDA device: nothing measured (the figures of docs/reference/engine-speed.md are from one H200)")
        return
    arguments.logs.mkdir(parents=True, exist_ok=True)
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    losses = []
    for shape, variants in VARIANTS.items():
        plain = None
        for variant, options in variants.items():
            name = f"{shape} {variant}"
            if not all(word in name for word in arguments.words):
                continue
            log = arguments.logs / f"{re.sub(r'[^a-z0-9]+', '_', name)}.log"
            row, error = run(shape, options, arguments.iterations, log)
            if row is None:
                print(f"| {shape} | {variant} | fails: {error} |", flush=True)
                continue
            losses.append((name, *row["losses"]))
            if variant == "default" and shape in PLAIN:
                plain, peak, first = run_plain(shape, arguments.iterations, row["step_tflop"])
                print_row(shape, "plain PyTorch, compiled", plain, "", plain, peak, first)
            print_row(shape, variant, row["rate"], row["spread"], plain, row["peak"], row["first"])
    for name, first, last in losses:
        print(f"{name}: loss {first:.4f} at the first iteration, {last:.4f} at the last")


def print_row(shape, variant, rate, spread, plain, peak, first):
    known = MEGATRON_LM_TFLOPS.get(shape)
    against_plain = f"{rate / plain:.3f}" if plain else ""
    against_known = f"{rate / known:.2f}" if known else ""
    mfu = f"{rate / DENSE_BF16_PEAK_TFLOPS:.1%}"
    cells = (shape, variant, f"{rate:.1f}", spread, mfu, against_plain, against_known, f"{peak:.0f}", f"{first:.1f}")
    print(f"| {' | '.join(cells)} |", flush=True)


def has_cuda():
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


if __name__ == "__main__":
    main()
