"""Japanese numerals with units, such as `70億` and `1万6千`, written as digits before a question is read."""

from __future__ import annotations

import re


def fold_numerals(text: str) -> str:
    """Write Japanese numerals with units as digits: `70億` is 7b, `1兆` is 1t, `1万6千` is 16000."""

    def parameters(match: re.Match[str]) -> str:
        billions = float(match[1]) / 10 if match[2] == "億" else float(match[1])
        return f" {billions:g}{'b' if match[2] == '億' else 't'} "

    def count(match: re.Match[str]) -> str:
        tens, thousands, rest = (float(match[number] or 0) for number in (1, 2, 3))
        return f"{10000 * tens + 1000 * thousands + rest:.0f}"

    text = re.sub(r"(\d+(?:\.\d+)?)\s*(億|兆)(?:個の?)?(?:の)?(?:パラメータ?ー?)?(?:規模|級|クラス)?の?", parameters, text)
    return re.sub(r"(?=\d+(?:\.\d+)?[万千])(?:(\d+(?:\.\d+)?)万)?(?:(\d+(?:\.\d+)?)千)?(\d+)?", count, text)
