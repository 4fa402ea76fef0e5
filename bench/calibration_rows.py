"""Derive from what each public measurement prints what it does not print: the age of its software, and the features that its
recipe or its publisher's scripts of that release switch on.

    python bench/calibration_rows.py             lists rows of data/calibration/throughput.jsonl that would change
    python bench/calibration_rows.py --write     writes them

Input are the shipped rows themselves: what a rule below decides is dropped from a row and derived anew from its source,
version, task, model and `policy_from`, so a new row needs only what its publisher prints. `python bench/time_fit.py --write`
fits the coefficients to the result, `python bench/estimators.py --write` publishes the errors.
"""

from __future__ import annotations

import argparse
import functools
import json
import pathlib
import re
from typing import Any

from autorecipe.api.resolve import resolve_run
from autorecipe.estimate.calibration import load_shapes
from autorecipe.estimate.inputs import read_inputs
from autorecipe.schema.estimate import ExecutionPolicy

ROWS = pathlib.Path(__file__).resolve().parents[1] / "src/autorecipe/data/calibration/throughput.jsonl"
RELEASE = "0.6.2"
"""Bridge release whose recipes the rows were read with."""

THIS_YEAR = 2026
DERIVED = ("software_year", "router_fusion", "graph_modules", "fused_experts", "fp8_attention", "packed_tokens")
"""Policy fields that rules decide for every row."""

PACKED_SQUAD_TOKENS = 200.0
"""Mean length of the packed documents of fine-tuning benchmarks, which use SQuAD. Evidence: assumed."""

EARLY_BRIDGE_DEEPSEEK = ("MBD-217", "MBD-180", "MBD-136")
NEMO = ("NVIDIA dgxc", "NeMo")

Row = dict[str, Any]


def derive(row: Row) -> Row:
    """Return a row with everything that rules decide derived anew."""
    policy = {name: value for name, value in row["policy"].items() if name not in DERIVED}
    row = {**row, "policy": policy}
    year = software_year(row)
    if year != THIS_YEAR:
        policy["software_year"] = year
    if row["policy_from"].startswith("recipe "):
        _from_recipe(row)
    elif load_shapes()[row["model"]].is_moe:
        _from_scripts(row)
    if row["id"] in EARLY_BRIDGE_DEEPSEEK:
        _early_bridge_deepseek(row)
    if row["source"].startswith(NEMO):
        _nemo(row)
    if row.get("task") in ("sft", "lora") and not row["source"].startswith("Megatron-Bridge model verification"):
        policy["packed_tokens"] = PACKED_SQUAD_TOKENS
    return row


def software_year(row: Row) -> int:
    """Return the year of the container or release that ran: from its version, else from what its source was."""
    version = row.get("version", "")
    if found := re.search(r"container (\d\d)\.", version):
        return 2000 + int(found[1])
    for text, year in (("container dev", 2024), ("container not found", 2025), ("r0.8.0", 2024)):
        if text in version:
            return year
    if found := re.match(r"(20\d\d)", version):
        return int(found[1])
    if release := _release(row):
        return 2000 + release[0]
    return 2025 if row["source"] == "Megatron-LM examples/llama" else THIS_YEAR


def _release(row: Row) -> tuple[int, int] | None:
    """Return (year, month) of a version such as `26.06` or `pytorch:24.03`."""
    found = re.match(r"(?:pytorch:)?(\d\d)\.(\d\d)", row.get("version", ""))
    return (int(found[1]), int(found[2])) if found else None


@functools.cache
def _recipe_policy(name: str) -> ExecutionPolicy:
    return read_inputs(resolve_run(name, (), release=RELEASE)).policy


def _from_recipe(row: Row) -> None:
    """What the recipe of the same name says; fused experts and 8-bit attention came with the releases of June 2026."""
    policy, recipe = row["policy"], _recipe_policy(row["policy_from"].removeprefix("recipe "))
    if recipe.router_fusion:
        policy["router_fusion"] = True
    if recipe.graph_modules and policy.get("cuda_graph") in ("te", "local"):
        policy["graph_modules"] = sorted(recipe.graph_modules)
    release = _release(row)
    if row["source"].startswith("Megatron-Bridge") and (release is None or release >= (26, 6)):
        if recipe.fused_experts and policy.get("precision") == "mxfp8":
            policy["fused_experts"] = True
        if recipe.fp8_attention:
            policy["fp8_attention"] = True


def _from_scripts(row: Row) -> None:
    """What publishers' scripts for mixtures of experts switch on where no recipe has the row's name."""
    policy, source, is_hybrid = row["policy"], row["source"], row["model"].startswith("nemotron")
    scripts = ("Megatron-LM examples/moe", "Megatron-MoE", "Megatron-LM PR")
    if source.startswith(scripts) or (source.startswith("Megatron-Bridge") and not is_hybrid):
        policy["router_fusion"] = True
    if policy.get("cuda_graph") == "te":
        policy["graph_modules"] = ["attn", "moe_preprocess", "moe_router", *(("mamba",) if is_hybrid else ())]
    is_example = source.startswith("Megatron-LM examples/moe")
    if is_example and policy.get("cuda_graph") == "full" and policy.get("precision") == "mxfp8":
        policy["fused_experts"] = True


def _early_bridge_deepseek(row: Row) -> None:
    row["policy"] |= {
        "dispatcher": "hybridep",
        "cuda_graph": "none",
        "recompute": {"granularity": "selective", "method": "uniform", "modules": ["mla_up_proj"], "num_layers": 1},
        "split": {"explicit": [4] * 15 + [1], "mtp_chunk": 15},
    }
    row["policy"].pop("graph_modules", None)
    row["policy_from"] = (
        "assumed (Bridge performance configuration of early 2026: PP16, HybridEP, MLA up-projection recomputed, its layer layout)"
    )


def _nemo(row: Row) -> None:
    """What NeMo's performance scripts of 2025 set for mixtures of experts."""
    policy, model = row["policy"], row["model"]
    if model == "deepseek_v3" and row["source"].startswith("NVIDIA dgxc"):
        each = 64 // row["layout"]["pp"]
        policy |= {"permute_fusion": True, "capacity_factor": 1.0, "split": {"first": each - 1, "last": each - 2}}
        row["policy_from"] = (
            "assumed (NeMo 25.x performance script: token drop at capacity 1, fused permutation, its first and last stage)"
        )
    elif model in ("grok1_314b", "mixtral_8x7b"):
        policy |= {"permute_fusion": True, "capacity_factor": 1.0}
        if model == "grok1_314b":
            policy["tp_comm_overlap"] = True
        row["policy_from"] = "assumed (NeMo 25.x performance recipe: token drop at capacity 1)"
    elif model.startswith("llama4"):
        policy["permute_fusion"] = True


def load_rows() -> list[Row]:
    """Return the shipped rows as they are written."""
    return [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write data/calibration/throughput.jsonl")
    options = parser.parse_args()
    rows = load_rows()
    derived = [derive(row) for row in rows]
    for old, new in zip(rows, derived, strict=True):
        if old != new:
            names = sorted(
                name for name in {*old["policy"], *new["policy"]} if old["policy"].get(name) != new["policy"].get(name)
            )
            print(f"{old['id']} {old['model']}: {', '.join(names) or 'policy_from'}")
    print(f"{sum(old != new for old, new in zip(rows, derived, strict=True))} of {len(rows)} rows differ")
    if options.write:
        ROWS.write_text("".join(json.dumps(row, sort_keys=True) + "\n" for row in derived), encoding="utf-8")


if __name__ == "__main__":
    main()
