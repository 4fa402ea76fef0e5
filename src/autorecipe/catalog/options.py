"""The Megatron-LM option table of a release."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from autorecipe.catalog.files import read_lines
from autorecipe.schema.layer import Layer
from autorecipe.schema.option import MlmOption


def load_options(path: Path) -> Mapping[str, MlmOption]:
    """Return options by flag, in the order of upstream's help.

    Raises:
        EnvironmentProblem: the data file is missing or damaged.
    """
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
