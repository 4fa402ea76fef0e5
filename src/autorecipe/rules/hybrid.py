"""Layer patterns of hybrid models.

Letters: `M` Mamba, `G` gated delta net, `*` attention, `D` sparse attention, `+` MLA, `-` MLP, `E` MoE. `|` ends a pipeline
segment, `/` begins a multi-token-prediction depth. Source: hybrid_layer_allocation.py @ core 0.19.2.
"""

from __future__ import annotations

from autorecipe.record import dataclass

LAYERS = frozenset("MG*D+-E")


@dataclass(frozen=True, kw_only=True)
class HybridPattern:
    """A parsed pattern.

    Attributes:
        segments: layers of each pipeline segment.
        depths: multi-token-prediction patterns.
        problems: what is wrong with it.
    """

    segments: tuple[str, ...]
    depths: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def num_layers(self) -> int:
        """Layers of the main pattern."""
        return sum(len(segment) for segment in self.segments)


def parse_pattern(text: str) -> HybridPattern:
    """Parse a pattern, collecting everything that is wrong with it."""
    main, *depths = text.split("/")
    depths = [depth for depth in depths if depth]
    problems = []
    wrong = sorted(set(main.replace("|", "") + "".join(depths)) - LAYERS)
    if wrong:
        problems.append(f"unknown layer letters {', '.join(repr(letter) for letter in wrong)}")
    if "*" in main and ("D" in main or "+" in main):
        problems.append("attention and MLA or sparse attention are mixed")
    if len(set(depths)) > 1:
        problems.append(f"MTP depths differ: {', '.join(sorted(set(depths)))}")
    return HybridPattern(segments=tuple(main.split("|")), depths=tuple(depths), problems=tuple(problems))
