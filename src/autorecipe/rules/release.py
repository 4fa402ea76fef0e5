"""Releases and ranges of releases: a rule holds from one release until another."""

from __future__ import annotations

import re
from functools import lru_cache

from autorecipe.record import dataclass

NEWEST = (9999,)
"""Stands for a development head, which is newer than every release."""

BRIDGE_CORE = {"0.5.0": "0.17", "0.6.2": "0.19.2"}
"""Megatron-Core release that goes with a Megatron Bridge release, as far as known.

Source: 0.6.2 was evaluated with core 0.19.2; the 0.5.0 package names no version, 0.17 is its contemporary. Evidence: assumed.
"""

DEFAULT_CORE = "0.19.2"


@lru_cache(maxsize=256)
def parse_release(text: str) -> tuple[int, ...]:
    """Parse `0.16.1` into numbers that compare; `HEAD`, `main`, `dev` and the empty text are newer than every release."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", text.split("+")[0].split("rc")[0].split(".dev")[0])[:4])
    return numbers if numbers and not re.fullmatch(r"[0-9a-f]{7,40}", text) else NEWEST


def is_release(text: str) -> bool:
    """Return whether a text names a release: numbers, a commit, or a development head."""
    return parse_release(text) != NEWEST or bool(re.fullmatch(r"[0-9a-f]{7,40}|head|main|dev|", text.lower()))


@dataclass(frozen=True)
class ReleaseRange:
    """Releases from `since` (included) until `until` (excluded); empty means unbounded."""

    since: str = ""
    until: str = ""

    def __contains__(self, release: str) -> bool:
        number = parse_release(release)
        return (not self.since or number >= parse_release(self.since)) and (not self.until or number < parse_release(self.until))

    def render(self) -> str:
        """Render as `from 0.16`, `before 0.16`, `0.14 to before 0.16` or `all`."""
        if self.since and self.until:
            return f"{self.since} to before {self.until}"
        return f"from {self.since}" if self.since else f"before {self.until}" if self.until else "all"


@dataclass(frozen=True)
class AtLeast:
    """A release of which only a lower bound is known."""

    release: tuple[int, ...]

    def is_at_least(self, other: tuple[int, ...]) -> bool | None:
        """Return True where the bound decides, None where it does not."""
        return True if self.release >= other else None


KNOWN_BOUNDS = {"transformer-engine": ((0, 16), AtLeast((2, 9))), "torch": ((0, 16), AtLeast((2, 6)))}
"""Package -> (core release from which on, smallest release that it requires).

Source: package metadata of megatron-core 0.16.1 (torch>=2.6.0; transformer-engine>=2.9.0a0 in its dev extra).
Evidence: enforced-upstream for torch; an environment with an older Transformer Engine is possible and unsupported.
"""
