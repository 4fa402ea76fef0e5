"""Megatron-LM to Bridge: overrides for a recipe, and an account of every option.

Three passes. What was given is written. The recipe is resolved with that, and whatever still differs from what Megatron-LM
would do (its defaults, its derivations) is written too, with the reason. The recipe is resolved again, and what still does
not act is reported. Start reading at `translate_to_bridge`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from autorecipe.config.grammar import GrammarError
from autorecipe.config.overrides import parse_overrides, render_override
from autorecipe.errors import Problem, UsageError
from autorecipe.schema.field import ConfigSchema
from autorecipe.schema.layer import Layer
from autorecipe.schema.run import OriginKind, RunConfig
from autorecipe.schema.translation import Direction, Outcome, Reason, Setting, Status, Translation
from autorecipe.schema.value import UNKNOWN, FieldValue
from autorecipe.translate.arguments import Given, ParsedArguments
from autorecipe.translate.effective import REQUIRED, MlmConfig, derive_effective
from autorecipe.translate.mapping import Entry, MappingTable
from autorecipe.translate.rule import BridgeView, Cell
from autorecipe.translate.values import same_value

Resolver = Callable[[Sequence[str]], RunConfig]
"""Resolves the target recipe with overrides."""

_FROM_RECIPE = ("global_batch_size", "tokenizer_type", "train_iters", "vocab_size")
"""Options whose absence says nothing: the recipe's value stays."""

_IMPLICIT_LAYERS = (Layer.CONVERGENCE, Layer.EXECUTION, Layer.FINGERPRINT)


def translate_to_bridge(
    parsed: ParsedArguments,
    mapping: MappingTable,
    resolve: Resolver,
    schema: ConfigSchema,
    *,
    recipe: str,
    world_size: int | None = None,
    conditional: Sequence[tuple[str, str]] = (),
) -> Translation:
    """Translate a parsed command line into overrides of a recipe.

    Args:
        parsed: the command line.
        mapping: rules of the release.
        resolve: resolves the target recipe with overrides.
        schema: schema of the release, for layers.
        recipe: name of the target recipe, for the result.
        world_size: GPUs; None takes what the launcher words say.
        conditional: options inside conditions that nobody decided, with where they stand.
    """
    config = derive_effective(parsed, mapping.table, world_size=world_size)
    cells = [cell for rule in mapping.rules for cell in rule.forward(config)]
    base = resolve(())
    refused: dict[str, str] = {}
    problems = list(config.problems)
    loud = [cell for cell in cells if _acts_as_given(cell, config, mapping) and not cell.quiet]
    given = [_setting(cell, config, mapping, schema, base, Reason.GIVEN) for cell in loud]
    given = [item for item in given if _acceptable(item, base, schema, refused)]
    given += _freed(base)
    current = _resolve(resolve, given, base, problems)
    written = {item.name for item in given}
    implicit: list[Setting] = []
    for cell in cells:
        if cell.path in written or cell.path in refused:
            continue
        setting = _implicit_setting(cell, config, mapping, schema, current)
        if setting is not None and _acceptable(setting, base, schema, refused):
            implicit.append(setting)
    settings = sorted([*given, *implicit], key=lambda item: _order(item.name))
    problems = list(config.problems)
    final = _resolve(resolve, settings, base, problems)
    if final is not base:
        problems += _not_acting(cells, settings, final)
    outcomes = [_outcome(item, config, mapping, settings, refused) for item in parsed.given]
    outcomes += [_stray(word) for word in parsed.stray]
    outcomes += [_conditional(name, where, mapping) for name, where in conditional]
    if parsed.program in OTHER_PROGRAMS:
        problems.append(
            Problem(
                code="another-program",
                path=parsed.program,
                message=f"trains {OTHER_PROGRAMS[parsed.program]}; only options of {GPT_PROGRAM} are translated",
                hint="pick the recipe of that model (`autorecipe models list`) and compare it: `autorecipe parity design`",
            )
        )
    return Translation(
        direction=Direction.TO_BRIDGE,
        recipe=recipe,
        release=final.release or schema.release,
        outcomes=tuple(outcomes),
        settings=tuple(settings),
        problems=tuple(problems),
        notes=tuple(_notes(parsed, config, final)),
        world_size=config.world_size,
    )


