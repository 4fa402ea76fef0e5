"""Translating between Megatron-LM and Bridge: joins the catalog, the configuration and the translation packages."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

from autorecipe.api.refusals import add_mlm_refusals, add_refusals
from autorecipe.catalog.store import Catalog, open_catalog
from autorecipe.config.overrides import parse_overrides
from autorecipe.config.resolve import resolve_config
from autorecipe.errors import Problem, UsageError
from autorecipe.record import dataclass, replace
from autorecipe.schema.recipe import RecipeKind
from autorecipe.schema.run import RunConfig
from autorecipe.schema.translation import Status, Translation
from autorecipe.schema.value import FieldValue
from autorecipe.translate.arguments import parse_arguments
from autorecipe.translate.effective import derive_effective, effective_of
from autorecipe.translate.forms import Words, read_yaml, words_of_namespace
from autorecipe.translate.mapping import MappingTable, load_mapping
from autorecipe.translate.reference import render_reference
from autorecipe.translate.render import override_texts
from autorecipe.translate.saved_args import load_saved_args
from autorecipe.translate.shell.script import read_script
from autorecipe.translate.to_bridge import translate_to_bridge
from autorecipe.translate.to_mlm import mlm_words, translate_to_mlm

DEFAULT_RECIPE = "vanilla_gpt_pretrain_config"
"""Mirrors pretrain_gpt.py's own defaults, so the least has to be overridden."""


@dataclass(frozen=True, kw_only=True)
class MlmSource:
    """Where a Megatron-LM configuration comes from; exactly one is given.

    Attributes:
        words: command line after shell splitting, launcher included or not.
        script: launch script, read and never run.
        yaml: YAML file.
        checkpoint: checkpoint file or folder whose saved arguments count.
        variables: values for what a script or YAML file takes from outside.
        script_arguments: words after a script's name; None where they are not known.
    """

    words: Sequence[str] | None = None
    script: Path | None = None
    yaml: Path | None = None
    checkpoint: Path | None = None
    variables: Mapping[str, str] | None = None
    script_arguments: Sequence[str] | None = None


_SHELLS = ("bash", "sh", "sbatch", "source", ".")
_SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")
_YAML = (".yaml", ".yml")


def source_of_words(words: Sequence[str], *, variables: Mapping[str, str] | None = None) -> MlmSource:
    """Return what a command line without a source option means: options, or a file to read in place of them.

    Args:
        words: `--num-layers 2 ...`, `torchrun pretrain_gpt.py --num-layers 2 ...`, `run.sh [ARGUMENT ...]` or `model.yaml`.
        variables: values for what a script takes from outside.

    Raises:
        UsageError: no word, or words of which none is an option and the first no such file.
    """
    rest = words[1:] if words and words[0] in _SHELLS else words
    path = Path(rest[0]) if rest else Path()
    if path.suffix in (*_SCRIPTS, *_YAML) and path.is_file():
        if path.suffix in _SCRIPTS:
            return MlmSource(script=path, variables=variables, script_arguments=rest[1:] or None)
        if len(rest) > 1:
            raise UsageError(f"{path} holds the options; {' '.join(rest[1:])} beside it would be a second source")
        return MlmSource(yaml=path, variables=variables)
    if any(word.startswith("--") and word != "--" for word in words):
        return MlmSource(words=words)
    forms = "options after --, --script FILE, --yaml FILE or --checkpoint FILE"
    if not words:
        raise UsageError(f"nothing to translate: give {forms}")
    missing = f" and {path} is no file here" if path.suffix in (*_SCRIPTS, *_YAML) else ""
    raise UsageError(f"nothing to translate: no option in {' '.join(words)!r}{missing}; give {forms}")


@functools.lru_cache(maxsize=4)
def _mapping_of(release: str | None) -> tuple[Catalog, MappingTable]:
    catalog = open_catalog(release)
    return catalog, load_mapping(catalog.mlm_options(), catalog.schema().presets)


def load_mlm_mapping(release: str | None = None) -> MappingTable:
    """Return the mapping of a release's Megatron-LM options."""
    return _mapping_of(release)[1]


def to_bridge(
    source: MlmSource, *, recipe: str = DEFAULT_RECIPE, release: str | None = None, gpus: int | None = None
) -> Translation:
    """Translate a Megatron-LM configuration into overrides of a recipe.

    Args:
        source: where it comes from.
        recipe: recipe that the overrides apply to.
        release: Bridge release; the newest shipped one by default.
        gpus: GPUs; what the launcher words say by default.

    Raises:
        UsageError: an unreadable source, or an unknown recipe.
        NegativeAnswer: a recipe that fails in upstream itself.
    """
    catalog, mapping = _mapping_of(release)
    words, conditional = _read(source, mapping)
    target = catalog.load(recipe)
    schema = catalog.schema()
    parsed = parse_arguments(words.words, mapping.table, origins=words.origins, abbreviated=words.abbreviated)
    if words.world_size is not None and parsed.world_size is None:
        parsed = replace(parsed, world_size=words.world_size)

    def resolve(overrides: Sequence[str]) -> RunConfig:
        return resolve_config(target, schema, overrides, world_size=gpus if gpus is not None else parsed.world_size)

    translation = translate_to_bridge(parsed, mapping, resolve, schema, recipe=recipe, world_size=gpus, conditional=conditional)
    original = derive_effective(parsed, mapping.table, world_size=gpus)
    known = not any(outcome.status is Status.UNRESOLVED for outcome in translation.outcomes)
    if known and not translation.problems:
        translation = add_refusals(translation, resolve(override_texts(translation)), original, mapping)
    return replace(translation, notes=(*words.notes, *translation.notes))


