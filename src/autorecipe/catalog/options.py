"""The Megatron-LM option table of a release: its own parser, joined with the reviewed mapping to Bridge fields."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from autorecipe.datafiles import FilePath, data_file, read_lines
from autorecipe.errors import EnvironmentProblem, Problem
from autorecipe.schema.layer import Layer
from autorecipe.schema.option import MlmOption

MAPPING = data_file("option_mapping.jsonl")
"""Bridge field, transform and layer by flag, with the options of Megatron-LM main of 2026-08-22 (d98e8a64)."""

MAPPING_CORE = "0.19"
"""Newest Megatron-Core line that the mapping was made beside; its table also lists what main had added since."""

MAPPED = ("bridge_field", "transform", "map_source", "layer", "layer_reason", "bridge_default", "note")


def option_lines(options: Iterable[Mapping[str, Any]], *, core_release: str) -> list[dict[str, Any]]:
    """Return one line per option of a tree in its own order, with what the mapping knows of it.

    Args:
        options: as the tree's parser declares them.
        core_release: release of the tree.
    """
    mapping = {line["flag"]: line for line in read_lines(MAPPING)}
    by_spelling = {spelling: line for flag, line in mapping.items() for spelling in flag.split()}
    lines: list[dict[str, Any]] = []
    used: set[str] = set()
    for option in options:
        known = next((by_spelling[name] for name in option["flag"].split() if name in by_spelling), {})
        used.add(known.get("flag", ""))
        facts = {name: value for name, value in option.items() if value is not None}
        lines.append({**facts, **{name: known[name] for name in MAPPED if name in known}})
    if core_release.startswith(f"{MAPPING_CORE}."):
        for flag, line in mapping.items():
            if flag not in used:
                note = f"newer than Megatron-Core {core_release}; {line.get('note', '')}".removesuffix("; ")
                lines.append({**line, "note": note})
    return lines


def load_options(path: FilePath) -> Mapping[str, MlmOption]:
    """Return options by flag; one with several spellings has them all in its flag, joined with spaces.

    Raises:
        EnvironmentProblem: the release has no option table, or it is damaged.
    """
    if not Path(path).is_file():
        raise EnvironmentProblem(
            Problem(
                code="no-options",
                path=os.fspath(path),
                message="this release has no Megatron-LM option table: its Megatron-Core tree has no argument parser",
                hint="build it with --core MEGATRON-LM-CHECKOUT, or take a shipped release",
            )
        )
    return {
        line["flag"]: MlmOption(
            flag=line["flag"],
            dest=line["dest"],
            type=line["type"],
            nargs=line.get("nargs", ""),
            choices=tuple(line.get("choices", ())),
            default=line.get("default"),
            group=line.get("group", ""),
            bridge_field=line.get("bridge_field", ""),
            transform=line.get("transform", "none"),
            layer=Layer(line["layer"]) if "layer" in line else None,
            layer_reason=line.get("layer_reason", ""),
            bridge_default=line.get("bridge_default"),
            note=line.get("note", ""),
        )
        for line in read_lines(path)
    }
