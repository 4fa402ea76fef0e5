"""Throughput of the engine on one CUDA GPU: TFLOP/s (Megatron-LM's formula), MFU, peak memory, time to the first step.

`python bench/engine.py [WORD ...] [--iterations N] [--logs FOLDER]` runs the rows whose names contain all the words, each in a
process of its own through scripts/training/run_recipe.py, and prints one table. Without a CUDA device it says so and ends.
"""

import argparse
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
        "fused": [],
        "fused, flash attention": ["engine.attention_kernel=flash"],
        "without fused loss": ["engine.fused_loss=off"],
        "without fused gradients": ["engine.fused_grad=off"],
        "without fused layers": ["engine.fused_layers=off"],
        "nothing fused": ["engine.fused_loss=off", "engine.fused_grad=off", "engine.fused_layers=off"],
        "full recompute": [
            "model.recompute_granularity=full",
            "model.recompute_method=uniform",
            "model.recompute_num_layers=1",
        ],
    },
    "1.2B, 4 x 2048": {"fused": []},
    "8 experts, top 2, 1 x 4096": {"fused": [], "one module per expert": ["model.moe_grouped_gemm=false"]},
}

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
    rates = [float(found) for found in THROUGHPUT.findall(text)][3:]
    peak = max((float(found) for found in PEAK.findall(text)), default=0.0)
    losses = golden_runs.read_lines(text)
    return (statistics.median(rates), peak, first, losses[0][1], losses[-1][1]), ""


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
    print("| shape | variant | TFLOP/s | MFU | x Megatron-LM local | peak MiB | first step s | loss 1 | last loss |")
    print("|---|---|---|---|---|---|---|---|---|")
    for shape, variants in VARIANTS.items():
        for variant, options in variants.items():
            name = f"{shape} {variant}"
            if not all(word in name for word in arguments.words):
                continue
            result, error = run(shape, options, arguments.iterations, arguments.logs / f"{re.sub(r'[^a-z0-9]+', '_', name)}.log")
            if result is None:
                print(f"| {shape} | {variant} | fails: {error} |", flush=True)
                continue
            rate, peak, first, loss, last = result
            known = MEGATRON_LM_TFLOPS.get(shape)
            ratio = f"{rate / known:.2f}" if known else ""
            print(
                f"| {shape} | {variant} | {rate:.1f} | {rate / DENSE_BF16_PEAK_TFLOPS:.1%} | {ratio} | {peak:.0f} | {first:.1f} "
                f"| {float(loss):.4f} | {float(last):.4f} |",
                flush=True,
            )


def has_cuda():
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


if __name__ == "__main__":
    main()
