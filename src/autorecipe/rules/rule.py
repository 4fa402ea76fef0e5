"""What a rule is: one declared constraint, and what it finds.

A rule looks at a `Context` and gives `Breach` (it is broken) or `Missing` (its inputs are not known). `check.py` turns
those into findings. Simple constraints are declared with `declare.requires` and its siblings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

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


FILES = {
    "tc": "lm:megatron/core/transformer/transformer_config.py",
    "ar": "lm:megatron/training/arguments.py",
    "oc": "lm:megatron/core/optimizer/optimizer_config.py",
    "dc": "lm:megatron/core/distributed/distributed_data_parallel_config.py",
    "bc": "br:src/megatron/bridge/training/config.py",
    "bs": "br:src/megatron/bridge/training/setup.py",
    "bk": "br:src/megatron/bridge/training/checkpointing.py",
    "bo": "br:src/megatron/bridge/training/comm_overlap.py",
    "bm": "br:src/megatron/bridge/training/mixed_precision.py",
    "rr": "br:scripts/training/run_recipe.py",
    "rn": "br:scripts/training/recipe_runner.py",
}
"""Short names of the files that most rules come from."""


class Declaration(TypedDict):
    """What every kind of rule is declared with, as written; the attributes of `Rule` say what it means."""

    severity: Severity
    stage: Stage
    why: str
    source: str
    evidence: Evidence
    frameworks: tuple[str, ...]
    core: str
    bridge: str
    bad: str
    good: str


class Rule:
    """One constraint of the domain. Hundreds are declared at every start, so what is written is kept and read when somebody asks.

    Args:
        rule_id: topic and number, stable and never reused.
        aliases: other names under which people may look for it, space-separated.
        title: what must hold, as one sentence.
        declared: the rest, as written.

    Attributes:
        id: as given.
        title: as given.
        severity: of a breach, unless the check says otherwise.
        stage: when upstream would notice.
    """

    def __init__(self, rule_id: str, aliases: str, title: str, declared: Declaration) -> None:
        self.id = rule_id
        self.title = title
        self.severity = declared["severity"]
        self.stage = declared["stage"]
        self._aliases = aliases
        self._declared = declared

    def check(self, context: Context) -> Iterable[Verdict]:
        """Return what is broken, and what cannot be decided."""
        raise NotImplementedError

    @cached_property
    def formula(self) -> str:
        """The condition, in words or symbols."""
        raise NotImplementedError

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Configuration paths that it reads."""
        raise NotImplementedError

    @property
    def why(self) -> str:
        """What happens otherwise."""
        return self._declared["why"]

    @property
    def source(self) -> str:
        """Upstream `file:line @ revision`, or what it was learned from."""
        return _cite(self._declared["source"])

    @property
    def evidence(self) -> Evidence:
        """How strong it is."""
        return self._declared["evidence"]

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other names under which people may look for it."""
        return tuple(self._aliases.split())

    @property
    def frameworks(self) -> tuple[str, ...]:
        """Where it holds: as declared, or as the names of the constraint elsewhere say."""
        return self._declared["frameworks"] or _frameworks(self._aliases)

    @property
    def core(self) -> ReleaseRange:
        """Megatron-Core releases in which it holds."""
        return _range(self._declared["core"])

    @property
    def bridge(self) -> ReleaseRange:
        """Megatron Bridge releases in which it holds."""
        return _range(self._declared["bridge"])

    @property
    def bad(self) -> Example:
        """Smallest situation that breaks it."""
        return Example(words=self._declared["bad"])

    @property
    def good(self) -> Example:
        """Change to `bad` that mends it."""
        return Example(words=self._declared["good"])

    def holds_in(self, *, framework: str, core: str, bridge: str) -> bool:
        """Return whether the rule applies to these releases."""
        said = self._declared
        return (
            framework in self.frameworks
            and (not said["core"] or core in self.core)
            and (framework != BRIDGE or not said["bridge"] or bridge in self.bridge)
        )


def _frameworks(aliases: str) -> tuple[str, ...]:
    """Read the frameworks off the names of a constraint: `MLM-*` Megatron-LM, `BR-*` Bridge, both or `MC-*` both."""
    kinds = [kind for kind in ("MLM-", "MC-", "BR-") if aliases.startswith(kind) or f" {kind}" in aliases]
    if kinds == ["MLM-"]:
        return (MEGATRON_LM,)
    return (BRIDGE,) if kinds == ["BR-"] else FRAMEWORKS


def _cite(text: str) -> str:
    parts = []
    for part in text.split("+"):
        part = part.strip()
        short, _, rest = part.partition(":")
        if short in FILES:
            part = f"{FILES[short]}:{rest}"
        if part.startswith("br:"):
            parts.append(f"{part[3:]} @ {MBR}")
        elif part.startswith("lm:"):
            parts.append(f"{part[3:]} @ {MLM}")
        else:
            parts.append(part)
    return "; ".join(parts)


@lru_cache(maxsize=64)
def _range(text: str) -> ReleaseRange:
    since = until = ""
    for part in text.split():
        if part.startswith(">="):
            since = part[2:]
        elif part.startswith("<"):
            until = part[1:]
        else:
            raise ValueError(f"not a release range: {text}")
    return ReleaseRange(since=since, until=until)
