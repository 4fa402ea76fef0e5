"""Judge a configuration by every rule that applies.

`check_config` is the door: findings sorted by severity, and within one severity what upstream notices last (or never)
comes first. Ways out are checked again before they are called verified. Start reading at `judge`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from autorecipe.errors import UsageError, unknown_name
from autorecipe.record import replace
from autorecipe.rules.registry import applicable_rules
from autorecipe.rules.rule import BRIDGE, FRAMEWORKS, Breach, Missing, Rule
from autorecipe.rules.situation import Situation
from autorecipe.schema import Cluster, Evidence, Finding, Fix, RunConfig, Severity, Stage

SEVERITY_ORDER = (Severity.ERROR, Severity.WARN, Severity.AUTO_FIX, Severity.UNKNOWN, Severity.INFO)
STAGE_ORDER = (
    Stage.NEVER,
    Stage.RESUME,
    Stage.RUNTIME,
    Stage.DATA,
    Stage.BUILD,
    Stage.INIT,
    Stage.VALIDATE,
    Stage.FINALIZE,
    Stage.LAUNCH,
    Stage.RECIPE,
    Stage.PARSE,
    Stage.CLI,
)
"""Latest notice first: a breach that nobody reports costs the most."""

NOT_CHECKED = "GEN001"
"""Id of the one finding that lists what could not be checked."""

MAX_FIXES = 6


def check_config(
    config: RunConfig,
    cluster: Cluster | None,
    *,
    framework: str = BRIDGE,
    core_release: str | None = None,
    environment: Mapping[str, str] | None = None,
    packages: Mapping[str, str] | None = None,
    given: Mapping[str, Any] | None = None,
    saved: Mapping[str, Any] | None = None,
    found: Mapping[str, str] | None = None,
    rules: Sequence[Rule] | None = None,
    verify: bool = True,
) -> tuple[Finding, ...]:
    """Check a resolved configuration.

    Args:
        config: what will run; Megatron-LM options without a Bridge field stand under `mlm.DEST`.
        cluster: GPUs it will run on, or None where not known.
        framework: `bridge` or `megatron-lm`.
        core_release: Megatron-Core release such as `0.16.1`; None for the one that goes with the configuration's release.
        environment: complete process environment (an absent name is unset), or None where not known.
        packages: releases of installed packages, such as `{"transformer-engine": "2.10"}`, as far as known.
        given: what the launch says beside the configuration: `dataset`, `mode`, `num_samples`, `processes`, `visible_gpus`.
        saved: configuration of the checkpoint to resume from, by path.
        found: what lies at paths on disk: `missing`, `empty`, `folder`, `megatron` or `hf`.
        rules: only these rules; None for all that apply.
        verify: whether to check each way out again; without it `Fix.verified` stays False.

    Returns:
        findings, sorted; one `GEN001` lists what could not be checked for want of facts.

    Raises:
        UsageError: an unknown framework.
    """
    if framework not in FRAMEWORKS:
        raise UsageError(unknown_name("framework", framework, FRAMEWORKS))
    situation = Situation(
        config=config,
        cluster=cluster,
        framework=framework,
        core_release=core_release or "",
        environment=environment,
        packages=packages or {},
        given=given or {},
        saved=saved or {},
        found=found or {},
    )
    return judge(situation, rules=rules, verify=verify)


Change = Callable[[Mapping[str, Any]], Situation | None]


def judge(
    situation: Situation,
    *,
    rules: Sequence[Rule] | None = None,
    verify: bool = True,
    change: Change | None = None,
) -> tuple[Finding, ...]:
    """Check one situation; arguments as in `check_config`.

    Args:
        change: how the situation looks after a fix; by default the values are replaced and nothing is resolved again. None as
            its answer means that the fix cannot be applied.
        (others): as in `check_config`.
    """
    context = situation.context()
    chosen = applicable_rules(context.framework, context.core, context.bridge) if rules is None else tuple(rules)
    findings: list[Finding] = []
    unknown: dict[str, list[str]] = {}
    for rule in chosen:
        for verdict in rule.check(context):
            if isinstance(verdict, Missing):
                for path in verdict.paths:
                    unknown.setdefault(path, []).append(rule.id)
            else:
                findings.append(_finding(rule, verdict))
    if verify and any(finding.fixes for finding in findings):
        errors = {finding.rule for finding in findings if finding.severity is Severity.ERROR}
        findings = [
            replace(finding, fixes=_verify(finding, change or situation.changed, chosen, errors)) if finding.fixes else finding
            for finding in findings
        ]
    if unknown:
        findings.append(_not_checked(unknown))
    return tuple(sorted(findings, key=order))


def order(finding: Finding) -> tuple[int, int, str, str]:
    """Return the sort key of a finding: severity, lateness of notice, rule, message."""
    return (SEVERITY_ORDER.index(finding.severity), STAGE_ORDER.index(finding.stage), finding.rule, finding.message)


def _finding(rule: Rule, breach: Breach) -> Finding:
    return Finding(
        rule=rule.id,
        severity=breach.severity or rule.severity,
        message=breach.message,
        stage=breach.stage or rule.stage,
        paths=breach.paths or rule.paths,
        legal=breach.legal,
        fixes=breach.fixes,
        hint=breach.hint,
        source=rule.source,
        evidence=rule.evidence,
        effective=breach.effective,
        facts=breach.facts,
    )


def _verify(finding: Finding, change: Change, rules: Sequence[Rule], errors: set[str]) -> tuple[Fix, ...]:
    """Check each way out again: verified when the finding is gone and no new error came."""
    checked: list[Fix] = []
    for fix in finding.fixes[: 2 * MAX_FIXES]:
        changed = change(fix.overrides)
        if changed is None:
            continue
        after = judge(changed, rules=rules, verify=False)
        broken = {item.rule for item in after if item.severity is Severity.ERROR}
        gone = not any(
            (item.rule == finding.rule and item.severity is finding.severity)
            or (item.rule == NOT_CHECKED and finding.rule in item.facts["rules"])
            for item in after
        )
        checked.append(replace(fix, verified=gone and broken <= errors))
    checked.sort(key=lambda fix: not fix.verified)
    return tuple(checked[:MAX_FIXES])


def _in_words(path: str) -> str:
    space, _, rest = path.partition(".")
    return f"what lies at {rest}" if space == "found" else path


def _not_checked(unknown: Mapping[str, Iterable[str]]) -> Finding:
    rules = sorted({rule for names in unknown.values() for rule in names})
    shown = "; ".join(f"{_in_words(path)} ({', '.join(sorted(set(names)))})" for path, names in sorted(unknown.items()))
    return Finding(
        rule=NOT_CHECKED,
        severity=Severity.UNKNOWN,
        message=f"{len(rules)} rules apply and could not be checked, because these are not known: {shown}",
        stage=Stage.NEVER,
        paths=tuple(sorted(unknown)),
        hint="give them (KEY=VALUE, --gpus, --env NAME=VALUE, --package NAME=RELEASE), or use --here on the machine that runs it",
        evidence=Evidence.DERIVED,
        facts={"rules": rules},
    )
