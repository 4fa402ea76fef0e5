"""How long all rules take on all recipes: `python bench/rules.py [--repeat N]`.

Aim: the whole catalog in under 5 seconds. Recipes are resolved before the clock starts; CPU time is printed beside wall time,
because other work on the machine moves the latter.
"""

from __future__ import annotations

import argparse
import time

from autorecipe.catalog.hardware import load_gpus, make_cluster
from autorecipe.catalog.store import open_catalog
from autorecipe.config.resolve import resolve_config
from autorecipe.rules.check import judge
from autorecipe.rules.registry import all_rules, applicable_rules
from autorecipe.rules.situation import Situation

AIM_S = 5.0


def load_situations() -> list[Situation]:
    catalog = open_catalog()
    schema, gpus = catalog.schema(), load_gpus()
    situations = []
    for name in catalog.names():
        recipe = catalog.load(name)
        if recipe.status != "ok":
            continue
        known = recipe.gpus is not None and recipe.gpu_type in gpus
        situations.append(
            Situation(
                config=resolve_config(recipe, schema, world_size=recipe.gpus),
                cluster=make_cluster(str(recipe.gpu_type), recipe.gpus or 1) if known else None,
            )
        )
    return situations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    start = time.perf_counter()
    all_rules()
    loading = time.perf_counter() - start
    start = time.perf_counter()
    situations = load_situations()
    resolving = time.perf_counter() - start
    judge(situations[0], verify=False)
    walls, cpus, findings = [], [], 0
    for _ in range(repeat):
        wall, cpu = time.perf_counter(), time.process_time()
        findings = sum(len(judge(situation, verify=False)) for situation in situations)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    context = situations[0].context()
    rules = len(applicable_rules(context.framework, context.core, context.bridge))
    best, cpu = min(walls), min(cpus)
    print(f"{'what':34} {'value':>12}")
    print(f"{'rules declared / applicable':34} {f'{len(all_rules())} / {rules}':>12}")
    print(f"{'importing rules':34} {loading:>10.2f} s")
    print(f"{'recipe names resolved':34} {len(situations):>12}")
    print(f"{'resolving them':34} {resolving:>10.2f} s")
    print(f"{'all rules on all of them, wall':34} {best:>10.2f} s")
    print(f"{'all rules on all of them, CPU':34} {cpu:>10.2f} s")
    print(f"{'one configuration, CPU':34} {cpu / len(situations) * 1e3:>9.2f} ms")
    print(f"{'findings':34} {findings:>12}")
    print(f"{'of the aim of 5 s, wall / CPU':34} {f'{best / AIM_S:.0%} / {cpu / AIM_S:.0%}':>12}")


if __name__ == "__main__":
    main()
