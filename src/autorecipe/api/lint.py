"""Lint of shipped recipes: every legality rule, against the GPU count in each recipe's own name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autorecipe.errors import AutorecipeError
from autorecipe.record import dataclass
from autorecipe.schema.finding import Finding, Severity
from autorecipe.schema.recipe import Recipe

Progress = Callable[[int, int, str], None]

USER_INPUTS = frozenset({"checkpoint.pretrained_checkpoint", "checkpoint.load"})
"""Paths that a fine-tuning recipe leaves to its user; a finding that they are unset does not make a recipe broken."""


@dataclass(frozen=True, kw_only=True)
class LintRow:
    """One recipe that cannot run as shipped, or a warning about one.

    Attributes:
        recipe: canonical name.
        source: `path:line` in the release.
        gpus: GPU count in its name, or None.
        gpu_type: GPU in its name, or None.
        reason: `raises`, `missing file`, or `rules`.
        error: what upstream raises; empty for rules.
        findings: what rules say, worst first.
    """

    recipe: str
    source: str
    gpus: int | None
    gpu_type: str | None
    reason: str
    error: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True)
class LintReport:
    """Result of a lint.

    Attributes:
        release: Bridge release.
        checked: canonical recipes looked at.
        broken: recipes that cannot run as shipped.
        awaiting: names of recipes that lack only what their user has to give, such as the starting checkpoint.
        warned: recipes with warnings alone; only where asked for.
    """

    release: str
    checked: int
    broken: tuple[LintRow, ...]
    warned: tuple[LintRow, ...]
    awaiting: tuple[str, ...] = ()


def lint_recipes(
    names: Sequence[str] = (), *, release: str | None = None, warnings: bool = False, progress: Progress | None = None
) -> LintReport:
    """Check shipped recipes.

    Args:
        names: recipes to check; empty for every canonical one.
        release: Bridge release; the newest shipped one by default.
        warnings: whether warnings are wanted beside errors.
        progress: called after each recipe.

    Raises:
        UsageError: an unknown name.
    """
    from autorecipe.api.recipes import selected_names
    from autorecipe.catalog.store import open_catalog

    catalog = open_catalog(release)
    chosen = selected_names(names, release=release)
    broken: list[LintRow] = []
    warned: list[LintRow] = []
    awaiting: list[str] = []
    for index, name in enumerate(chosen, start=1):
        recipe = catalog.load(name)
        row = _lint_one(recipe, release=catalog.release)
        errors = [finding for finding in row.findings if finding.severity is Severity.ERROR]
        given_later = [finding for finding in errors if not USER_INPUTS.isdisjoint(finding.paths)]
        if given_later:
            awaiting.append(name)
        if row.error or len(errors) > len(given_later):
            broken.append(row)
        elif row.findings and warnings:
            warned.append(row)
        if progress is not None:
            progress(index, len(chosen), name)
    return LintReport(
        release=catalog.release, checked=len(chosen), broken=tuple(broken), warned=tuple(warned), awaiting=tuple(awaiting)
    )


def _lint_one(recipe: Recipe, *, release: str) -> LintRow:
    from autorecipe.catalog.hardware import load_gpus, make_cluster
    from autorecipe.catalog.store import open_catalog
    from autorecipe.config.resolve import resolve_config
    from autorecipe.rules.check import check_config

    def row(reason: str, error: str = "", findings: tuple[Finding, ...] = ()) -> LintRow:
        return LintRow(
            recipe=recipe.name,
            source=recipe.source,
            gpus=recipe.gpus,
            gpu_type=recipe.gpu_type,
            reason=reason,
            error=error,
            findings=findings,
        )

    if recipe.status != "ok":
        return row("missing file" if recipe.notes.get("missing_files") else "raises", recipe.error)
    try:
        config = resolve_config(recipe, open_catalog(release).schema(), world_size=recipe.gpus)
    except AutorecipeError as error:
        return row("raises", "; ".join(problem.message for problem in error.problems))
    known = recipe.gpus is not None and recipe.gpu_type in load_gpus()
    cluster = make_cluster(str(recipe.gpu_type), recipe.gpus or 1) if known else None
    findings = check_config(config, cluster, verify=False)
    kept = tuple(finding for finding in findings if finding.severity in (Severity.ERROR, Severity.WARN))
    return row("rules", findings=kept)
