"""Bridge to Megatron-LM: options for `pretrain_gpt.py`, and an account of what they cannot say.

The options are read back through the forward rules: where that gives another value than the configuration has, the difference is
reported, never dropped. Start reading at `translate_to_mlm`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autorecipe.schema.field import ConfigSchema
from autorecipe.schema.layer import Layer
from autorecipe.schema.option import MlmOption
from autorecipe.schema.run import OriginKind, RunConfig
from autorecipe.schema.translation import Direction, Outcome, Reason, Setting, Status, Translation
from autorecipe.schema.value import UNKNOWN, FieldValue
from autorecipe.translate.effective import REQUIRED, MlmConfig, effective_of
from autorecipe.translate.mapping import Entry, MappingTable
from autorecipe.translate.precision import COPIED_FIELDS
from autorecipe.translate.rule import BridgeView, Cell
from autorecipe.translate.to_bridge import agrees
from autorecipe.translate.values import enum_member, is_flag, render_pattern, render_value_text, same_value, takes_many

_SIZES = ("ffn_hidden_size", "kv_channels")
_PATTERNS = ("moe_freq_type", "la_freq_type", "no_rope_freq_type", "tuple_type")


def translate_to_mlm(
    config: RunConfig,
    mapping: MappingTable,
    schema: ConfigSchema,
    *,
    given: Sequence[str] = (),
    world_size: int | None = None,
) -> Translation:
    """Translate a resolved Bridge configuration into Megatron-LM options.

    Args:
        config: resolved configuration.
        mapping: rules of the release.
        schema: schema of the release.
        given: override paths that the user gave, for the account.
        world_size: GPUs, or None.
    """
    view = BridgeView(config.values)
    values: dict[str, FieldValue] = {}
    for rule in mapping.rules:
        values |= rule.backward(view)
    values = {dest: value for dest, value in values.items() if dest in mapping.entries and value is not None}
    effective = effective_of(values, mapping.table, world_size=world_size)
    notes: list[str] = []
    settings: list[Setting] = []
    for dest, value in values.items():
        entry = mapping.entries[dest]
        if not _needed(entry, value, effective, config, notes):
            continue
        settings.append(_setting(entry, value, config))
    chosen = {mapping.table.names[item.name].dest: values[mapping.table.names[item.name].dest] for item in settings}
    read_back = effective_of(chosen, mapping.table, world_size=world_size)
    missed = _missed(read_back, mapping, config)
    notes += _replaced(config, values)
    outcomes = [_outcome(path, config, mapping, settings, schema, missed) for path in given]
    outcomes += _silent_losses(config, mapping, schema, missed, skip=set(given))
    return Translation(
        direction=Direction.TO_MLM,
        recipe=config.recipe,
        release=config.release,
        outcomes=tuple(outcomes),
        settings=tuple(settings),
        problems=tuple(read_back.problems),
        notes=(*notes, *config.notes),
        world_size=world_size,
    )


def _replaced(config: RunConfig, values: Mapping[str, FieldValue]) -> list[str]:
    """Say where the options name another implementation of the same arithmetic, because Megatron-LM refuses the recipe's."""
    path, written = "model.cross_entropy_fusion_impl", values.get("cross_entropy_fusion_impl")
    if not config.known(path) or written in (None, config.get(path)):
        return []
    return [f"{path}={config.get(path)} becomes {written}: Megatron-LM refuses the other (execution only)"]


def _needed(entry: Entry, value: FieldValue, effective: MlmConfig, config: RunConfig, notes: list[str]) -> bool:
    option = entry.option
    if option.dest in _SIZES and value == 0:
        return False
    if option.dest in REQUIRED and value in (0, None):
        notes.append(
            f"{option.flag.split()[0]} is needed: the recipe leaves {entry.rule.paths[0] if entry.rule else option.dest} open"
        )
        return False
    if isinstance(value, str) and "${" in value:
        notes.append(f"{option.flag.split()[0]} is left out: {value} belongs to Bridge's own folder")
        return False
    default = enum_member(option.default) if option.type == "enum_type_handler" else option.default
    if same_value(value, default) or (default in (None, False, []) and value in (False, [], "")):
        return False
    overridden = entry.rule is not None and any(_is_override(config, path) for path in entry.rule.paths)
    return overridden or (entry.acts(effective) and entry.note.implicit != "never")


def _is_override(config: RunConfig, path: str) -> bool:
    origin = config.origins.get(path)
    return origin is not None and origin.kind is OriginKind.OVERRIDE


def _setting(entry: Entry, value: FieldValue, config: RunConfig) -> Setting:
    paths = entry.rule.paths if entry.rule is not None else ()
    given = any(_is_override(config, path) for path in paths)
    return Setting(
        name=entry.option.flag.split()[0],
        value=value,
        reason=Reason.GIVEN if given else Reason.IMPLICIT_DEFAULT,
        sources=tuple(path for path in paths if config.known(path)),
        layer=entry.layer,
        replaces=entry.option.default,
    )


