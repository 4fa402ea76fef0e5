"""How a number was obtained. Every fact, rule and estimate states it."""

from __future__ import annotations

import enum

from autorecipe.record import dataclass


class Evidence(enum.StrEnum):
    """How strongly a value is backed, strongest first."""

    ENFORCED_UPSTREAM = "enforced-upstream"
    MEASURED = "measured"
    PUBLISHED = "published"
    DERIVED = "derived"
    ASSUMED = "assumed"


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where a value comes from.

    Attributes:
        source: `file:line @ release`, a paper with its equation, a measurement's id, or a URL.
        evidence: how strong that is.
        release: upstream release the value belongs to; empty where it belongs to none.
    """

    source: str
    evidence: Evidence
    release: str = ""
