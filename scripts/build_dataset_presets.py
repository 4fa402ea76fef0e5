"""Record the text fine-tuning data presets of a Megatron Bridge release and write them as JSON Lines.

    python scripts/build_dataset_presets.py WHEEL [WHEEL ...] --out src/autorecipe/data/dataset_presets.jsonl

Each wheel's `megatron/bridge/recipes/utils/dataset_utils.py` is executed with classes that only keep their arguments, and
every text preset is called. Recorded are the fields that a preset writes, and the defaults of the classes that it builds.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import types
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MODULE = "megatron/bridge/recipes/utils/dataset_utils.py"
TEXT = "GPTSFTDatasetConfig"
CLASSES = "megatron/bridge/data/"
"""Where the classes of a dataset section are declared."""

SEQUENCE = 4096
"""Length of the model that presets are called for; the field that takes it is left out of the rows."""


class Recorded:
    """Stands for any configuration class: keeps its keyword arguments."""

    def __init__(self, **given: Any) -> None:
        self.given = given

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "given":
            super().__setattr__(name, value)
        else:
            self.given[name] = value

    def __getattr__(self, name: str) -> Any:
        if name == "given":
            raise AttributeError(name)
        return self.given[name]


def evaluate(wheel: Path) -> list[dict[str, Any]]:
    """Return one row per text preset of a wheel."""
    release = wheel.name.split("-")[1]
    with zipfile.ZipFile(wheel) as archive:
        source = archive.read(MODULE).decode()
        declared = declare_classes(archive)
    tree = ast.parse(source)
    kept = [node for node in tree.body if not isinstance(node, ast.ImportFrom) or not str(node.module).startswith("megatron")]
    names = {alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    module = types.ModuleType("presets")
    sys.modules["presets"] = module
    module.__dict__.update({name: type(name, (Recorded,), {}) for name in names})
    exec(compile(ast.Module(body=kept, type_ignores=[]), MODULE, "exec"), module.__dict__)
    recipe = types.SimpleNamespace(model=types.SimpleNamespace(seq_length=SEQUENCE), dataset=None)
    rows = []
    for name, build in module.DATASET_PRESETS.items():
        try:
            preset = build(recipe)
        except ValueError:  # a preset that changes a multimodal recipe's own data
            continue
        if type(preset).__name__ == TEXT:
            fields = dict(flatten(preset, ""))
            fields.pop("seq_length")
            inner = {"": TEXT} | {path.removesuffix("_class"): name for path, name in fields.items() if path.endswith("._class")}
            defaults = {
                prefix + leaf: default
                for prefix, class_name in inner.items()
                for leaf, default in class_defaults(class_name, declared).items()
                if prefix + leaf not in fields and f"{prefix}{leaf}._class" not in fields
            }
            rows.append({"release": release, "name": name, "class": TEXT, "fields": fields, "defaults": defaults})
    return rows


def declare_classes(archive: zipfile.ZipFile) -> dict[str, ast.ClassDef]:
    """Return every class that the data package declares, by name."""
    found: dict[str, ast.ClassDef] = {}
    for name in archive.namelist():
        if name.startswith(CLASSES) and name.endswith(".py"):
            tree = ast.parse(archive.read(name))
            found |= {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    return found


def class_defaults(name: str, declared: dict[str, ast.ClassDef]) -> dict[str, Any]:
    """Return a dataclass's literal defaults, inherited ones first."""
    node = declared.get(name)
    if node is None:
        return {}
    defaults: dict[str, Any] = {}
    for base in node.bases:
        defaults |= class_defaults(base.id, declared) if isinstance(base, ast.Name) else {}
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.value is not None:
            defaults[item.target.id] = ast.literal_eval(item.value)
    return defaults


def flatten(section: Recorded, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield paths and values; a nested object also gives its class."""
    for name, value in section.given.items():
        if isinstance(value, Recorded):
            yield f"{prefix}{name}._class", type(value).__name__
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


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
