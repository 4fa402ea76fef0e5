"""Evaluate the mixed-precision presets of Megatron Bridge releases and write them as JSON Lines.

    python scripts/build_precision_presets.py WHEEL [WHEEL ...] --out src/autorecipe/data/precision_presets.jsonl

Each wheel's `megatron/bridge/training/mixed_precision.py` is executed with stand-ins for the four modules it imports, every
registered preset is called, and its fields are recorded. Needs torch, nothing else.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import types
import zipfile
from pathlib import Path

MODULE = "megatron/bridge/training/mixed_precision.py"


def stand_in(name: str, **attributes: object) -> types.ModuleType:
    """Install an importable module that has just these attributes."""
    module = types.ModuleType(name)
    module.__dict__.update(attributes)
    module.__path__ = []
    sys.modules[name] = module
    return module


def evaluate(wheel: Path) -> list[dict[str, object]]:
    """Return one row per preset of a wheel."""
    release = wheel.name.split("-")[1]
    with zipfile.ZipFile(wheel) as archive:
        source = archive.read(MODULE).decode()
    for name in ("megatron", "megatron.core", "megatron.bridge"):
        stand_in(name)
    stand_in("megatron.core.distributed", DistributedDataParallelConfig=type("DistributedDataParallelConfig", (), {}))
    stand_in("megatron.core.optimizer", OptimizerConfig=type("OptimizerConfig", (), {}))
    stand_in("megatron.core.utils", is_te_min_version=lambda *_: True)
    names = ("GPTModelProvider", "T5ModelProvider", "MambaModelProvider", "HybridModelProvider")
    stand_in("megatron.bridge.models", **{name: type(name, (), {}) for name in names})
    module = stand_in(f"presets_{release.replace('.', '_')}")
    exec(compile(source, MODULE, "exec"), module.__dict__)
    rows = []
    for name, build in sorted(module.MIXED_PRECISION_RECIPES.items()):
        if "-" in name:  # each is registered under both spellings
            continue
        preset = build()
        preset.finalize()
        fields = {field.name: plain(getattr(preset, field.name)) for field in dataclasses.fields(preset)}
        rows.append({"release": release, "name": name, "fields": fields})
    return rows


def plain(value: object) -> object:
    """Spell a value as the catalog does: dtypes are text."""
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def main() -> None:
    """Write the rows of every wheel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", nargs="+", type=Path, help="Megatron Bridge wheels, oldest first")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    options = parser.parse_args()
    rows = [row for wheel in options.wheels for row in evaluate(wheel)]
    options.out.write_text("".join(json.dumps(row, sort_keys=True) + "\n" for row in rows), encoding="utf-8")
    print(f"wrote {len(rows)} presets to {options.out}")


if __name__ == "__main__":
    main()
