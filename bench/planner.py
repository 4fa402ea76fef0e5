"""Planner: candidates a second, time of whole answers, and how shipped layouts fare against the planner's best.

Prints two tables. Speed is wall clock and CPU time of the search in this process, and CPU time (user and system) of the whole
command in a new one; the second table compares, recipe by recipe, the layout that
a benchmark recipe ships with the best one the planner finds under the same convergence (share within 10% of the best).

Usage: python bench/planner.py [--recipes N] [--seed S]
"""

from __future__ import annotations

import argparse
import collections
import random
import resource
import statistics
import subprocess
import sys
import time

from autorecipe.api.plan import PlanQuestion, plan_run, prepare_request
from autorecipe.catalog.store import open_catalog
from autorecipe.errors import AutorecipeError
from autorecipe.plan.coster import Coster
from autorecipe.plan.explain import find_refusal
from autorecipe.plan.planner import shipped_candidate
from autorecipe.plan.search import search
from autorecipe.schema.estimate import Verdict
from autorecipe.units import GIB

ANSWERS = (
    ("llama3_8b_pretrain_config", 8, "h100"),
    ("qwen3_30b_a3b_pretrain_config", 16, "h100"),
    ("llama31_405b_pretrain_config", 512, "h100"),
    ("qwen3_235b_a22b_pretrain_config", 256, "h100"),
    ("deepseek_v3_pretrain_config", 2048, "h100"),
)


def measure_answers() -> None:
    print(
        f"{'recipe':36} {'GPUs':>5} {'candidates':>11} {'wall s':>7} {'CPU s':>6} {'cand/CPU s':>11} {'command CPU s':>13}  best"
    )
    for recipe, gpus, gpu in ANSWERS:
        request, _ = prepare_request(PlanQuestion(recipe=recipe, num_gpus=gpus, gpu=gpu))
        cpu = time.process_time()
        result = search(request)
        cpu = time.process_time() - cpu
        count = result.count
        best = result.fitting[0].candidate.render() if result.fitting else "nothing fits"
        print(
            f"{recipe:36} {gpus:5} {count.considered:11,} {count.seconds:7.2f} {cpu:6.2f} {count.considered / cpu:11,.0f} "
            f"{command_seconds(recipe, gpus, gpu):13.2f}  {best}"
        )


def command_seconds(recipe: str, gpus: int, gpu: str) -> float:
    """CPU seconds, user and system, of the whole command in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "autorecipe", "plan", recipe, "--gpus", str(gpus), "--gpu", gpu]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def reference_seconds() -> float:
    """CPU seconds of a million additions, to which the figures above can be related on another machine."""
    started = time.process_time()
    total = 0
    for number in range(1_000_000):
        total += number
    return time.process_time() - started


def compare_shipped(limit: int, seed: int) -> None:
    summaries = {
        summary.name: summary
        for summary in open_catalog().summaries()
        if summary.kind == "benchmark" and summary.alias_of is None and summary.status == "ok" and summary.gpus
        if summary.modality == "text"
    }
    names = sorted(summaries)
    if limit and limit < len(names):
        names = sorted(random.Random(seed).sample(names, limit))
    rows, notes = [], []
    verdicts: collections.Counter[str] = collections.Counter()
    for name in names:
        summary = summaries[name]
        question = PlanQuestion(recipe=name, num_gpus=summary.gpus, gpu=summary.gpu_type or "h100")
        try:
            request, _ = prepare_request(question)
        except AutorecipeError as error:
            verdicts["not estimated"] += 1
            notes.append(f"{name}: not estimated: {error}")
            continue
        candidate = shipped_candidate(request, request.layout)
        refusal = find_refusal(request, candidate)
        if refusal:
            verdicts["refused"] += 1
            notes.append(f"{name}: refused: {refusal}")
            continue
        coster = Coster(request)
        shipped = coster.score(candidate)
        verdicts[shipped.verdict.value] += 1
        if shipped.verdict is Verdict.OOM:
            peak, capacity = shipped.peak / GIB, request.cluster.gpu.usable_memory[1] / GIB
            notes.append(f"{name}: predicted OOM: {peak:.1f} of {capacity:.1f} GiB, {candidate.render()}")
        choices = plan_run(question, top=1).choices  # which every rule accepts, too
        if not choices:
            rows.append((1.0, name, "", ""))
            continue
        best = coster.score(choices[0].candidate)
        mine, theirs = coster.breakdown(candidate), coster.breakdown(best.candidate)
        parts = sorted(mine, key=lambda part: mine[part] - theirs.get(part, 0.0), reverse=True)[:2]
        why = ", ".join(f"{part} {mine[part]:.3g} s against {theirs.get(part, 0.0):.3g} s" for part in parts)
        ratio = shipped.seconds / min(best.seconds, shipped.seconds)
        rows.append((ratio, name, f"{candidate.render()} ({shipped.verdict.value})", f"{best.candidate.render()}: {why}"))
    within = sum(ratio <= 1.10 for ratio, *_ in rows)
    print(f"\nbenchmark recipes looked at: {len(names)}; " + ", ".join(f"{key}: {count}" for key, count in verdicts.items()))
    print(f"shipped within 10% of the planner's best: {within} of {len(rows)} ({100 * within / max(1, len(rows)):.0f}%)")
    print(f"shipped / best, median: {statistics.median(ratio for ratio, *_ in rows):.3f}")
    for ratio, name, shipped_text, best_text in sorted(rows, reverse=True):
        if ratio > 1.10:
            print(f"  {ratio:5.2f}  {name}\n         ships {shipped_text}\n         best  {best_text}")
    for line in notes:
        print(f"  {line[:180]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipes", type=int, default=40, help="benchmark recipes compared (default 40; -1: all; 0: none)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    measure_answers()
    print(f"a million additions take {reference_seconds():.3f} CPU s")
    if arguments.recipes:
        compare_shipped(max(0, arguments.recipes), arguments.seed)


if __name__ == "__main__":
    main()
