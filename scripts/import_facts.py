"""Write the data files that no wheel contains, from tables of facts.

    python scripts/import_facts.py --tables DIR

`DIR` holds `fields.csv` (layer of change of each configuration path), `mlm_args.csv` (Megatron-LM options and the Bridge field
of each), `hf_configs/ORG__NAME.json` (configuration with `_sources`, `_confidence`, `_missing`) and `param_counts.json`
(parameters counted by instantiating a model without memory). Written are `layers.jsonl`, `option_mapping.jsonl` and
`models.jsonl`, which are from then on the reviewed form.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
from pathlib import Path
from typing import Any

from autorecipe.datafiles import data_file, write_lines

LAYERS = {"io_logging": "io"}
TOKENIZER_LENGTHS = {
    "google/gemma-2-2b": 256000,
    "google/gemma-2-9b": 256000,
    "google/gemma-2-27b": 256000,
    "google/gemma-3-1b-pt": 262145,
}


def main() -> None:
    """Convert every table that is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, required=True)
    arguments = parser.parse_args()
    write_lines(data_file("layers.jsonl"), layer_lines(arguments.tables / "fields.csv"))
    write_lines(data_file("models.jsonl"), model_lines(arguments.tables))
    write_lines(data_file("option_mapping.jsonl"), option_lines(arguments.tables / "mlm_args.csv"))


def layer_lines(path: Path) -> list[dict[str, Any]]:
    """One line per configuration path: layer of change, why, how sure, and who sets it where that is not the user."""
    lines: dict[str, dict[str, Any]] = {}
    for row in _rows(path):
        line: dict[str, Any] = {
            "path": row["path"],
            "layer": LAYERS.get(row["layer"], row["layer"]),
            "reason": row["reason"],
            "confidence": row["confidence"],
        }
        if row["settable"] != "user":
            line["settable"] = row["settable"]
        lines.setdefault(row["path"], line)
    return [lines[path] for path in sorted(lines)]


def option_lines(path: Path) -> list[dict[str, Any]]:
    """One line per option; empty cells are left out."""
    lines = []
    for row in _rows(path):
        line: dict[str, Any] = {
            "flag": row["flag"],
            "dest": row["dest"],
            "type": row["type"],
            "nargs": row["nargs"],
            "choices": row["choices"].split("|") if row["choices"] else [],
            "default": parse_default(row["default"]),
            "group": row["group"],
            "bridge_field": "" if row["bridge_field"] == "none" else row["bridge_field"],
            "transform": row["transform"],
            "map_source": row["map_source"],
            "layer": LAYERS.get(row["layer"], row["layer"]),
            "layer_reason": row["layer_reason"],
            "bridge_default": parse_default(row["bridge_class_default"]),
            "note": row["note"],
        }
        lines.append({name: value for name, value in line.items() if value not in ("", [], None) or name == "flag"})
    return sorted(lines, key=lambda line: str(line["flag"]))


def model_lines(tables: Path) -> list[dict[str, Any]]:
    """One line per Hugging Face id that has a configuration."""
    counts = json.loads((tables / "param_counts.json").read_text(encoding="utf-8"))
    lines = []
    for path in sorted((tables / "hf_configs").glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        hf_id = path.stem.replace("__", "/")
        line: dict[str, Any] = {
            "id": hf_id,
            "confidence": content["_confidence"],
            "sources": content["_sources"],
            "missing": content["_missing"],
            "num_parameters": counts.get(hf_id, {}).get("params"),
            "counted_class": counts.get(hf_id, {}).get("hf_class"),
            "tokenizer_length": TOKENIZER_LENGTHS.get(hf_id),
            "config": content["config"],
        }
        lines.append({name: value for name, value in line.items() if value is not None})
    return lines


def parse_default(text: str) -> Any:
    """Return the value a table cell stands for; text that is no literal stays text."""
    if text == "":
        return None
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return list(value) if isinstance(value, tuple) else value


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    main()