def to_mlm(recipe: str, overrides: Sequence[str] = (), *, release: str | None = None, gpus: int | None = None) -> Translation:
    """Translate a recipe with overrides into Megatron-LM options.

    Raises:
        UsageError: an unknown recipe, or overrides that upstream would refuse.
        NegativeAnswer: a recipe that fails in upstream itself.
    """
    catalog, mapping = _mapping_of(release)
    target, schema = catalog.load(recipe), catalog.schema()
    config = resolve_config(target, schema, overrides, world_size=gpus)
    given = list(dict.fromkeys(item.path for item in parse_overrides(overrides, schema, base=target.fields)))
    translation = translate_to_mlm(config, mapping, schema, given=given, world_size=gpus)
    written = derive_effective(parse_arguments(mlm_words(translation, mapping), mapping.table), mapping.table, world_size=gpus)
    return add_mlm_refusals(translation, config, written, mapping, given=given)


def words_of_saved(values: Mapping[str, FieldValue], *, release: str | None = None) -> tuple[str, ...]:
    """Return the words that stand for saved arguments (destination -> value, after validation)."""
    return words_of_namespace(values, load_mlm_mapping(release).table, name="saved arguments").words


def recipe_module(recipe: str, *, release: str | None = None) -> str:
    """Return the module that exports a recipe's name, alias or canonical."""
    kind = _mapping_of(release)[0].load(recipe).kind
    return "megatron.bridge.perf_recipes" if kind is RecipeKind.BENCHMARK else "megatron.bridge.recipes"


def option_reference(*, release: str | None = None) -> str:
    """Return the reference page of Megatron-LM's options: what becomes of each, by status and layer."""
    catalog, mapping = _mapping_of(release)
    target = resolve_config(catalog.load(DEFAULT_RECIPE), catalog.schema(), ())
    return render_reference(mapping, effective_of({}, mapping.table), target)


def _read(source: MlmSource, mapping: MappingTable) -> tuple[Words, list[tuple[str, str]]]:
    given = [item for item in (source.words, source.script, source.yaml, source.checkpoint) if item is not None]
    if len(given) != 1:
        raise UsageError("give exactly one of: options after --, --script FILE, --yaml FILE, --checkpoint FILE")
    if source.script is not None:
        return _read_script(source.script, source.variables or {}, source.script_arguments)
    if source.yaml is not None:
        return read_yaml(_text_of(source.yaml), mapping.table, name=source.yaml.name, variables=source.variables), []
    if source.checkpoint is not None:
        saved = load_saved_args(source.checkpoint)
        return words_of_namespace(saved, mapping.table, name=source.checkpoint.name), []
    words = tuple(source.words or ())
    return Words(words=words, origins=tuple(["arguments"] * len(words))), []


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(Problem(code="unreadable", path=str(path), message=error.strerror or str(error))) from error


def _read_script(
    path: Path, variables: Mapping[str, str], arguments: Sequence[str] | None
) -> tuple[Words, list[tuple[str, str]]]:
    reading = read_script(_text_of(path), variables=variables, arguments=arguments)
    if not reading.words:
        raise UsageError(
            Problem(
                code="no-training-command",
                path=str(path),
                message="starts no command with Megatron-LM options that can be read without running it",
                hint="give the options themselves: autorecipe translate to-bridge -- --num-layers ...",
            )
        )
    notes = [f"{path.name}: {text}" for text in reading.unresolved]
    if arguments and read_script(_text_of(path), variables=variables).words == reading.words:
        notes.append(f"{path.name} does not read its arguments: {' '.join(arguments)} changes nothing")
    if reading.num_commands > 1:
        notes.append(f"{path.name}: {reading.num_commands} commands take options; the one with the most is translated")
    if reading.environment:
        notes.append(f"{path.name}: exports {', '.join(f'{name}={value}' for name, value in reading.environment.items())}")
    origins = tuple(f"{path.name}:{line}" if line else path.name for line in reading.lines)
    conditional = [(piece.text, f"{path.name}:{piece.line}") for piece in reading.conditional]
    return Words(words=reading.words, origins=origins, notes=tuple(notes)), conditional
