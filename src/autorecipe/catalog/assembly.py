"""Turns the events of an evaluation into the files of a release directory.

Files: `release.json` (what was evaluated, with what, what is broken), `summaries.jsonl` (one row per exported name),
`recipes/KIND-FAMILY.jsonl` (one canonical recipe a line), `bases.jsonl` and `schema.jsonl`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autorecipe.catalog.declarations import schema_lines, subclasses_of
from autorecipe.catalog.naming import LIBRARY_SUFFIX, modality_of, mode_of, parse_name
from autorecipe.catalog.options import option_lines
from autorecipe.catalog.records import (
    HABITS,
    Base,
    BaseTable,
    add_common,
    common_bases,
    needed_bases,
    shared_values,
    subtract_common,
)
from autorecipe.catalog.summaries import COLUMNS, SUMMARIES, write_rows
from autorecipe.config.views import view_layout, view_seq_length
from autorecipe.datafiles import write_lines
from autorecipe.record import dataclass, field
from autorecipe.schema.run import RunConfig

MINIMUM_GROUP = 8
"""Recipes of one kind and mode from which on it pays to store shared values once."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a catalog was made from.

    Attributes:
        release: Bridge release.
        core_release: Megatron-Core release.
        bridge_digest: SHA-256 over the Bridge tree.
        core_digest: SHA-256 over the Megatron-Core tree.
        config_digests: Hugging Face id -> SHA-256 of its configuration.
        config_origins: Hugging Face id -> where the configuration came from, where that is not the shipped one.
        only: the recipes that were asked for; empty for all of the tree.
    """

    release: str
    core_release: str
    bridge_digest: str
    core_digest: str
    config_digests: Mapping[str, str] = field(default_factory=dict)
    config_origins: Mapping[str, str] = field(default_factory=dict)
    only: tuple[str, ...] = ()


@dataclass
class Evaluation:
    """Everything that the workers reported.

    Attributes:
        records: function key -> record.
        bases: base id -> raw description.
        broken_modules: module -> why it could not be imported.
        versions: Python, torch, transformers and Megatron-Core in the subprocess.
        standins: packages that were stand-ins.
        sections: path -> ids of the classes that may stand there, recipes or not.
        options: Megatron-LM options of the tree.
        no_options: why there are none.
        presets: mixed-precision presets of the tree.
    """

    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    bases: dict[str, dict[str, Any]] = field(default_factory=dict)
    broken_modules: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    standins: set[str] = field(default_factory=set)
    sections: dict[str, list[str]] = field(default_factory=dict)
    options: list[dict[str, Any]] = field(default_factory=list)
    no_options: str = ""
    presets: list[dict[str, Any]] = field(default_factory=list)


def write_release(directory: Path, evaluation: Evaluation, inputs: Inputs) -> dict[str, Any]:
    """Write the files of a release into an empty directory; return the content of `release.json`."""
    _name_models(evaluation)
    bases = _stored_bases(evaluation.bases)
    table = BaseTable(bases)
    records = [evaluation.records[key] for key in sorted(evaluation.records)]
    on_by_index = {index: needed_bases(table, record["bases"]) for index, record in enumerate(records) if "fields" in record}
    _add_habits(bases, records, on_by_index)
    common = common_bases(list(on_by_index.values()))
    keys = _keys(records)
    rows: list[list[Any]] = []
    files: dict[str, list[dict[str, Any]]] = {}
    for index, record in enumerate(records):
        line = _recipe_line(record, keys[index], inputs)
        if index in on_by_index:
            line |= _stored_fields(table, record, on_by_index[index], common)
        line |= {"notes": _notes(record)}
        files.setdefault(f"{record['kind']}-{line['family']}.jsonl", []).append(line)
        rows += _summary_rows(record, line, keys[index])
    for name, lines in files.items():
        write_lines(directory / "recipes" / name, sorted(lines, key=lambda item: str(item["name"])))
    used = _used_bases(table, files, common)
    write_lines(directory / "bases.jsonl", [_base_line(base_id, table.bases[base_id]) for base_id in sorted(used)])
    rows.sort(key=lambda row: str(row[0]))
    write_rows(directory / SUMMARIES, rows)
    write_lines(directory / "schema.jsonl", schema_lines(evaluation.bases, evaluation.sections, records))
    if evaluation.options:
        write_lines(directory / "options.jsonl", option_lines(evaluation.options, core_release=inputs.core_release))
    if evaluation.presets:
        write_lines(directory / "presets.jsonl", evaluation.presets)
    meta = _meta(records, rows, evaluation, inputs, common)
    (directory / "release.json").write_text(json.dumps(meta, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return meta


def _name_models(evaluation: Evaluation) -> None:
    """Replace digests in the ids of model bases: the most used form of a model has none, others are numbered."""
    uses: dict[str, int] = {}
    for record in evaluation.records.values():
        base_id = record.get("bases", {}).get("model", "")
        uses[base_id] = uses.get(base_id, 0) + 1
    forms: dict[str, list[str]] = {}
    for base_id in evaluation.bases:
        if base_id.startswith("model:"):
            forms.setdefault(base_id.rpartition("~")[0], []).append(base_id)
    names: dict[str, str] = {}
    for model, ids in forms.items():
        ids.sort(key=lambda base_id: (-uses.get(base_id, 0), base_id))
        names |= {base_id: model if number == 1 else f"{model}~{number}" for number, base_id in enumerate(ids, start=1)}
    evaluation.bases = {names.get(base_id, base_id): description for base_id, description in evaluation.bases.items()}
    for record in evaluation.records.values():
        bases = record.get("bases", {})
        if "model" in bases:
            bases["model"] = names.get(bases["model"], bases["model"])


def _add_habits(bases: dict[str, Base], records: list[dict[str, Any]], on_by_index: dict[int, dict[str, str]]) -> None:
    """Let recipes of one kind and mode stand on the values that most of them share."""
    table = BaseTable(bases)
    groups: dict[str, list[int]] = {}
    for index in on_by_index:
        mode = mode_of(records[index]["name"])
        groups.setdefault(f"habits:{records[index]['kind']}-{mode.value if mode else 'other'}", []).append(index)
    for base_id, members in groups.items():
        if len(members) >= MINIMUM_GROUP:
            differences = [table.compress(on_by_index[index], records[index]["fields"]) for index in members]
            bases[base_id] = shared_values(differences)
            for index in members:
                on_by_index[index][HABITS] = base_id


def _stored_bases(raw: Mapping[str, Mapping[str, Any]]) -> dict[str, Base]:
    """Classes as differences from the class they inherit from, models as differences from their class, presets as they are."""
    stored: dict[str, Base] = {}
    table = BaseTable(stored)

    def store(base_id: str) -> None:
        if base_id in stored:
            return
        description = raw[base_id]
        start = description.get("parent") or description["on"].get("", "")
        if start:
            store(start)
        base = table.compress({"": start} if start else {}, description["fields"])
        inherited = raw[start].get("types", {}) if start else {}
        types = {name: kind for name, kind in description.get("types", {}).items() if inherited.get(name) != kind}
        stored[base_id] = Base(on=base.on, fields=base.fields, drop=base.drop, types=types)

    for base_id in raw:
        store(base_id)
    return stored


def _keys(records: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return, per record, exported name -> catalog key: the benchmark wins a shared name, the library one is marked."""
    benchmark = {name for record in records if record["kind"] == "benchmark" for name in _names(record)}
    keys = []
    for record in records:
        shared = benchmark if record["kind"] == "library" else set()
        keys.append({name: f"{name}{LIBRARY_SUFFIX}" if name in shared else name for name in _names(record)})
    return keys


