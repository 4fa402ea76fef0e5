"""What either framework would refuse about a translated configuration: joins the translation and the rules.

Rules that hold in Bridge alone, and rules that hold in Megatron-LM alone, become problems of the translation: a command line that
one side takes and the other does not has no counterpart. Rules that hold in both are notes: the original breaks them as well.
`add_refusals` judges overrides for Bridge, `add_mlm_refusals` options for Megatron-LM.
"""

from __future__ import annotations

from collections.abc import Sequence

from autorecipe.errors import Problem
from autorecipe.record import replace
from autorecipe.rules.check import judge
from autorecipe.rules.registry import all_rules, applicable_rules
from autorecipe.rules.rule import BRIDGE, MEGATRON_LM, Rule
from autorecipe.rules.situation import Situation
from autorecipe.schema import Finding, RunConfig, Severity
from autorecipe.schema.translation import Translation
from autorecipe.schema.value import FieldValue
from autorecipe.translate.effective import MlmConfig
from autorecipe.translate.mapping import MappingTable
from autorecipe.translate.precision import SECTION
from autorecipe.translate.to_bridge import is_open


def add_refusals(translation: Translation, config: RunConfig, original: MlmConfig, mapping: MappingTable) -> Translation:
    """Return a translation with what the rules find in it.

    Args:
        translation: a translation to Bridge.
        config: the recipe, resolved with it.
        original: what the Megatron-LM command line means.
        mapping: rules of the release.
    """
    typed = sorted(setting.name for setting in translation.settings)
    there = Situation(config=config, given={"overrides": typed})
    here = Situation(config=_as_given(config, original, mapping), framework=MEGATRON_LM)
    known = {problem.code for problem in translation.problems}
    problems = [_problem(finding, "Bridge") for finding in _errors(there, only=BRIDGE)]
    problems += [_problem(finding, "Megatron-LM") for finding in _errors(here, only=MEGATRON_LM)]
    notes = [f"both frameworks refuse {finding.rule}: {finding.message}" for finding in _errors(there, only=None)]
    return replace(
        translation,
        problems=(*translation.problems, *(problem for problem in problems if problem.code not in known)),
        notes=(*translation.notes, *notes),
    )


def add_mlm_refusals(
    translation: Translation, config: RunConfig, written: MlmConfig, mapping: MappingTable, *, given: Sequence[str]
) -> Translation:
    """Return a translation to Megatron-LM with what the rules find in its options.

    Args:
        translation: a translation to Megatron-LM.
        config: the configuration that was translated.
        written: what the options mean to Megatron-LM.
        mapping: rules of the release.
        given: paths of the overrides.
    """
    there = _errors(Situation(config=config, given={"overrides": sorted(given)}), only=None)
    result = Situation(config=_as_given(config, written, mapping), framework=MEGATRON_LM)
    names = {rule.id: {rule.id, *rule.aliases} for rule in all_rules()}
    shared: set[str] = set().union(*(names[finding.rule] for finding in there))
    problems = [problem for problem in translation.problems if problem.code not in shared]
    known = shared | {problem.code for problem in problems}
    found = [*_errors(result, only=MEGATRON_LM), *_errors(result, only=None)]
    problems += [_problem(finding, "Megatron-LM") for finding in found if not names[finding.rule] & known]
    notes = [f"both frameworks refuse {finding.rule}: {finding.message}" for finding in there]
    return replace(translation, problems=tuple(problems), notes=(*translation.notes, *notes))


def _as_given(config: RunConfig, original: MlmConfig, mapping: MappingTable) -> RunConfig:
    """Return the configuration of the original: what the recipe alone says gives way to Megatron-LM's own values."""
    cells = [cell for rule in mapping.rules for cell in rule.forward(original)]
    own = {cell.path: cell.value for cell in cells if cell.path in config.values and cell.path != SECTION and not is_open(cell)}
    options: dict[str, FieldValue] = {f"mlm.{dest}": original.get(dest) for dest in original.given}
    table = original.get("max_position_embeddings")
    if table is not None:
        options["model.max_position_embeddings"] = table
    return replace(config, values={**config.values, **own, **options})


def _errors(situation: Situation, *, only: str | None) -> list[Finding]:
    context = situation.context()
    rules: Sequence[Rule] = applicable_rules(context.framework, context.core, context.bridge)
    wanted = [rule for rule in rules if (rule.frameworks == (only,) if only else len(rule.frameworks) > 1)]
    return [finding for finding in judge(situation, rules=wanted, verify=False) if finding.severity is Severity.ERROR]


def _problem(finding: Finding, framework: str) -> Problem:
    path = finding.paths[0] if finding.paths else ""
    return Problem(code=finding.rule, path=path, message=f"{framework} refuses: {finding.message}", hint=finding.hint)