def _stray(word: str) -> Outcome:
    note = "belongs to no option; Megatron-LM would refuse it"
    if "$" in word or "`" in word:
        note = "known only when the script runs, and may hold options"
    return Outcome(name=word, value="", status=Status.UNKNOWN, note=note, origin="arguments")


def _texts(settings: Sequence[Setting]) -> list[str]:
    return [render_override(item.name, item.value) for item in settings]


def _resolve(resolve: Resolver, settings: Sequence[Setting], base: RunConfig, problems: list[Problem]) -> RunConfig:
    """Resolve the target with settings; what Bridge refuses about their combination becomes problems."""
    try:
        return resolve(_texts(settings))
    except UsageError as error:
        problems += error.problems
        return base


GPT_PROGRAM = "pretrain_gpt.py"
OTHER_PROGRAMS = {
    "pretrain_mamba.py": "a Mamba model",
    "pretrain_hybrid.py": "a hybrid model",
    "pretrain_bert.py": "BERT",
    "pretrain_t5.py": "T5",
    "pretrain_ict.py": "a retriever",
    "pretrain_retro.py": "RETRO",
    "pretrain_vision_classify.py": "a vision model",
    "pretrain_vlm.py": "a vision-language model",
    "pretrain_mimo.py": "a multimodal model",
}
"""Programs of Megatron-LM that train something else with the same options."""

_SECTION_ORDER = (
    "mixed_precision",
    "model",
    "dataset",
    "tokenizer",
    "train",
    "validation",
    "optimizer",
    "scheduler",
    "ddp",
    "rng",
)


def _order(path: str) -> tuple[int, str]:
    section = path.split(".", 1)[0]
    return (
        _SECTION_ORDER.index(section) if section in _SECTION_ORDER else len(_SECTION_ORDER),
        "" if section == "scheduler" else path,
    )


def _setting(
    cell: Cell, config: MlmConfig, mapping: MappingTable, schema: ConfigSchema, view: RunConfig, reason: Reason
) -> Setting:
    deciding = tuple(dest for dest in cell.dests if dest in config.given) or cell.dests
    flags = tuple(mapping.entries[dest].option.flag.split()[0] for dest in deciding if dest in mapping.entries)
    return Setting(
        name=cell.path,
        value=cell.value,
        reason=reason,
        sources=flags,
        layer=_layer(cell, mapping, schema),
        replaces=view.get(cell.path),
        why=cell.why,
    )


def _layer(cell: Cell, mapping: MappingTable, schema: ConfigSchema) -> Layer | None:
    known = schema.get(cell.path)
    if known is not None and known.layer is not None:
        return known.layer
    return next((mapping.entries[dest].layer for dest in cell.dests if dest in mapping.entries), None)


_OVERLAP = "comm_overlap"


def _freed(base: RunConfig) -> list[Setting]:
    """Return the setting that lets overlap options act: recipes keep an object that writes over all of them at start."""
    if f"{_OVERLAP}._class" not in base.values:
        return []
    why = "it would write over the overlap options at start"
    return [Setting(name=_OVERLAP, value=None, reason=Reason.IMPLICIT_DEFAULT, sources=(), layer=Layer.EXECUTION, why=why)]


def _acts_as_given(cell: Cell, config: MlmConfig, mapping: MappingTable) -> bool:
    """Return whether an option that was given decides a cell and acts in this configuration."""
    given = config.given & set(cell.dests)
    return any(dest not in mapping.entries or mapping.entries[dest].acts(config) for dest in given)


