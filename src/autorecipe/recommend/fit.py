"""Fit a recipe to the GPUs, and judge by every rule what came out.

A layout that breaks a rule is not taken, and what the recipe itself breaks there is repaired where the rule knows how. Start at
`fit_recipe`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from autorecipe.recommend.changes import list_changes
from autorecipe.recommend.colleague import Colleague, Launch
from autorecipe.recommend.sizing import Sizer, size_recipe
from autorecipe.record import dataclass, replace
from autorecipe.schema.finding import Finding, Severity
from autorecipe.schema.hardware import Cluster
from autorecipe.schema.plan import Candidate as LayoutCandidate
from autorecipe.schema.recipe import RecipeKind
from autorecipe.schema.recommendation import Candidate, LabelledOverride, Sizing, Statement, Verdict
from autorecipe.schema.value import FieldValue

REPAIR_ROUNDS = 2
"""Rounds of repair: one fix may uncover another error."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is to be fitted.

    Attributes:
        pick: the recipe.
        cluster: GPUs asked for.
        launch: what the launch says.
        seq_length: tokens per sample asked for, or None.
        adapter: `lora` or `dora`, for PEFT.
    """

    pick: Candidate
    cluster: Cluster
    launch: Launch
    seq_length: int | None = None
    adapter: str | None = None


@dataclass(frozen=True, kw_only=True)
class Fit:
    """How a recipe will run.

    Attributes:
        sizer: of the recipe, repairs included.
        sizing: layout, GPUs and memory.
        overrides: what the command says.
        used: the GPUs used.
        findings: what the rules say of exactly this; empty where it does not run.
    """

    sizer: Sizer
    sizing: Sizing
    overrides: tuple[LabelledOverride, ...]
    used: Cluster
    findings: tuple[Finding, ...] = ()

    @property
    def runs(self) -> bool:
        """Whether there is a layout to run."""
        return self.sizing.verdict is not Verdict.DOES_NOT_FIT

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What upstream would refuse."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    @property
    def passes(self) -> bool:
        """Whether no rule finds an error."""
        return not self.errors


def fit_recipe(task: Task, colleague: Colleague) -> Fit:
    """Fit a recipe to the GPUs asked for.

    A benchmark recipe is never changed. A library recipe that a rule refuses there gets the rule's own first fix, labelled like
    every override, as long as that leaves fewer errors.
    """
    fit = _Fitter(task, colleague, ()).fit()
    for _ in range(REPAIR_ROUNDS):
        if fit.passes or task.pick.kind is not RecipeKind.LIBRARY:
            break
        repairs = _list_repairs(fit, colleague)
        if not repairs:
            break
        repaired = _Fitter(task, colleague, repairs).fit()
        if not repaired.runs or len(repaired.errors) >= len(fit.errors):
            break
        fit = repaired
    return fit


class _Fitter:
    """Fits one recipe with given repairs."""

    def __init__(self, task: Task, colleague: Colleague, repairs: tuple[LabelledOverride, ...]) -> None:
        self.task, self.colleague, self.repairs = task, colleague, repairs
        self._inherent: frozenset[str] | None = None
        is_library = task.pick.kind is RecipeKind.LIBRARY
        world = None if is_library else task.cluster.num_gpus
        self.config = colleague.resolve(task.pick.name, render_overrides(repairs), world, task.launch)
        self.sizer = Sizer(self.config, seq_length=task.seq_length, moves=is_library, objects=self.objects)

    def fit(self) -> Fit:
        task, pick = self.task, self.task.pick
        sizing = size_recipe(self.sizer, task.cluster, recipe_gpus=pick.gpus)
        if self.repairs and sizing.verdict is Verdict.AS_SHIPPED:
            sizing = replace(sizing, verdict=Verdict.RESIZED)
        changes = list_changes(self.sizer, sizing, self.colleague.classify, mode=pick.mode, kind=pick.kind)
        changed = {change.path for change in changes}
        overrides = (*changes, *(repair for repair in self.repairs if repair.path not in changed))
        num_gpus = sizing.num_gpus or task.cluster.num_gpus
        used = replace(task.cluster, num_gpus=num_gpus, gpus_per_node=sizing.gpus_per_node)
        fit = Fit(sizer=self.sizer, sizing=sizing, overrides=overrides, used=used)
        return replace(fit, findings=self.check(render_overrides(overrides), used)) if fit.runs else fit

    def check(self, texts: Sequence[str], cluster: Cluster) -> tuple[Finding, ...]:
        task = self.task
        given: dict[str, object] = {"dataset": task.launch.dataset} if task.launch.dataset else {}
        if task.pick.mode is not None:
            given["mode"] = task.adapter or task.pick.mode.value
        config = self.colleague.resolve(task.pick.name, texts, cluster.num_gpus, task.launch)
        return self.colleague.check(config, cluster, given)

    def objects(self, candidate: LayoutCandidate, cluster: Cluster) -> bool:
        """Return whether a rule refuses a candidate for what the search decided, and not for what the recipe is anyway."""
        from autorecipe.plan.settings import STAGE_PATHS, candidate_overrides, candidate_settings

        inputs = self.sizer.inputs
        assert inputs is not None
        if self._inherent is None:
            home = self.sizer.home(cluster, self.task.pick.gpus)
            self._inherent = frozenset(
                finding.rule for finding in self.check(render_overrides(self.repairs), home) if finding.severity is Severity.ERROR
            )
        decided = {*candidate_settings(candidate, inputs.shape), *STAGE_PATHS}
        overrides: dict[str, FieldValue] = {repair.path: repair.value for repair in self.repairs}
        overrides |= candidate_overrides(candidate, inputs.shape, self.config)
        if self.task.seq_length is not None:
            overrides |= {"dataset.seq_length": self.task.seq_length, "model.seq_length": self.task.seq_length}
        return any(
            finding.severity is Severity.ERROR and finding.rule not in self._inherent and decided.intersection(finding.paths)
            for finding in self.check(_render(overrides), cluster)
        )


def _list_repairs(fit: Fit, colleague: Colleague) -> tuple[LabelledOverride, ...]:
    """Return the first fix of each error that overrides alone can make, beside the repairs made already."""
    repairs = {change.path: change for change in fit.overrides if change.reason.code == "change.repair"}
    known = len(repairs)
    for error in fit.errors:
        for fix in error.fixes:
            if all("." in path and not path.startswith("env.") for path in fix.overrides):
                for path, value in fix.overrides.items():
                    reason = Statement(code="change.repair", facts={"rule": error.rule})
                    before = fit.sizer.config.get(path, None)
                    repairs[path] = LabelledOverride(
                        path=path, value=value, before=before, layer=colleague.classify(path), reason=reason
                    )
                break
    return tuple(repairs.values()) if len(repairs) > known else ()


def render_overrides(overrides: Iterable[LabelledOverride]) -> list[str]:
    """Return overrides as they are typed."""
    return _render({change.path: change.value for change in overrides})


def _render(overrides: Mapping[str, FieldValue]) -> list[str]:
    if not overrides:
        return []
    from autorecipe.launch.training import render_override

    return [render_override(path, value) for path, value in overrides.items()]
