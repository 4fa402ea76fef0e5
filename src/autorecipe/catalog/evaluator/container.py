"""Writes one configuration container as flat fields, with the base that each part started from.

A base is what the recipe did not decide: the defaults of a dataclass, the model provider as the Hugging Face configuration
gives it, or a named upstream preset (mixed precision, tensor-parallel overlap). Each base is described once.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import types
import typing
from typing import Any

from autorecipe.catalog.evaluator.tracking import written
from autorecipe.catalog.evaluator.values import ValueWriter, attributes, qualified_name


class ContainerWriter:
    """Flattens configuration containers and collects their bases.

    Attributes:
        bases: base id -> its description, as sent to the parent once.
    """

    def __init__(self, writer: ValueWriter) -> None:
        self.writer = writer
        self.bases: dict[str, dict[str, Any]] = {}
        self._mixed = _registry("megatron.bridge.training.mixed_precision", "MIXED_PRECISION_RECIPES")
        self._overlap = _named("megatron.bridge.training.comm_overlap", "userbuffers_")

    def write(self, container: Any, *, model_base: str | None) -> dict[str, Any]:
        """Return fields, bases by path, the model's class and the fields that the recipe wrote to the model.

        Args:
            container: what the recipe function returned; a dataclass.
            model_base: id of the model snapshot (`snapshot`) that `container.model` started from, if any.
        """
        fields: dict[str, Any] = {}
        bases: dict[str, str] = {"": self.add_class(type(container), named=False)}
        for name, value in attributes(container):
            if name == "model":
                continue
            self.writer.reset()
            if name == "mixed_precision" and isinstance(value, str):
                self._write_named_precision(value, fields, bases)
                continue
            self.writer.flatten(name, value, fields)
            self._note_classes(bases)
        overlap = getattr(getattr(container, "comm_overlap", None), "tp_comm_overlap_cfg", None)
        if overlap is not None:
            self._note_overlap(overlap, bases)
        model = getattr(container, "model", None)
        if model is None:
            return {"fields": fields, "bases": bases, "model_class": None, "model_set": None}
        flat = self.flatten_model(model)
        fields |= {f"model.{name}": value for name, value in flat.items()}
        self._note_classes(bases, inside="model")
        model_class = self.add_class(type(model), merge="transformer")
        writes = written(model)
        transformer = getattr(model, "__dict__", {}).get("transformer")
        if writes is not None and transformer is not None:
            writes |= written(transformer) or set()
        bases["model"] = model_base if writes is not None and model_base else model_class
        return {
            "fields": fields,
            "bases": bases,
            "model_class": qualified_name(type(model)),
            "model_set": None if writes is None else sorted(writes - {"transformer"}),
        }

    def snapshot(self, key: str, provider: Any) -> str:
        """Describe a model provider before the recipe writes to it; return the id of its base.

        The same model may start differently (on another device, with other arguments), so the id carries a digest.
        """
        self.writer.reset()
        fields = self.flatten_model(provider)
        nested = {path: self.add_class(kind) for path, kind in self.writer.classes.items() if path}
        digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:12]
        base_id = f"model:{key}~{digest}"
        on = {"": self.add_class(type(provider), merge="transformer"), **nested}
        self.bases.setdefault(base_id, {"on": on, "fields": fields})
        return base_id

    def flatten_model(self, model: Any) -> dict[str, Any]:
        """Return a model's fields without prefix; those of a nested `transformer` configuration stand beside the others."""
        self.writer.reset()
        nested = getattr(model, "__dict__", {}).get("transformer")
        parts = [nested, model] if nested is not None and dataclasses.is_dataclass(nested) else [model]
        fields: dict[str, Any] = {"_class": getattr(type(model), "_tracked_class", type(model)).__qualname__}
        for part in parts:
            for name, value in attributes(part):
                if name != "transformer":
                    self.writer.flatten(name, value, fields, depth=1)
        return fields

    def add_class(self, kind: type, *, merge: str = "", named: bool = True) -> str:
        """Describe a dataclass by its fields, types and defaults, once; return its base id.

        Args:
            kind: a dataclass.
            merge: field whose own class's fields stand beside the others (see `flatten_model`).
            named: whether `_class` is one of its values.
        """
        kind = getattr(kind, "_tracked_class", kind)
        base_id = f"class:{qualified_name(kind)}"
        if base_id in self.bases:
            return base_id
        self.bases[base_id] = {"on": {}, "fields": {}, "types": {}}
        parent = next((item for item in kind.__mro__[1:] if dataclasses.is_dataclass(item)), None)
        fields: dict[str, Any] = {"_class": kind.__qualname__} if named else {}
        declared: dict[str, str] = {}
        on: dict[str, str] = {}
        if dataclasses.is_dataclass(kind):
            for field in dataclasses.fields(kind):
                if field.name.startswith("_"):
                    continue
                if field.name == merge:
                    continue
                declared[field.name] = _annotation(field.type)
                missing, default = _default(field)
                if not missing:
                    saved, self.writer.classes = self.writer.classes, {}
                    self.writer.flatten(field.name, default, fields)
                    on |= {path: self.add_class(item) for path, item in self.writer.classes.items()}
                    self.writer.classes = saved
        self.bases[base_id] = {"on": on, "fields": fields, "types": declared}
        if parent is not None:
            self.bases[base_id]["parent"] = self.add_class(parent, merge=merge)
        return base_id

    def _note_classes(self, bases: dict[str, str], *, inside: str = "") -> None:
        for path, kind in self.writer.classes.items():
            bases[f"{inside}.{path}" if inside else path] = self.add_class(kind)

    def _write_named_precision(self, name: str, fields: dict[str, Any], bases: dict[str, str]) -> None:
        fields["mixed_precision"] = name
        factory = self._mixed.get(name) or self._mixed.get(name.replace("-", "_"))
        if factory is None:
            return
        self.writer.flatten("mixed_precision", factory(), fields)
        self._note_classes(bases)

    def _note_overlap(self, overlap: Any, bases: dict[str, str]) -> None:
        for name, preset in self._overlap.items():
            if overlap is preset or (type(overlap) is type(preset) and vars(overlap) == vars(preset)):
                path = "comm_overlap.tp_comm_overlap_cfg"
                base_id = f"preset:{name}"
                if base_id not in self.bases:
                    self.writer.reset()
                    flat: dict[str, Any] = {}
                    self.writer.flatten("preset", preset, flat)
                    stripped = {key.removeprefix("preset."): value for key, value in flat.items()}
                    self.bases[base_id] = {"on": {}, "fields": stripped}
                for nested in [key for key in bases if key.startswith(f"{path}.")]:
                    del bases[nested]
                bases[path] = base_id
                return


def _default(field: Any) -> tuple[bool, Any]:
    if field.default is not dataclasses.MISSING:
        return False, field.default
    if field.default_factory is not dataclasses.MISSING:
        try:
            return False, field.default_factory()
        except Exception:  # a factory that needs a process group or a device has no static default
            return True, None
    return True, None


def _annotation(kind: Any) -> str:
    if isinstance(kind, str):
        return kind
    if isinstance(kind, type) and not typing.get_args(kind):
        return kind.__qualname__
    return str(kind).replace("typing.", "")


def _registry(module: str, name: str) -> dict[str, Any]:
    found = _module(module)
    return dict(getattr(found, name, {})) if found is not None else {}


def _named(module: str, prefix: str) -> dict[str, Any]:
    found = _module(module)
    return {name: value for name, value in vars(found).items() if name.startswith(prefix)} if found is not None else {}


def _module(name: str) -> types.ModuleType | None:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(error.name):
            return None
        raise
