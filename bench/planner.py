"""Planner: candidates a second, time of whole answers, and how shipped layouts fare against the planner's best.

Prints two tables. Speed is wall clock and CPU time of one process; the second table compares, recipe by recipe, the layout that
a benchmark recipe ships with the best one the planner finds under the same convergence (share within 10% of the best).

Usage: python bench/planner.py [--recipes N] [--seed S]
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

from autorecipe.api.plan import PlanQuestion, prepare_request
from autorecipe.catalog.store import open_catalog
from autorecipe.errors import AutorecipeError
from autorecipe.plan.explain import find_refusal, score
from autorecipe.plan.planner import shipped_candidate
from autorecipe.plan.search import Coster, search
from autorecipe.schema.estimate import Verdict

ANSWERS = (
    ("llama3_8b_pretrain_config", 8, "h100"),
    ("qwen3_30b_a3b_pretrain_config", 16, "h100"),
    ("llama31_405b_pretrain_config", 512, "h100"),
    ("qwen3_235b_a22b_pretrain_config", 256, "h100"),
    ("deepseek_v3_pretrain_config", 2048, "h100"),
)


def measure_answers() -> None:
    print(f"{'recipe':36} {'GPUs':>5} {'candidates':>11} {'wall s':>7} {'CPU s':>6} {'cand/CPU s':>11}  best")
    for recipe, gpus, gpu in ANSWERS:
        request, _ = prepare_request(PlanQuestion(recipe=recipe, num_gpus=gpus, gpu=gpu))
        cpu = time.process_time()
        result = search(request)
        cpu = time.process_time() - cpu
        count = result.count
        best = result.fitting[0].candidate.render() if result.fitting else "nothing fits"
        print(
            f"{recipe:36} {gpus:5} {count.considered:11,} {count.seconds:7.2f} {cpu:6.2f} {count.considered / cpu:11,.0f}  {best}"
        )


def compare_shipped(limit: int, seed: int) -> None:
    catalog = open_catalog()
    names = [
        summary.name
        for summary in catalog.summaries()
        if summary.kind == "benchmark" and summary.alias_of is None and summary.status == "ok" and summary.gpus
        if summary.modality == "text"
    ]
    if limit < len(names):
        names = sorted(random.Random(seed).sample(names, limit))
    ratios, refused, oom, failed = [], [], [], []
    for name in names:
        summary = next(item for item in catalog.summaries() if item.name == name)
        try:
            request, _ = prepare_request(PlanQuestion(recipe=name, num_gpus=summary.gpus, gpu=summary.gpu_type or "h100"))
            candidate = shipped_candidate(request, request.layout)
            if find_refusal(request, candidate):
                refused.append(name)
                continue
            shipped = score(request, candidate, Coster(request))
            if shipped.verdict is Verdict.OOM:
                oom.append(name)
            found = search(request, keep=1).fitting
        except AutorecipeError as error:
            failed.append(f"{name}: {error}")
            continue
        if found:
            ratios.append((shipped.seconds / min(found[0].seconds, shipped.seconds), name, found[0].candidate.render()))
    within = sum(ratio <= 1.10 for ratio, _, _ in ratios)
    print(f"\nbenchmark recipes looked at: {len(names)}")
    print(f"layout refused on its own GPU count: {len(refused)}; not estimated: {len(failed)}")
    if ratios:
        print(f"shipped layout predicted OOM: {len(oom)}")
        print(f"shipped within 10% of the planner's best: {within} of {len(ratios)} ({100 * within / len(ratios):.0f}%)")
        print(f"shipped / best, median: {statistics.median(ratio for ratio, _, _ in ratios):.3f}")
        for ratio, name, best in sorted(ratios, reverse=True)[:10]:
            print(f"  {ratio:5.2f}  {name}  best: {best}")
    for line in [*failed, *(f"{name}: predicted OOM" for name in oom)][:10]:
        print(f"  {line[:160]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipes", type=int, default=40, help="benchmark recipes compared (default 40; 0: none)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    measure_answers()
    if arguments.recipes:
        compare_shipped(arguments.recipes, arguments.seed)


if __name__ == "__main__":
    main()