def _implicit_setting(
    cell: Cell, config: MlmConfig, mapping: MappingTable, schema: ConfigSchema, current: RunConfig
) -> Setting | None:
    """Return the setting that makes the recipe do what Megatron-LM does without being told, or None where it does already."""
    entries = [mapping.entries[dest] for dest in cell.dests if dest in mapping.entries]
    if not _worth_setting(cell, config, entries) or agrees(cell, current):
        return None
    layer = _layer(cell, mapping, schema)
    table_layer = entries[0].layer if entries else layer
    if layer not in _IMPLICIT_LAYERS or table_layer not in _IMPLICIT_LAYERS:
        return None
    if cell.path not in current.values:
        return None
    derived = cell.dests[0] in config.derived
    return _setting(cell, config, mapping, schema, current, Reason.DERIVED if derived else Reason.IMPLICIT_DEFAULT)


def _worth_setting(cell: Cell, config: MlmConfig, entries: Sequence[Entry]) -> bool:
    if any(entry.note.implicit == "never" or not entry.acts(config) for entry in entries):
        return False
    return not is_open(cell)


def is_open(cell: Cell) -> bool:
    """Return whether a command line leaves a cell to the recipe: an option that has no default and is not given."""
    return cell.value is None and any(dest in (*REQUIRED, *_FROM_RECIPE) for dest in cell.dests)


def default_differs(entry: Entry, defaults: MlmConfig, target: RunConfig) -> bool:
    """Return whether an option that is not given would have to be written for a target.

    Args:
        entry: an option with a rule.
        defaults: effective configuration of an empty command line.
        target: the recipe, resolved.
    """
    if entry.rule is None or entry.note.implicit == "never" or not entry.acts(defaults):
        return False
    if entry.option.dest in (*REQUIRED, *_FROM_RECIPE):
        return False
    for cell in entry.rule.forward(defaults):
        if entry.option.dest == cell.dests[0] and cell.path in target.values and not agrees(cell, target):
            return True
    return False


def agrees(cell: Cell, config: RunConfig) -> bool:
    """Return whether a configuration already says what a cell says; None, False and empty lists count as one."""
    if cell.matches is not None:
        return cell.matches(BridgeView(config.values))
    value = config.get(cell.path)
    if value is UNKNOWN:
        return cell.value in (None, False)
    origin = config.origins.get(cell.path)
    if cell.value is None and origin is not None and origin.kind is OriginKind.DERIVED:
        return True  # unset on both sides; Bridge computes what Megatron-LM computes
    return same_value(cell.value, value) or (cell.value in (None, False, []) and value in (None, False, []))


def _acceptable(setting: Setting, base: RunConfig, schema: ConfigSchema, refused: dict[str, str]) -> bool:
    """Return whether the target takes a setting; remember why not."""
    section = setting.name.split(".", 1)[0]
    why = ""
    if setting.name not in base.values and setting.name not in schema:
        why = "this release has no such field"
    elif "." in setting.name and base.values.get(section, UNKNOWN) is None:
        why = f"the recipe has no `{section}` section"
    elif "." in setting.name and setting.name not in base.values and f"{section}._class" in base.values:
        why = f"{base.values[f'{section}._class']}, which the recipe uses, has no such field"
        owners = schema[setting.name].config_classes if setting.name in schema else ()
        if owners:
            why += f"; a recipe of {' or '.join(owners[:3])} has it (--recipe)"
    else:
        try:
            parse_overrides([render_override(setting.name, setting.value)], schema, base=base.values)
        except UsageError as error:
            why = error.problems[0].message
        except GrammarError as error:
            why = str(error)
    if why:
        refused[setting.name] = why
    return not why


def _not_acting(cells: Sequence[Cell], settings: Sequence[Setting], final: RunConfig) -> list[Problem]:
    by_path = {cell.path: cell for cell in cells}
    found = []
    for setting in settings:
        cell = by_path.get(setting.name)
        if cell is None or cell.inert or agrees(cell, final):
            continue
        origin = final.origins.get(setting.name)
        detail = f" ({origin.detail})" if origin is not None and origin.detail else ""
        found.append(
            Problem(
                code="does-not-act",
                path=setting.name,
                message=f"is written as {setting.value!r}, but {final.get(setting.name)!r} acts{detail}",
            )
        )
    return found


