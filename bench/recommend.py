"""Latency of an answer: cold (a new process, imports included) and warm (the same process, catalog read).

    python bench/recommend.py [--repeat 5]

Prints one row per question. CPU time is user + system; wall time depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time

from autorecipe.api.recommend import recommend

QUESTIONS = (
    ("as shipped", "Llama 3 8B pretraining on 8 H100"),
    ("resized", "llama3_8b_128k_pretrain_config on 16 H100"),
    ("long search, no", "llama31_405b_pretrain_config on 128 H100"),
    ("MoE", "Qwen3 30B-A3B SFT on 8 H100"),
    ("benchmark", "benchmark DeepSeek V3 on 256 GB200"),
    ("four at once", "Qwen3 30B-A3B SFT on 16 H100; Qwen3 235B-A22B PEFT on 16 H100; Llama3 8B 128K pretrain; first-time tryout"),
)


def measure_cold(question: str, repeat: int) -> tuple[float, float]:
    """Return median (wall, CPU) seconds of a process that answers once."""
    rows = []
    for _ in range(repeat):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "autorecipe", "recommend", question], stdout=subprocess.DEVNULL, check=False)
        wall = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        rows.append((wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    return statistics.median(row[0] for row in rows), statistics.median(row[1] for row in rows)


def measure_warm(question: str, repeat: int) -> tuple[float, float]:
    """Return median (wall, CPU) seconds of an answer in this process."""
    recommend(question)
    rows = []
    for _ in range(repeat):
        start, cpu = time.perf_counter(), time.process_time()
        recommend(question)
        rows.append((time.perf_counter() - start, time.process_time() - cpu))
    return statistics.median(row[0] for row in rows), statistics.median(row[1] for row in rows)


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    heads = " ".join(f"{head:>10}" for head in ("cold wall", "cold CPU", "warm wall", "warm CPU"))
    print(f"{'answer':<16} {heads} {'cold/warm CPU':>14}   (milliseconds, medians)")
    for name, question in QUESTIONS:
        cold, warm = measure_cold(question, repeat), measure_warm(question, repeat)
        cells = " ".join(f"{1000 * value:10.1f}" for value in (*cold, *warm))
        print(f"{name:<16} {cells} {cold[1] / warm[1]:14.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
