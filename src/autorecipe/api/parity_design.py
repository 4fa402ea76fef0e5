"""Designing a parity experiment: joins the translation, the resolution and the comparison of configurations."""

from __future__ import annotations

from autorecipe.api.translate import DEFAULT_RECIPE, MlmSource, load_mlm_mapping, to_bridge, to_mlm, words_of_saved
from autorecipe.catalog.store import open_catalog
from autorecipe.config.overrides import render_override
from autorecipe.config.resolve import resolve_config
from autorecipe.config.views import view_layout
from autorecipe.errors import AutorecipeError
from autorecipe.parity.design import CHECKLIST, companion_of, find_unmatched, render_command
from autorecipe.parity.sides import SideSpec, parse_side
from autorecipe.record import dataclass
from autorecipe.schema.change import Change
from autorecipe.schema.layer import Layer
from autorecipe.schema.parity import DesignSide, ParityDesign, SideKind
from autorecipe.schema.run import RunConfig
from autorecipe.schema.translation import Translation
from autorecipe.translate.arguments import parse_arguments
from autorecipe.translate.render import override_texts
from autorecipe.translate.to_mlm import mlm_words


@dataclass(frozen=True)
class ResolvedSide:
    """A side with its effective configuration in Bridge's fields.

    Attributes:
        spec: as given.
        config: effective configuration.
        translation: for Megatron-LM, how it became one; None for Bridge.
        words: options or overrides as given, scripts read.
    """

    spec: SideSpec
    config: RunConfig
    translation: Translation | None
    words: tuple[str, ...]


def design_parity(
    a: str,
    b: str,
    *,
    release: str | None = None,
    gpus: int | None = None,
    match_execution: bool = False,
    megatron_lm: str = "3rdparty/Megatron-LM",
) -> ParityDesign:
    """Say what makes two sides not comparable, and correct the second one.

    Args:
        a: the side that counts as right.
        b: the side to correct.
        release: Bridge release.
        gpus: processes; what the sides say, or the smallest world of their layouts, by default.
        match_execution: whether fields that only drift are matched as well.
        megatron_lm: Megatron-LM checkout, for the command.

    Raises:
        UsageError: a side that cannot be read or resolved.
    """
    specs = [parse_side(text, default_recipe=DEFAULT_RECIPE) for text in (a, b)]
    recipe = next((spec.recipe for spec in specs if spec.kind is SideKind.BRIDGE), DEFAULT_RECIPE)
    sides = [resolve_side(spec, recipe=recipe, release=release, gpus=gpus) for spec in specs]
    schema = open_catalog(release).schema()
    convergence, execution = find_unmatched(sides[0].config, sides[1].config, schema)
    wanted = (*convergence, *execution) if match_execution else convergence
    fixes = _fixes(wanted, sides[0].config)
    lost = [f"{outcome.name}: {outcome.note}" for side in sides if side.translation for outcome in side.translation.lost]
    corrected, more_lost = _correct(sides[1], fixes, release=release, gpus=gpus)
    lost += more_lost
    processes = gpus or _processes(sides)
    mock = any(side.translation is not None and "--mock-data" in side.words for side in sides) or _is_mock(sides[1].config)
    shown = []
    for label, side, words in (("A", sides[0], sides[0].words), ("B", sides[1], corrected)):
        command = render_command(
            side.spec.kind, words, recipe=side.spec.recipe, processes=processes, mock=mock, megatron_lm=megatron_lm
        )
        shown.append(
            DesignSide(
                label=label,
                kind=side.spec.kind,
                given=side.spec.text,
                words=side.words,
                recipe=side.spec.recipe,
                corrected=tuple(words),
                command=command,
                processes=processes,
            )
        )
    notes = [note for side in sides if side.translation is not None for note in side.translation.notes]
    notes += [note for side in sides for note in side.config.notes]
    problems = [problem.render().splitlines()[0] for side in sides if side.translation for problem in side.translation.problems]
    return ParityDesign(
        sides=(shown[0], shown[1]),
        unmatched=convergence,
        execution=execution,
        fixes=tuple(fixes),
        lost=tuple(lost),
        comparable=not lost and not problems,
        checklist=CHECKLIST,
        notes=tuple(dict.fromkeys((*problems, *notes))),
    )