def render_option(option: MlmOption, value: FieldValue) -> list[str]:
    """Return the words of one option.

    Args:
        option: row of the table.
        value: value by destination; for a flag whether it holds.

    Returns:
        no words for a flag that is at its default.
    """
    names = option.flag.split()
    if is_flag(option):
        if option.type == "flag(store_true)":
            return [names[0]] if value else []
        if option.type == "flag(store_false)":
            return [] if value else [names[0]]
        positive = next((name for name in names if not name.startswith("--no-")), names[0])
        return [positive] if value else [next((name for name in names if name.startswith("--no-")), positive)]
    if option.type in _PATTERNS:
        if option.type == "tuple_type" and isinstance(value, list | tuple):
            return [names[0], "(" + ",".join(str(item) for item in value) + ")"]
        return [names[0], render_pattern(value)]
    if takes_many(option):
        items = value if isinstance(value, list | tuple) else [value]
        return [names[0], *(_text(option, item) for item in items)]
    return [names[0], _text(option, value)]


def _text(option: MlmOption, value: FieldValue) -> str:
    if option.type == "int" and isinstance(value, float) and value.is_integer():
        return str(int(value))
    if option.type == "enum_type_handler":
        return str(enum_member(value))
    return render_value_text(value)


def mlm_words(translation: Translation, mapping: MappingTable) -> list[str]:
    """Return the words of all options of a translation, in the table's order."""
    order = {option.flag.split()[0]: number for number, option in enumerate(mapping.table.options.values())}
    words: list[str] = []
    for setting in sorted(translation.settings, key=lambda item: order.get(item.name, 0)):
        words += render_option(mapping.table.names[setting.name], setting.value)
    return words


def _missed(read_back: MlmConfig, mapping: MappingTable, config: RunConfig) -> dict[str, Cell]:
    """Return what the chosen options would mean otherwise than the configuration says, by path."""
    found: dict[str, Cell] = {}
    for rule in mapping.rules:
        for cell in rule.forward(read_back):
            entries = [mapping.entries[dest] for dest in cell.dests if dest in mapping.entries]
            acts = all(entry.acts(read_back) and entry.note.implicit != "never" for entry in entries)
            known = config.get(cell.path) is not UNKNOWN
            own = isinstance(config.get(cell.path), str) and "${" in config.get(cell.path)
            if acts and known and not own and not cell.inert and not agrees(cell, config):
                found[cell.path] = cell
    return found


def _outcome(
    path: str,
    config: RunConfig,
    mapping: MappingTable,
    settings: Sequence[Setting],
    schema: ConfigSchema,
    missed: Mapping[str, Cell],
) -> Outcome:
    value = render_value_text(config.get(path))
    layer = _layer(path, schema)
    rule = mapping.paths.get(path)
    if path in missed:
        note = f"Megatron-LM's options would give {missed[path].value!r}"
        return Outcome(name=path, value=value, status=Status.UNMAPPED, layer=layer, note=note)
    if rule is None:
        if path.startswith("mixed_precision"):
            rule = next(item for item in mapping.rules if item.name == "precision")
        else:
            note = "no Megatron-LM option says this"
            return Outcome(
                name=path, value=value, status=Status.UNMAPPED, layer=layer, note=note, acts=_acts(path, config, schema)
            )
    flags = {mapping.entries[dest].option.flag.split()[0] for dest in rule.dests if dest in mapping.entries}
    targets = tuple(setting.name for setting in settings if setting.name in flags)
    note = "" if targets else "Megatron-LM's default"
    return Outcome(name=path, value=value, status=rule.status, targets=targets, layer=layer, note=note)


def _layer(path: str, schema: ConfigSchema) -> Layer | None:
    known = schema.get(path)
    return known.layer if known is not None else None


def _acts(path: str, config: RunConfig, schema: ConfigSchema) -> bool:
    known = schema.get(path)
    return known is None or not same_value(config.get(path), known.default)


_NOT_TRAINING = (
    "model.hf_model_id",
    "model.hf_model_revision",
    "model.should_pad_vocab",
    "scheduler.max_lr",
    "tokenizer.pad_vocab_size",
)
"""Paths that name where a model comes from, or repeat what other fields or Megatron-LM itself decide."""


def _is_covered(path: str, mapping: MappingTable) -> bool:
    """Return whether a rule reads a path, or the precision rule reads what is copied there at start."""
    name = path.rsplit(".", 1)[-1]
    copied = path.startswith("mixed_precision") or name in COPIED_FIELDS
    return path in mapping.paths or path in _NOT_TRAINING or copied or path.endswith("_class") or path.startswith("derived.")


def _silent_losses(
    config: RunConfig, mapping: MappingTable, schema: ConfigSchema, missed: Mapping[str, Cell], *, skip: set[str]
) -> list[Outcome]:
    """Return convergence fields that the recipe (not the user) sets and that Megatron-LM cannot express."""
    found = []
    for path, value in config.values.items():
        known = schema.get(path)
        if path in skip or known is None or known.layer is not Layer.CONVERGENCE:
            continue
        origin = config.origins.get(path)
        set_by_recipe = origin is not None and origin.kind in (OriginKind.RECIPE, OriginKind.MODEL_CARD, OriginKind.OVERRIDE)
        text = render_value_text(value)
        if path in missed:
            note = f"Megatron-LM's options would give {missed[path].value!r}"
            found.append(Outcome(name=path, value=text, status=Status.UNMAPPED, layer=known.layer, note=note, origin="recipe"))
        elif not _is_covered(path, mapping) and set_by_recipe and not _empty(value) and not same_value(value, known.default):
            note = "no Megatron-LM option says this"
            found.append(Outcome(name=path, value=text, status=Status.UNMAPPED, layer=known.layer, note=note, origin="recipe"))
    return found


def _empty(value: FieldValue) -> bool:
    return value is None or value is False or value == [] or value == {} or value == ""
