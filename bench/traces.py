"""Trace the layouts of bench/layouts.py and write tests/golden/estimate/traces.jsonl, the judge of the closed form.

    python bench/traces.py [--only NAME]

Imports Megatron-Core once and forks one child for each layout, since a trace replaces functions of its process for good.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys

from layouts import LAYOUTS, TracedLayout

TARGET = pathlib.Path(__file__).resolve().parents[1] / "tests/golden/estimate/traces.jsonl"


def trace_in_child(layout: TracedLayout) -> dict[str, object]:
    """Trace one layout in a forked child and return its result."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        from autorecipe.engine.trace import trace_rank

        stages = layout.values.get("model.pipeline_model_parallel_size", 1)
        rank = layout.stage * (layout.gpus // stages)
        try:
            text = json.dumps(trace_rank({"values": dict(layout.values), "rank": rank, "world_size": layout.gpus}))
        except BaseException as error:
            text = json.dumps({"error": f"{type(error).__name__}: {error}"[:500]})
        with os.fdopen(write, "w") as stream:
            stream.write(text)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    result: dict[str, object] = json.loads(text or '{"error": "the child died"}')
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="layouts whose name contains this")
    parser.add_argument("--missing", action="store_true", help="only layouts that have no result yet")
    options = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    from autorecipe.engine import compat

    compat.prepare()
    import megatron.core.models.gpt
    import megatron.core.optimizer
    import megatron.core.pipeline_parallel  # noqa: F401 - imported once, before the children are forked

    TARGET.parent.mkdir(parents=True, exist_ok=True)
    known = {}
    if TARGET.exists():
        known = {row["name"]: row for row in map(json.loads, TARGET.read_text(encoding="utf-8").splitlines())}
    for layout in LAYOUTS:
        if options.only not in layout.name or (options.missing and layout.name in known):
            continue
        result = trace_in_child(layout)
        if "error" in result:
            print(f"{layout.name}: {result['error']}", file=sys.stderr, flush=True)
            continue
        print(f"{layout.name}: {result['activations_bytes'] / 1e9:.3f} GB of activations, {result['seconds']} s", flush=True)
        del result["seconds"]
        known[layout.name] = {"name": layout.name, **result}
        rows = [known[entry.name] for entry in LAYOUTS if entry.name in known]
        TARGET.write_text("".join(json.dumps(row, sort_keys=True) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
