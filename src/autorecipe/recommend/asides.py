"""Settings that people put into a question: layouts, batch sizes, learning rates, steps. The answer names them.

An answer sizes a recipe; what else a question sets is handed back as overrides to append. Start at `take_asides`.
"""

from __future__ import annotations

import re

from autorecipe.recommend.vocabulary import Wording

_IS = r"\s*(?:of|=|:|is|は|を)?\s*"
_COUNT = r"(?P<value>\d[\d,]*)(?P<unit>k)?(?![a-z0-9.])"

SETTINGS: tuple[tuple[str, Wording], ...] = (
    (
        "train.micro_batch_size",
        Wording(rf"(?:micro[- ]?batch(?:[- ]size)?|(?<![a-z])mbs|マイクロバッチ(?:サイズ)?){_IS}{_COUNT}", "micro mbs マイクロ"),
    ),
    (
        "train.global_batch_size",
        Wording(
            rf"(?:(?:global[- ]?)?batch[- ]size|global[- ]?batch|(?<![a-z])gbs|(?:グローバル)?バッチ(?:サイズ)?){_IS}{_COUNT}",
            "batch gbs バッチ",
        ),
    ),
    (
        "optimizer.lr",
        Wording(
            rf"(?:learning[- ]rate|(?<![a-z])lr(?![a-z])|学習率){_IS}(?P<value>\d+(?:\.\d+)?(?:e-?\d+)?)(?P<unit>)(?![a-z0-9])",
            "learning lr 学習率",
        ),
    ),
    ("peft.dim", Wording(rf"(?:(?<![a-z])rank|ランク){_IS}{_COUNT}", "rank ランク")),
    (
        "train.train_iters",
        Wording(
            r"(?<![\w.-])(?P<value>\d[\d,]*)\s*(?P<unit>k)?\s*(?:training )?(?:steps?|iterations?|iters?|ステップ)(?![a-z])",
            "step iter ステップ",
        ),
    ),
    *(
        (f"model.{path}_parallel_size", Wording(rf"(?<![a-z0-9]){axis}\s*[=:]?\s*(?P<value>\d+)(?P<unit>)(?![a-z0-9.])", axis))
        for axis, path in (
            ("etp", "expert_tensor"),
            ("tp", "tensor_model"),
            ("pp", "pipeline_model"),
            ("vp", "virtual_pipeline_model"),
            ("cp", "context"),
            ("ep", "expert_model"),
        )
    ),
)
"""Path of the setting, and how it is said."""

UNREAD = Wording(
    r"(?<![\w.-])\d+(?:\.\d+)?\s*(?:epochs?|エポック)(?![a-z])|(?<![\w.-])\d+(?:\.\d+)?\s*[bt] tokens(?![a-z])",
    "epoch エポック tokens",
)
"""What no field of a recipe says."""

_OVERRIDE = Wording(r"(?<!\S)[a-z_]+(?:\.[a-z_0-9]+)+=\S+", "=")


def take_asides(text: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Take settings out of a folded question.

    Returns:
        the text that is left, override texts in the order of `SETTINGS`, and words for which there is no field.
    """
    overrides: list[str] = []
    unread: list[str] = []
    if _OVERRIDE.may_match(text):
        overrides += re.findall(_OVERRIDE.pattern, text)
        text = re.sub(_OVERRIDE.pattern, " ", text)
    for path, wording in SETTINGS:
        if wording.may_match(text):
            for match in re.finditer(wording.pattern, text):
                value = match["value"].replace(",", "")
                overrides.append(f"{path}={int(value) * 1000 if match['unit'] else value}")
            text = re.sub(wording.pattern, " ", text)
    if UNREAD.may_match(text):
        unread += [match.strip() for match in re.findall(UNREAD.pattern, text)]
        text = re.sub(UNREAD.pattern, " ", text)
    return text, tuple(overrides), tuple(unread)
