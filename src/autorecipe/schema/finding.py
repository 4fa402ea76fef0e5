"""What a rule says about a configuration."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from autorecipe.record import dataclass, field
from autorecipe.schema.evidence import Evidence
from autorecipe.schema.layer import Layer
from autorecipe.schema.value import FieldValue


class Severity(enum.StrEnum):
    """ERROR: it cannot run, or trains something else. WARN: it runs, and is likely not what is wanted.

    AUTO_FIX: upstream changes the value by itself. INFO: worth knowing. UNKNOWN: could not be checked, and why.
    """

    ERROR = "error"
    WARN = "warn"
    AUTO_FIX = "auto-fix"
    INFO = "info"
    UNKNOWN = "not-checked"


class Stage(enum.StrEnum):
    """When upstream would notice; NEVER is the most dangerous."""

    CLI = "cli"
    PARSE = "parse"
    RECIPE = "recipe"
    LAUNCH = "launch"
    FINALIZE = "finalize"
    VALIDATE = "validate"
    INIT = "init"
    BUILD = "build"
    DATA = "data"
    RUNTIME = "runtime"
    RESUME = "resume"
    NEVER = "never"


@dataclass(frozen=True, kw_only=True)
class Fix:
    """One way to make a finding go away.

    Attributes:
        overrides: path -> new value. The special path `gpus` stands for the GPU count, `env.NAME` for an environment variable.
        note: what else it means, such as `needs another layer layout`.
        layers: layers of change that it touches.
        verified: whether the fixed configuration was checked and has no error left.
    """

    overrides: Mapping[str, FieldValue]
    note: str = ""
    layers: tuple[Layer, ...] = ()
    verified: bool = False


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One result of one rule.

    Attributes:
        rule: id such as `PAR003`.
        severity: how bad.
        message: what is wrong, with the numbers in it.
        stage: when upstream would notice.
        paths: configuration paths involved.
        legal: computed legal values by path, such as `{"model.tensor_model_parallel_size": [1, 2, 4, 8]}`.
        fixes: ways out, best first.
        hint: one thing to do next.
        source: upstream `file:line @ release` or measurement id.
        evidence: how strong the rule is.
        effective: values that upstream will really use, when they differ from the given ones.
        facts: numbers that the rule computed, by name (`minimum_gpus`, `num_microbatches` ...).
    """

    rule: str
    severity: Severity
    message: str
    stage: Stage
    paths: tuple[str, ...] = ()
    legal: Mapping[str, Any] = field(default_factory=dict)
    fixes: tuple[Fix, ...] = ()
    hint: str = ""
    source: str = ""
    evidence: Evidence = Evidence.ENFORCED_UPSTREAM
    effective: Mapping[str, FieldValue] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FixStep:
    """One change that the corrected run makes.

    Attributes:
        rule: id of the finding that it answers.
        words: what to type: `KEY=VALUE`, `--gpus N`, `--env NAME=VALUE`.
        layers: layer of change by path.
        note: what else it means.
    """

    rule: str
    words: tuple[str, ...]
    layers: Mapping[str, Layer]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class CorrectedRun:
    """Overrides that make a run pass.

    Attributes:
        overrides: the complete list, the given ones included.
        options: further command-line words, such as `--gpus 16`.
        steps: each change, in the order made.
        remaining: findings of severity ERROR that no verified fix removes.
    """

    overrides: tuple[str, ...]
    options: tuple[str, ...]
    steps: tuple[FixStep, ...]
    remaining: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """The answer of a check.

    Attributes:
        subject: recipe name or file.
        framework: `bridge` or `megatron-lm`.
        release: Bridge release of the configuration.
        core_release: Megatron-Core release that was assumed.
        gpu: GPU type, or None where not given.
        gpus: number of GPUs, or None where not known.
        findings: sorted, worst and latest-noticed first.
        notes: what resolution says: values that do not act, resets, presets that overwrite.
        corrected: overrides that make it pass, where they were asked for.
    """

    subject: str
    framework: str
    release: str
    core_release: str
    gpu: str | None
    gpus: int | None
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    corrected: CorrectedRun | None = None

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return not any(finding.severity is Severity.ERROR for finding in self.findings)
