"""What a key of an override names in the schema of a release: a field, a key inside a dictionary, a list item, a section.

Leaves out: values (see `annotations`) and what an override does (see `overrides`). Start reading at `locate_key`.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping

from autorecipe.config.annotations import TypeSpec, parse_annotation
from autorecipe.config.origins import CLASS_MARK as CLASS_MARK
from autorecipe.errors import near_misses
from autorecipe.record import dataclass
from autorecipe.schema.field import ConfigField, ConfigSchema
from autorecipe.schema.value import FieldValue

SHORT_NAMES = {
    "tp": "model.tensor_model_parallel_size",
    "pp": "model.pipeline_model_parallel_size",
    "vp": "model.virtual_pipeline_model_parallel_size",
    "vpp": "model.virtual_pipeline_model_parallel_size",
    "cp": "model.context_parallel_size",
    "ep": "model.expert_model_parallel_size",
    "etp": "model.expert_tensor_parallel_size",
    "sp": "model.sequence_parallel",
    "gbs": "train.global_batch_size",
    "mbs": "train.micro_batch_size",
    "batch_size": "train.global_batch_size",
    "max_steps": "train.train_iters",
    "learning_rate": "optimizer.lr",
    "warmup_iters": "scheduler.lr_warmup_iters",
    "sequence_length": "dataset.seq_length",
    "max_position_embeddings": "model.seq_length",
    "dropout": "model.hidden_dropout",
}
"""What people type for a path; suggested, never accepted."""

ANYTHING = TypeSpec("any")
UNDECLARED = "undeclared"
"""Type of the paths that recipes set and no class declares: attributes written anyway, and keys of dictionaries."""


BEYOND_ANNOTATION = {"model.position_embedding_type": ("none", "mrope")}
"""Values that a field takes although its annotation does not name them. Bridge checks no annotation of an override
(megatron/bridge/training/utils/omegaconf_utils.py @ 0.6.2) and hands these to core's GPTModel, which names them itself
(megatron/core/models/gpt/gpt_model.py:105 @ core 0.19.2)."""


class KeyKind(enum.StrEnum):
    """What a key names."""

    FIELD = "field"
    FREE = "free"
    ITEM = "item"
    SECTION = "section"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Located:
    """A key, looked up.

    Attributes:
        kind: FIELD (declared), FREE (key of a dictionary field), ITEM (index into a list field), SECTION (has fields below).
        path: as given.
        spec: type of the value; `any` where nothing is declared.
        field: declared field, or the one that holds the dictionary or list.
        tail: rest of the path inside that field, as parts.
    """

    kind: KeyKind
    path: str
    spec: TypeSpec = ANYTHING
    field: ConfigField | None = None
    tail: tuple[str, ...] = ()


def locate_key(path: str, schema: ConfigSchema, base: Mapping[str, FieldValue] | None = None) -> Located:
    """Look a key up.

    Args:
        path: dotted key.
        schema: schema of the release.
        base: resolved fields of a recipe; keys that only it has (model classes of one family) are fields too.
    """
    declared = schema.get(path)
    if declared is not None and declared.type == UNDECLARED:
        inside = _locate_in_holder(path, schema)
        return inside or Located(kind=KeyKind.FIELD, path=path, field=declared)
    is_parent = path in schema.parents or (base is not None and has_children(path, base))
    if declared is not None:
        spec = spec_of(declared)
        is_section = is_parent and spec.first("dict") is None
        return Located(kind=KeyKind.SECTION if is_section else KeyKind.FIELD, path=path, spec=spec, field=declared)
    if is_parent:
        return Located(kind=KeyKind.SECTION, path=path)
    if base is not None and path in base and not path.endswith(CLASS_MARK):
        return Located(kind=KeyKind.FIELD, path=path)
    return _locate_in_holder(path, schema) or Located(kind=KeyKind.UNKNOWN, path=path)


def _locate_in_holder(path: str, schema: ConfigSchema) -> Located | None:
    """Look a path up inside the nearest declared dictionary or list field above it."""
    parts = path.split(".")
    for length in range(len(parts) - 1, 0, -1):
        holder = schema.get(".".join(parts[:length]))
        if holder is not None and holder.type != UNDECLARED:
            inside = _locate_inside(path, holder, tuple(parts[length:]))
            return None if inside.kind is KeyKind.UNKNOWN else inside
    return None


def spec_of(declared: ConfigField) -> TypeSpec:
    """Return the parsed type; a field whose default is None accepts null whatever its annotation says."""
    spec = parse_annotation(declared.type)
    if spec.kind == "literal" and declared.path in BEYOND_ANNOTATION:
        spec = TypeSpec("literal", choices=(*spec.choices, *BEYOND_ANNOTATION[declared.path]))
    if declared.default is None and spec.first("none", "any") is None:
        return TypeSpec("union", (*spec.members(), TypeSpec("none")))
    return spec


def _locate_inside(path: str, holder: ConfigField, tail: tuple[str, ...]) -> Located:
    spec = parse_annotation(holder.type)
    kind = KeyKind.FREE
    for part in tail:
        mapping = spec.first("dict", "any")
        sequence = spec.first("list", "tuple", "set")
        if mapping is not None and part:
            spec = mapping.arguments[1] if len(mapping.arguments) == 2 else ANYTHING
            kind = KeyKind.FREE
        elif sequence is not None and part.isdecimal():
            spec = sequence.arguments[0] if sequence.arguments else ANYTHING
            kind = KeyKind.ITEM
        else:
            return Located(kind=KeyKind.UNKNOWN, path=path, field=holder, tail=tail)
    return Located(kind=kind, path=path, spec=spec, field=holder, tail=tail)


def has_children(path: str, known: Collection[str]) -> bool:
    """Return whether any known path lies below this one."""
    prefix = path + "."
    return any(candidate.startswith(prefix) for candidate in known)


def suggest_keys(path: str, schema: ConfigSchema, base: Mapping[str, FieldValue] | None = None, *, limit: int = 3) -> list[str]:
    """Return the known paths that a mistyped key most likely means, best first.

    A field of the same name in another section comes first, then near misses in the section, then anywhere.
    """
    extra = [name for name in base or () if name not in schema and not name.endswith(CLASS_MARK)]
    section, _, leaf = path.rpartition(".")
    found = [SHORT_NAMES[leaf.lower()]] if leaf.lower() in SHORT_NAMES else []
    same_leaf = [*schema.by_leaf.get(leaf, ()), *(name for name in extra if name.rsplit(".", 1)[-1] == leaf)]
    found += sorted(same_leaf, key=lambda name: (name.count("."), name))
    prefix = f"{section}." if section else ""
    below = (name.removeprefix(prefix) for name in (*schema, *extra) if name.startswith(prefix))
    siblings = [name for name in below if "." not in name]
    found += [prefix + name for name in near_misses(leaf, _comparable(leaf, siblings))]
    if not found:
        sections = {name for name in schema.parents if "." not in name}
        head, _, rest = path.partition(".")
        close = near_misses(head, sorted(sections)) if head not in sections else []
        inside = [name for name in schema if name.split(".", 1)[0] in close]
        found += near_misses(path, _comparable(path, inside)) if rest else close
    if not found:
        found += [schema.by_leaf[name][0] for name in near_misses(leaf, _comparable(leaf, schema.by_leaf))]
    if not found and section:
        found += suggest_keys(section, schema, base, limit=limit)  # the mistake may be in a parent
    known = (name for name in dict.fromkeys(found) if name in schema or (base is not None and name in base))
    return list(known)[:limit]


def _comparable(name: str, known: Iterable[str]) -> list[str]:
    """A near miss is about as long as what was meant and shares a third of its letter pairs; the rest need not be compared."""
    slack = max(3, len(name) // 3)
    pairs = {name[index : index + 2].lower() for index in range(len(name) - 1)}
    needed = len(pairs) // 3
    return [
        candidate
        for candidate in known
        if abs(len(candidate) - len(name)) <= slack and sum(pair in candidate for pair in pairs) >= needed
    ]