def _names(record: Mapping[str, Any]) -> list[str]:
    return [record["name"], *record["aliases"]]


def _recipe_line(record: Mapping[str, Any], keys: Mapping[str, str], inputs: Inputs) -> dict[str, Any]:
    ids = record.get("hub", {}).get("model_ids", [])
    evidence = [inputs.bridge_digest, inputs.core_digest, *(inputs.config_digests.get(item, "") for item in ids)]
    mode = mode_of(record["name"])
    return {
        "name": keys[record["name"]],
        "aliases": sorted(keys[alias] for alias in record["aliases"]),
        "kind": record["kind"],
        "family": _family(record["module"]),
        "mode": mode.value if mode else None,
        "source": f"{record['file']}:{record['line']}",
        "inputs": hashlib.sha256("\n".join(evidence).encode()).hexdigest()[:16],
        "hf_model_ids": _model_ids(record),
        "status": record["status"],
        "error": record.get("error", ""),
    }


def _family(module: str) -> str:
    """Return upstream's folder: the part after the recipe package, or the package itself."""
    parts = module.split(".")
    return parts[3] if len(parts) > 3 else parts[-1]


def _model_ids(record: Mapping[str, Any]) -> list[str]:
    ids = list(record.get("hub", {}).get("model_ids", []))
    named = record.get("fields", {}).get("model.hf_model_id")
    if isinstance(named, str) and named and named not in ids:
        ids.append(named)
    return ids


