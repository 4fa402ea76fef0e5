"""Megatron-Core's text form of a pipeline layout, such as `Et*3|(tt|)*29m|L`, as layers per chunk."""

from __future__ import annotations

import re
from typing import Any

from autorecipe.record import dataclass


@dataclass(frozen=True)
class PipelineLayout:
    """Decoder layers of each chunk, and the chunk with multi-token prediction (None: nowhere)."""

    layers: tuple[int, ...]
    mtp_chunk: int | None


def parse_pipeline_layout(layout: Any) -> PipelineLayout | None:
    """Parse a layout given as text or as lists of layer names.

    Letters: E embedding, t decoder layer, m multi-token prediction, L loss; `*N` repeats a letter or a group in parentheses,
    `|` ends a chunk, commas are ignored.
    Source: Megatron-Core pipeline_parallel_layer_layout.py @ 0.16.1. Evidence: enforced-upstream.

    Returns:
        the layout, or None where it cannot be read.
    """
    if isinstance(layout, str):
        chunks = _expand(layout.replace(" ", "").replace(",", ""))
        if chunks is None:
            return None
    elif isinstance(layout, list | tuple):
        chunks = ["".join(_letter(name) for name in chunk) for chunk in layout if isinstance(chunk, list | tuple)]
        if len(chunks) != len(layout):
            return None
    else:
        return None
    mtp = [index for index, chunk in enumerate(chunks) if "m" in chunk]
    return PipelineLayout(tuple(chunk.count("t") for chunk in chunks), mtp[0] if mtp else None)


def _expand(text: str) -> list[str] | None:
    for _ in range(64):
        found = re.search(r"\(([^()]*)\)(?:\*(\d+))?", text)
        if found is None:
            break
        text = text[: found.start()] + found.group(1) * int(found.group(2) or 1) + text[found.end() :]
    text = re.sub(r"([EtmL])\*(\d+)", lambda match: match.group(1) * int(match.group(2)), text)
    if re.search(r"[^EtmL|]", text):
        return None
    return text.removesuffix("|").split("|")


def _letter(name: object) -> str:
    return {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}.get(str(name).rsplit(".", 1)[-1].lower(), "")
