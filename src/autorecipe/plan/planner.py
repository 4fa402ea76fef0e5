"""The planner: search, let the full rules judge the best, explain what is left.

The search uses the fast predicates that the rules are made of; whatever it would recommend is then resolved and checked by
every rule, and dropped when one objects. Start reading at `plan_layouts`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from autorecipe.estimate.memory import estimate_memory
from autorecipe.estimate.time import estimate_time
from autorecipe.plan.coster import Coster, Scored
from autorecipe.plan.explain import explain_candidate
from autorecipe.plan.search import SearchResult, search
from autorecipe.plan.settings import STAGE_PATHS, candidate_overrides, candidate_settings, label_overrides
from autorecipe.plan.space import find_refusal
from autorecipe.plan.ways import find_ways_out
from autorecipe.record import replace
from autorecipe.rules.check import check_config
from autorecipe.schema.finding import Finding, Severity
from autorecipe.schema.layout import Layout
from autorecipe.schema.plan import Candidate, Choice, Plan, PlanRequest
from autorecipe.schema.run import RunConfig
from autorecipe.schema.value import FieldValue

Resolve = Callable[[Mapping[str, FieldValue]], RunConfig]
"""Turns overrides into a resolved configuration; given by the caller, who knows the recipe."""

CHECKED_AT_MOST = 200
"""Candidates that the full rules look at before the planner gives up finding more that they accept."""


def plan_layouts(
    request: PlanRequest,
    *,
    top: int = 5,
    base: RunConfig | None = None,
    resolve: Resolve | None = None,
    progress: Callable[[int], None] | None = None,
) -> Plan:
    """Plan the layout of a fixed training on fixed GPUs.

    Args:
        request: what to plan.
        top: choices wanted.
        base: resolved recipe, from which overrides are counted; None lists every setting.
        resolve: resolves overrides for the full rule check; None skips that check and says so.
        progress: called now and then with the number of points seen.

    Returns:
        choices, best first; when nothing fits, the nearest candidate and ways out.
    """
    result = search(request, progress=progress)
    coster = Coster(request)
    judge = _Judge(request, base, resolve)
    choices: list[Choice] = []
    for scored in result.fitting[:CHECKED_AT_MOST]:
        if len(choices) == top:
            break
        if _repeats(scored, choices):
            continue
        findings = judge.findings(scored)
        objection = judge.objection(scored, findings)
        if objection:
            judge.dropped[objection] += 1
            continue
        choices.append(make_choice(request, scored, coster, base=base, findings=findings))
    notes = _notes(judge, resolve)
    shipped, refusal = _shipped(request, coster, base)
    pareto = tuple(make_choice(request, item, coster, base=base, explain=False) for item in result.pareto[:12])
    if choices:
        return Plan(
            request=request,
            choices=tuple(choices),
            shipped=shipped,
            shipped_refusal=refusal,
            pareto=pareto,
            count=result.count,
            notes=notes,
        )
    return Plan(
        request=request,
        choices=(),
        shipped=shipped,
        shipped_refusal=refusal,
        pareto=(),
        count=result.count,
        ways_out=find_ways_out(request, result),
        nearest=_nearest(request, result, coster, base),
        notes=notes,
    )


def make_choice(
    request: PlanRequest,
    scored: Scored,
    coster: Coster,
    *,
    base: RunConfig | None,
    findings: tuple[Finding, ...] = (),
    explain: bool = True,
) -> Choice:
    """Turn a scored candidate into a choice with its breakdown, overrides and reasons."""
    candidate, layout = scored.candidate, scored.candidate.layout
    batch = coster.batch(candidate.micro_batch_size)
    estimate = estimate_time(
        request.shape,
        layout=layout,
        batch=batch,
        policy=coster.policy(candidate),
        gpu=request.cluster.gpu,
        world_size=coster.world,
    )
    memory = estimate_memory(request.shape, layout=layout, batch=batch, policy=coster.policy(candidate), world_size=coster.world)
    overrides = candidate_overrides(candidate, request.shape, base)
    return Choice(
        candidate=candidate,
        step_seconds=estimate.step_seconds,
        tokens_per_second_per_gpu=estimate.tokens_per_second_per_gpu,
        tflops_per_gpu=estimate.tflops_per_gpu,
        peak_bytes=memory.peak_bytes,
        verdict=scored.verdict,
        data_parallel_size=layout.data_parallel_size(coster.world),
        expert_data_parallel_size=layout.expert_data_parallel_size(coster.world),
        num_microbatches=scored.num_microbatches,
        bubble_fraction=estimate.bubble_fraction,
        breakdown_seconds=estimate.breakdown_seconds,
        overrides=overrides,
        layers=label_overrides(overrides),
        reasons=explain_candidate(request, scored, coster) if explain else (),
        findings=findings,
    )


class _Judge:
    """Full rules on candidates, and what they refused."""

    def __init__(self, request: PlanRequest, base: RunConfig | None, resolve: Resolve | None) -> None:
        self.request, self.base, self.resolve = request, base, resolve
        self.dropped: Counter[str] = Counter()
        self.open: dict[str, Finding] = {}

    def objection(self, scored: Scored, findings: Iterable[Finding]) -> str:
        """Return the rule that a candidate breaks, or an empty text.

        An error that names nothing the planner decides holds for every layout, such as a missing starting checkpoint: it is
        noted once and is no reason to drop one.
        """
        decided = {*candidate_settings(scored.candidate, self.request.shape), *STAGE_PATHS}
        broken = ""
        for finding in findings:
            if finding.severity is not Severity.ERROR:
                continue
            if decided.intersection(finding.paths):
                broken = broken or finding.rule
            else:
                self.open[finding.rule] = finding
        return broken

    def findings(self, scored: Scored) -> tuple[Finding, ...]:
        if self.resolve is None:
            return ()
        overrides = candidate_overrides(scored.candidate, self.request.shape, self.base)
        found = check_config(
            self.resolve(overrides),
            self.request.cluster,
            core_release=self.request.core_release or None,
            verify=False,
        )
        return tuple(item for item in found if item.severity in (Severity.ERROR, Severity.WARN))


def _repeats(scored: Scored, choices: Iterable[Choice]) -> bool:
    """Whether a choice with the same layout and micro batch size is already listed; its recomputation is cheaper."""
    return any(
        choice.candidate.layout == scored.candidate.layout
        and choice.candidate.micro_batch_size == scored.candidate.micro_batch_size
        and choice.candidate.fsdp == scored.candidate.fsdp
        for choice in choices
    )


def _shipped(request: PlanRequest, coster: Coster, base: RunConfig | None) -> tuple[Choice | None, str]:
    layout = request.layout
    if layout is None:
        return None, ""
    candidate = shipped_candidate(request, layout)
    refusal = find_refusal(request, candidate)
    if refusal:
        return None, refusal
    return make_choice(request, coster.score(candidate), coster, base=base), ""


def shipped_candidate(request: PlanRequest, layout: Layout) -> Candidate:
    """Return the recipe's own layout, recomputation and split as a candidate."""
    return Candidate(
        layout=layout,
        micro_batch_size=request.batch.micro_batch_size,
        recompute=request.policy.recompute,
        split=request.policy.split,
        fsdp=request.policy.fsdp,
    )