def _stored_fields(
    table: BaseTable, record: Mapping[str, Any], on: Mapping[str, str], common: Mapping[str, str]
) -> dict[str, Any]:
    compressed = table.compress(on, record["fields"])
    stored: dict[str, Any] = {"on": subtract_common(on, common), "set": compressed.fields}
    if compressed.drop:
        stored["drop"] = list(compressed.drop)
    model_set = record["model_set"]
    if model_set is None:
        own = table.compress({path: base for path, base in on.items() if path != HABITS}, record["fields"])
        model_set = sorted({path.split(".")[1] for path in own.fields if path.startswith("model.")} - {"_class"})
    return {**stored, "model_set": model_set}


def _notes(record: Mapping[str, Any]) -> dict[str, Any]:
    hub = record.get("hub", {})
    notes: dict[str, Any] = {
        "model_class": record.get("model_class"),
        "parameters": [item["name"] for item in record["parameters"]],
        "revisions": hub.get("revisions"),
        "remote_code": hub.get("remote_code"),
        "tokenizers_read": hub.get("tokenizer_ids"),
        "probes": record.get("probes"),
        "without_gpu": _variation(record.get("without_gpu")),
        "dora": _variation(record.get("dora")),
        "missing_files": record.get("missing_files"),
        "error_at": record.get("error_at"),
    }
    return {name: value for name, value in notes.items() if value}


def _variation(variation: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (variation or {}).items() if value}


def _summary_rows(record: Mapping[str, Any], line: Mapping[str, Any], keys: Mapping[str, str]) -> list[list[Any]]:
    config = RunConfig(values=record.get("fields", {}))
    parts = parse_name(record["name"])
    layout = None
    minimum = None
    if "fields" in record and config.known("model.tensor_model_parallel_size"):
        view = view_layout(config)
        layout = [view.tp, view.pp, view.vp, view.cp, view.ep, view.etp, view.sequence_parallel]
        minimum = view.minimum_world_size
    rows = []
    for name, key in sorted(keys.items()):
        row = {
            "name": key,
            "model": parts.model,
            "alias_of": "" if name == record["name"] else line["name"],
            "kind": record["kind"],
            "mode": mode.value if (mode := mode_of(name)) else line["mode"],
            "family": line["family"],
            "modality": modality_of(name),
            "hf_model_ids": line["hf_model_ids"],
            "gpus": parts.gpus,
            "gpu_type": parts.gpu_type,
            "precision": parts.precision,
            "variant": parts.variant,
            "status": record["status"],
            "layout": layout,
            "minimum_gpus": minimum,
            "seq_length": view_seq_length(config),
            "global_batch_size": config.get("train.global_batch_size", None),
            "micro_batch_size": config.get("train.micro_batch_size", None),
            "dataset": config.get("dataset._class", None),
        }
        rows.append([row[column] for column in COLUMNS])
    return rows


def _used_bases(table: BaseTable, files: Mapping[str, list[dict[str, Any]]], common: Mapping[str, str]) -> set[str]:
    used: set[str] = set()
    pending = list(common.values())
    for lines in files.values():
        for line in lines:
            pending += add_common(line.get("on", {}), common).values()
    while pending:
        base_id = pending.pop()
        if base_id not in used:
            used.add(base_id)
            pending += table.bases[base_id].on.values()
    return used


def _base_line(base_id: str, base: Base) -> dict[str, Any]:
    line: dict[str, Any] = {"id": base_id}
    if base.on:
        line["on"] = base.on
    line["set"] = base.fields
    if base.drop:
        line["drop"] = list(base.drop)
    return line


def _meta(
    records: list[dict[str, Any]],
    rows: list[list[Any]],
    evaluation: Evaluation,
    inputs: Inputs,
    common: Mapping[str, str],
) -> dict[str, Any]:
    names = {str(row[0]) for row in rows}
    collisions = sorted(name.removesuffix(LIBRARY_SUFFIX) for name in names if name.endswith(LIBRARY_SUFFIX))
    return {
        "release": inputs.release,
        "core_release": inputs.core_release,
        "bridge_digest": inputs.bridge_digest,
        "core_digest": inputs.core_digest,
        "versions": dict(sorted(evaluation.versions.items())),
        "standins": sorted(evaluation.standins),
        "functions": len(records),
        "names": len(rows),
        "aliases": len(rows) - len(records),
        "failed": {record["name"]: record.get("error", "") for record in records if record["status"] != "ok"},
        "broken_modules": dict(sorted(evaluation.broken_modules.items())),
        "collisions": collisions,
        "options": len(evaluation.options),
        "no_options": evaluation.no_options,
        "config_origins": dict(sorted(inputs.config_origins.items())),
        "common_bases": dict(common),
        "subclasses": subclasses_of(evaluation.bases),
        **({"only": sorted(inputs.only)} if inputs.only else {}),
    }
