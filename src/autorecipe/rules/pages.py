"""The page of a rule, as plain text and as data; the reference page is the list of them."""

from __future__ import annotations

from collections.abc import Mapping

from autorecipe.record import dataclass
from autorecipe.rules.check import judge
from autorecipe.rules.registry import all_rules
from autorecipe.rules.rule import Rule
from autorecipe.rules.situation import Situation, read_situation

TOPICS: Mapping[str, str] = {
    "PAR": "World size and parallel axes",
    "PIP": "Pipeline stages and schedule",
    "BAT": "Batch",
    "MOE": "Mixture of experts",
    "REC": "Recompute and offload",
    "CUD": "CUDA graphs",
    "FSD": "FSDP and data-parallel buffers",
    "OVL": "Communication overlap",
    "PRC": "Precision and determinism",
    "SCH": "Length and schedule",
    "CKP": "Checkpoints, resuming, adapters",
    "SEQ": "Sequence length and context parallelism",
    "PCK": "Packed sequences",
    "DAT": "Data sets, tokenizers, vocabulary",
    "HYB": "Hybrid models",
    "MDL": "Model sizes, attention, activations, single models",
    "OPT": "Optimizers, sharded weights, rank order",
    "ORD": "Order of application: overrides that do not act",
    "LCH": "Launch and environment",
    "PIT": "Pitfalls: it runs, and is likely not what is wanted",
    "LOG": "Logging and profiling",
    "ARG": "Old and rare options of Megatron-LM",
    "MIM": "Multi-module grids",
}
"""Topic of an id -> heading."""


@dataclass(frozen=True, kw_only=True)
class RulePage:
    """What is known about one rule.

    Attributes:
        id: rule id.
        title: what must hold.
        severity: of a breach.
        stage: when upstream would notice.
        frameworks: where it holds.
        releases: Megatron-Core and Bridge releases in which it holds.
        formula: the condition.
        why: what happens otherwise.
        source: where it was learned from.
        evidence: how strong it is.
        aliases: other names.
        paths: configuration paths that it reads.
        example: a situation that breaks it, as words.
        mended: change that mends the example.
        finding: what the rule says about the example.
        text: the page as plain text.
    """

    id: str
    title: str
    severity: str
    stage: str
    frameworks: tuple[str, ...]
    releases: str
    formula: str
    why: str
    source: str
    evidence: str
    aliases: tuple[str, ...]
    paths: tuple[str, ...]
    example: str
    mended: str
    finding: str
    text: str


def rule_page(rule: Rule) -> RulePage:
    """Return the page of a rule."""
    finding = example_message(rule)
    releases = f"Megatron-Core {rule.core.render()}, Bridge {rule.bridge.render()}"
    noticed = "never" if rule.stage.value == "never" else f"at {rule.stage.value}"
    lines = [
        f"{rule.id}: {rule.title}",
        "",
        f"  severity   {rule.severity.value}; upstream notices {noticed}",
        f"  holds in   {', '.join(rule.frameworks)}; {releases}",
        f"  formula    {rule.formula}",
        f"  why        {rule.why}",
        f"  source     {rule.source} ({rule.evidence.value})",
        f"  also       {', '.join(rule.aliases)}",
        f"  reads      {', '.join(rule.paths)}",
        f"  example    {rule.bad.words}",
        f"  says       {finding}",
        f"  mended by  {rule.good.words}",
    ]
    return RulePage(
        id=rule.id,
        title=rule.title,
        severity=rule.severity.value,
        stage=rule.stage.value,
        frameworks=rule.frameworks,
        releases=releases,
        formula=rule.formula,
        why=rule.why,
        source=rule.source,
        evidence=rule.evidence.value,
        aliases=rule.aliases,
        paths=rule.paths,
        example=rule.bad.words,
        mended=rule.good.words,
        finding=finding,
        text="\n".join(lines),
    )


def example_message(rule: Rule) -> str:
    """Return what the rule says about its own example."""
    situation = example_situation(rule)
    found = [finding for finding in judge(situation, rules=(rule,), verify=False) if finding.rule == rule.id]
    return found[0].message if found else ""


def example_situation(rule: Rule) -> Situation:
    """Return the rule's bad example, in a framework where the rule holds."""
    from autorecipe.record import replace

    situation = read_situation(rule.bad)
    if situation.framework not in rule.frameworks:
        situation = replace(situation, framework=rule.frameworks[0])
    return situation


def render_reference() -> str:
    """Render every rule as one Markdown page, by topic."""
    rules = all_rules()
    lines = [
        "# Rules",
        "",
        f"{len(rules)} rules, generated from their declarations by `scripts/build_rule_reference.py`. `autorecipe explain ID`",
        "shows the whole page of one: why, source, example and what mends it. What upstream notices *never*, or only at *init*,",
        "*build*, *data*, *runtime* or *resume*, none of its own dry runs catches.",
        "",
    ]
    for topic, heading in TOPICS.items():
        chosen = [rule for rule in rules if rule.id.startswith(topic)]
        if not chosen:
            continue
        lines += [
            f"## {topic}: {heading}",
            "",
            "| id | severity | noticed | holds in | what must hold | formula | also known as |",
        ]
        lines.append("|---|---|---|---|---|---|---|")
        lines += [_reference_row(rule) for rule in chosen]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _reference_row(rule: Rule) -> str:
    holds = ", ".join(rule.frameworks) if len(rule.frameworks) == 1 else "both"
    for name, releases in (("core", rule.core), ("Bridge", rule.bridge)):
        if releases.render() != "all":
            holds += f", {name} {releases.render()}"
    cells = (rule.id, rule.severity.value, rule.stage.value, holds, rule.title, f"`{rule.formula}`", " ".join(rule.aliases))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
