"""One Megatron-LM command-line option, and the Bridge field it corresponds to."""

from __future__ import annotations

from autorecipe.record import dataclass
from autorecipe.schema.layer import Layer
from autorecipe.schema.value import FieldValue


@dataclass(frozen=True, kw_only=True)
class MlmOption:
    """One option of `pretrain_gpt.py` in one release.

    Attributes:
        flag: such as `--num-layers`.
        dest: attribute name after parsing.
        type: `int`, `float`, `str`, `flag` and so on, as the table of the release spells it.
        nargs: as argparse has it; empty for one value.
        choices: legal values; empty for any.
        default: value when not given.
        group: argument group in upstream's help.
        bridge_field: Bridge path(s) it maps to; empty for none.
        transform: how the value maps (`same`, `inverted flag`, `rename`, `expands to two` ...).
        layer: layer of change, or None where not classified.
        layer_reason: why.
        bridge_default: default of Bridge's class; None also where it has none.
        note: what to know about it.
    """

    flag: str
    dest: str
    type: str
    nargs: str
    choices: tuple[str, ...]
    default: FieldValue
    group: str
    bridge_field: str
    transform: str
    layer: Layer | None
    layer_reason: str
    bridge_default: FieldValue
    note: str