def find_effective_differences(a: str, b: str, *, release: str | None = None) -> tuple[Change, ...]:
    """Return the settings that decide the training and differ in effect between two sides.

    Raises:
        UsageError: a side that does not state its settings, or cannot be resolved.
    """
    specs = [parse_side(text, default_recipe=DEFAULT_RECIPE) for text in (a, b)]
    recipe = next((spec.recipe for spec in specs if spec.kind is SideKind.BRIDGE), DEFAULT_RECIPE)
    first, second = (resolve_side(spec, recipe=recipe, release=release) for spec in specs)
    convergence, _ = find_unmatched(first.config, second.config, open_catalog(release).schema())
    return convergence


def resolve_side(spec: SideSpec, *, recipe: str, release: str | None = None, gpus: int | None = None) -> ResolvedSide:
    """Resolve a side; Megatron-LM's becomes the configuration of a recipe that does the same."""
    catalog = open_catalog(release)
    schema = catalog.schema()
    world = gpus or spec.processes
    if spec.kind is SideKind.BRIDGE:
        config = resolve_config(catalog.load(spec.recipe), schema, spec.words, world_size=world)
        return ResolvedSide(spec, config, None, spec.words)
    is_script = spec.script is not None and spec.script.suffix not in (".yaml", ".yml")
    words = spec.words if spec.saved is None else words_of_saved(spec.saved, release=release)
    source = MlmSource(
        words=words if spec.script is None else None,
        script=spec.script if is_script else None,
        yaml=spec.script if spec.script is not None and not is_script else None,
    )
    translation = to_bridge(source, recipe=recipe, release=release, gpus=gpus)
    given = tuple(word for outcome in translation.outcomes for word in (outcome.name, *outcome.value.split()))
    config = resolve_config(catalog.load(recipe), schema, override_texts(translation), world_size=world or translation.world_size)
    return ResolvedSide(spec, config, translation, given)


def _fixes(changes: tuple[Change, ...], reference: RunConfig) -> list[str]:
    """Return the overrides that give the second side the first side's values."""
    fixes: list[str] = []
    for change in changes:
        fixes.append(render_override(change.path, change.before))
        companion = companion_of(change.path)
        if companion is not None:
            fixes.append(render_override(companion, change.before))
    return fixes


def _correct(side: ResolvedSide, fixes: list[str], *, release: str | None, gpus: int | None) -> tuple[tuple[str, ...], list[str]]:
    """Return the words of the corrected side, and what could not be corrected."""
    if side.spec.kind is SideKind.BRIDGE:
        moved = {text.partition("=")[0] for text in fixes}
        kept = tuple(word for word in side.words if word.partition("=")[0] not in moved)
        return (*kept, *fixes), []
    if not fixes:
        return side.words, []
    assert side.translation is not None
    mapping = load_mlm_mapping(release)
    texts = [*override_texts(side.translation), *fixes]
    try:
        wanted = to_mlm(side.translation.recipe, texts, release=release, gpus=gpus)
    except AutorecipeError as error:
        return side.words, [problem.message for problem in error.problems]
    parsed = parse_arguments(side.words, mapping.table)
    known = {item.option.dest for item in parsed.given if item.option is not None}
    moved = {text.partition("=")[0] for text in fixes}
    dests = {dest for path in moved if path in mapping.paths for dest in mapping.paths[path].dests}
    words = [
        word for item in parsed.given if item.option is None or item.option.dest not in dests for word in (item.name, *item.texts)
    ]
    target = mlm_words(wanted, mapping)
    added = parse_arguments(target, mapping.table)
    for item in added.given:
        assert item.option is not None
        if item.option.dest in dests and (item.option.dest in known or item.option.dest in dests):
            words += [item.name, *item.texts]
    lost = [f"{outcome.name}: {outcome.note}" for outcome in wanted.lost if outcome.name in moved]
    return tuple(words), lost


def _processes(sides: list[ResolvedSide]) -> int:
    said = [side.spec.processes or (side.translation.world_size if side.translation is not None else None) for side in sides]
    return next((count for count in said if count), max(view_layout(side.config).minimum_world_size for side in sides))


def _is_mock(config: RunConfig) -> bool:
    return not any(config.get(path, None) for path in ("dataset.data_path", "dataset.blend", "dataset.blend_per_split"))


def moves_convergence(design: ParityDesign) -> bool:
    """Return whether the pair as given was not comparable."""
    return bool(design.unmatched) or any(change.layer is Layer.BENCHMARK_ONLY for change in design.execution)