def _outcome(
    item: Given, config: MlmConfig, mapping: MappingTable, settings: Sequence[Setting], refused: Mapping[str, str]
) -> Outcome:
    value = " ".join(item.texts)
    if item.option is None:
        hint = f"did you mean {', '.join(item.near)}?" if item.near else "Megatron-LM's table has no such option"
        return Outcome(name=item.name, value=value, status=Status.UNKNOWN, note=hint, origin=item.origin)
    entry = mapping.entries[item.option.dest]
    status = entry.status
    explains_default = bool(entry.note.implicit or entry.note.when) and status.maps
    note = entry.note.note or ("" if explains_default else entry.note.reason)
    if item.overridden:
        note = "given again later, which counts"
        return Outcome(
            name=item.name, value=value, status=Status.DERIVED, layer=entry.layer, note=note, acts=False, origin=item.origin
        )
    if item.is_unresolved or item.problem:
        note = item.problem or _unresolved_note(value)
        return Outcome(name=item.name, value=value, status=Status.UNRESOLVED, layer=entry.layer, note=note, origin=item.origin)
    dest = item.option.dest
    targets = tuple(setting.name for setting in settings if mapping.entries[dest].option.flag.split()[0] in setting.sources)
    paths = entry.rule.paths if entry.rule is not None else ()
    denied = [f"{path}: {refused[path]}" for path in paths if path in refused]
    if dest in config.remarks:
        status, note = config.remarks[dest]
    elif denied and not targets:
        status, note = Status.UNMAPPED, "; ".join(denied)
    elif not note:
        whys = [setting.why for setting in settings if setting.name in targets and setting.why]
        note = next((why for why in whys if not why.startswith("does not act")), "")
    if not targets and status.maps and dest not in config.remarks and not entry.acts(config):
        note = f"nothing to write: it acts only {entry.needs}"
    elif not targets and not note and status.maps:
        note = "nothing to write: it does not act with the other options as they are"
    acts = not same_value(item.value, item.option.default)
    return Outcome(
        name=item.name,
        value=value,
        status=status,
        targets=targets,
        layer=entry.layer,
        note=note,
        acts=acts or status is not Status.UNMAPPED,
        origin=item.origin,
    )


def _unresolved_note(value: str) -> str:
    names = re.findall(r"\$\{?([A-Za-z_]\w*)", value)
    give = f" (--var {names[0]}=VALUE gives it)" if names else ""
    return f"the value is known only when the script runs{give}"


def _conditional(name: str, where: str, mapping: MappingTable) -> Outcome:
    option, _ = mapping.table.find(name)
    layer = mapping.entries[option.dest].layer if option is not None else None
    note = "inside a condition that cannot be decided without running the script"
    return Outcome(name=name, value="", status=Status.UNRESOLVED, layer=layer, note=note, origin=where)


def _notes(parsed: ParsedArguments, config: MlmConfig, final: RunConfig) -> list[str]:
    notes = [f"left out: {word!r} belongs to no option" for word in parsed.leading]
    if parsed.program not in ("", GPT_PROGRAM):
        notes.append(f"{parsed.program} is read as if it were {GPT_PROGRAM}: what it adds or changes by itself is not known here")
    missing = [dest for dest in REQUIRED if config.get(dest) is None]
    if missing:
        flags = ", ".join("--" + dest.replace("_", "-") for dest in missing)
        notes.append(f"Megatron-LM needs {flags} as well; the recipe's values stay")
    if config.get("global_batch_size") is None and config.get("micro_batch_size") is not None:
        notes.append(
            "without --global-batch-size Megatron-LM takes micro batch x data parallel size; say how many GPUs with --gpus"
        )
    notes += [note for note in final.notes if note not in notes]
    return notes


def value_of(settings: Sequence[Setting], path: str) -> FieldValue:
    """Return what a translation writes at a path, or `UNKNOWN`."""
    return next((setting.value for setting in settings if setting.name == path), UNKNOWN)