def _nearest(request: PlanRequest, result: SearchResult, coster: Coster, base: RunConfig | None) -> Choice | None:
    if result.at_risk:
        return make_choice(request, result.at_risk[0], coster, base=base)
    if result.nearest is None:
        return None
    candidate = result.nearest.candidate
    return make_choice(request, coster.score(candidate), coster, base=base)


def _notes(judge: _Judge, resolve: Resolve | None) -> tuple[str, ...]:
    notes = []
    if resolve is None:
        notes.append("only the layout rules were applied; `autorecipe check` judges the whole configuration")
    for rule, finding in judge.open.items():
        hint = f"; {finding.hint}" if finding.hint else ""
        notes.append(f"before it runs, whatever the layout: {rule}: {finding.message}{hint}")
    if judge.dropped:
        rules = ", ".join(f"{rule} ({count})" for rule, count in judge.dropped.most_common())
        notes.append(f"fast candidates dropped by the full rules: {rules}")
    return tuple(notes)


def replace_cluster(request: PlanRequest, num_gpus: int, *, global_batch_size: int | None = None) -> PlanRequest:
    """Return the same request on another GPU count."""
    cluster = replace(request.cluster, num_gpus=num_gpus, gpus_per_node=min(request.cluster.gpus_per_node, num_gpus))
    batch = request.batch
    if global_batch_size is not None:
        batch = replace(batch, global_batch_size=global_batch_size)
    return replace(request, cluster=cluster, batch=batch)
