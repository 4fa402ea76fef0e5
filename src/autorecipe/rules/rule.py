"""What a rule is: one declared constraint, and what it finds.

A rule looks at a `Context` and yields `Breach` (it is broken) or `Missing` (its inputs are not known). `check.py` turns
those into findings. Simple constraints are declared with `declare.requires` and its siblings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from autorecipe.record import dataclass, field
from autorecipe.rules.release import ReleaseRange
from autorecipe.schema import Evidence, Fix, Severity, Stage
from autorecipe.schema.value import FieldValue

if TYPE_CHECKING:
    from autorecipe.rules.context import Context

BRIDGE = "bridge"
MEGATRON_LM = "megatron-lm"
FRAMEWORKS = (BRIDGE, MEGATRON_LM)

MLM = "Megatron-LM d98e8a64"
MBR = "Megatron-Bridge 067f987d"


@dataclass(frozen=True, kw_only=True)
class Breach:
    """One broken constraint. Fields as in `Finding`; unset ones come from the rule."""

    message: str
    severity: Severity | None = None
    stage: Stage | None = None
    paths: tuple[str, ...] = ()
    legal: Mapping[str, Any] = field(default_factory=dict)
    fixes: tuple[Fix, ...] = ()
    hint: str = ""
    effective: Mapping[str, FieldValue] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Missing:
    """The rule applies, and could not be decided because these inputs are not known."""

    paths: tuple[str, ...]


Verdict: TypeAlias = Breach | Missing
Check: TypeAlias = "Callable[[Context], Iterable[Verdict]]"


@dataclass(frozen=True, kw_only=True)
class Example:
    """A situation, as `path=value` words; `gpus`, `gpu`, `core`, `framework`, `env.NAME`, `given.NAME`, `saved.PATH` as well.

    Words are read like overrides. `good` repeats `bad` with its own words on top.
    """

    words: str

    def merged(self, change: Example) -> Example:
        """Return this situation with another's words on top."""
        return Example(words=f"{self.words} {change.words}")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One constraint of the domain.

    Attributes:
        id: topic and number, stable and never reused.
        title: what must hold, as one sentence.
        severity: of a breach, unless the check says otherwise.
        stage: when upstream would notice.
        check: yields breaches.
        state: gives `formula`; called once, and only when somebody wants to read it.
        why: what happens otherwise.
        cite: gives `source`, likewise.
        evidence: how strong it is.
        aliases: other names under which people may look for it.
        frameworks: where it holds.
        core: Megatron-Core releases in which it holds.
        bridge: Megatron Bridge releases in which it holds.
        reads: gives `paths`, likewise.
        bad: smallest situation that breaks it.
        good: change to `bad` that mends it.
    """

    id: str
    title: str
    severity: Severity
    stage: Stage
    check: Check
    state: Callable[[], str]
    why: str
    cite: Callable[[], str]
    evidence: Evidence = Evidence.ENFORCED_UPSTREAM
    aliases: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = FRAMEWORKS
    core: ReleaseRange = field(default_factory=ReleaseRange)
    bridge: ReleaseRange = field(default_factory=ReleaseRange)
    reads: Callable[[], tuple[str, ...]] = tuple
    bad: Example
    good: Example

    @cached_property
    def formula(self) -> str:
        """The condition, in words or symbols."""
        return self.state()

    @cached_property
    def source(self) -> str:
        """Upstream `file:line @ revision`, or what it was learned from."""
        return self.cite()

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Configuration paths that it reads."""
        return self.reads()

    def holds_in(self, *, framework: str, core: str, bridge: str) -> bool:
        """Return whether the rule applies to these releases."""
        return framework in self.frameworks and core in self.core and (framework != BRIDGE or bridge in self.bridge)
