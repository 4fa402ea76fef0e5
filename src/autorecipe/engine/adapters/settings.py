"""What a run says about its adapter: the `peft.*` fields, with Megatron Bridge's meaning. No torch.

Source of names and defaults: Megatron Bridge 0.6.2 peft/lora.py, peft/dora.py, peft/module_matcher.py.
Leaves out: the layers themselves (`layers`), and which of a model's modules are meant (`attach`).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from autorecipe.errors import Problem, UsageError
from autorecipe.schema.run import RunConfig
from autorecipe.schema.value import UNKNOWN

KINDS = ("LoRA", "DoRA")
DEFAULT_TARGETS = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
INITIALIZERS = ("xavier", "normal", "kaiming", "zero")

_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "a2a_experimental": (False,),
    "canonical_mapping": ({},),
    "experts_shared_outer_loras": (False,),
    "lora_dtype": (),
    "normalize_moe_lora": (False,),
    "params_to_save": ([], ()),
    "sequence_parallel_input_regather": (False,),
    "share_expert_adapters": (True, False),
}
"""Fields -> values besides unset that this engine acts on, or that ask for nothing."""


_LOCAL_EXPERT = re.compile(r"\.local_experts\.\d+")


def is_adapter_key(key: str) -> bool:
    """Return whether a state of a model belongs to an adapter."""
    return ".adapter." in key


@dataclass(frozen=True, kw_only=True)
class AdapterSettings:
    """An adapter.

    Attributes:
        kind: `LoRA` or `DoRA`.
        dim: rank of the low-rank product.
        alpha: the product is scaled by alpha / dim.
        dropout: rate on the adapter's input (`pre`) or output (`post`), in training only.
        dropout_position: `pre` or `post`.
        targets: names of linear layers, or patterns with `*` over full names; empty means every one that is not excluded.
        excluded: names or patterns that are left out; only without targets.
        a_init: how the down projection starts.
        b_init: how the up projection starts; `zero` makes the first step that of the model itself.
        shares_experts: whether all experts of a layer share one adapter, as grouped ones do in Bridge unless told otherwise.
    """

    kind: str
    dim: int
    alpha: float
    dropout: float
    dropout_position: str
    targets: tuple[str, ...]
    excluded: tuple[str, ...]
    a_init: str
    b_init: str
    shares_experts: bool = False

    @property
    def scale(self) -> float:
        """Factor of the low-rank product."""
        return self.alpha / self.dim

    def matches(self, full_name: str) -> bool:
        """Return whether a linear layer is meant.

        Args:
            full_name: such as `decoder.layers.3.self_attention.linear_qkv`; layers are counted over the whole model.
        """
        patterns = self.targets or self.excluded
        name = full_name.rsplit(".", 1)[-1]
        # The layers of one expert answer to the name of the grouped layer, too, so that both kinds take the same adapters.
        names = {full_name, _LOCAL_EXPERT.sub("", full_name)}
        found = any(pattern == name or any(fnmatch.fnmatchcase(own, pattern) for own in names) for pattern in patterns)
        return found if self.targets else not found

    def identity(self) -> dict[str, Any]:
        """Return what a checkpoint of this adapter must share with a run, as plain JSON values."""
        values = asdict(self)
        for name in ("dropout", "dropout_position", "a_init", "b_init"):
            del values[name]  # they change no trained weight's meaning
        if not self.shares_experts:
            del values["shares_experts"]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def render(self) -> str:
        """Return one line for the user."""
        where = ", ".join(self.targets) or f"every linear layer but {', '.join(self.excluded) or 'none'}"
        return f"{self.kind} of rank {self.dim}, alpha {self.alpha:g}, dropout {self.dropout:g} on {where}"


def read_adapter(run: RunConfig) -> AdapterSettings | None:
    """Read the adapter of a run; None where it trains the model itself.

    Raises:
        UsageError: every field that this engine cannot act on, and every illegal value.
    """
    kind = run.get("peft._class", None)
    if kind is None or kind is UNKNOWN:
        return None
    problems: list[Problem] = []
    if kind not in KINDS:
        message, hint = f"{kind!r} is not in --engine core", "use --mode lora or dora; or add --engine bridge"
        raise UsageError(Problem(path="peft", code="engine-unsupported", message=message, hint=hint))

    def read(name: str, fallback: Any) -> Any:
        value = run.get(f"peft.{name}", None)
        return fallback if value is None or value is UNKNOWN else value

    for name, neutral in _NEUTRAL.items():
        value = read(name, None)
        if value is not None and value not in neutral:
            hint = "unset it; or add --engine bridge"
            message = f"{value!r} is not in --engine core"
            problems.append(Problem(path=f"peft.{name}", code="engine-unsupported", message=message, hint=hint))

    def refuse(name: str, value: Any, legal: str) -> None:
        problems.append(Problem(path=f"peft.{name}", code="bad-value", message=f"{value!r} is not {legal}", hint=f"use {legal}"))

    is_dora = kind == "DoRA"
    dim, alpha, dropout = read("dim", 32), read("alpha", 64 if is_dora else 32), read("dropout", 0.0)
    if not isinstance(dim, int) or isinstance(dim, bool) or dim < 1:
        refuse("dim", dim, "a whole number from 1 on")
    if not isinstance(alpha, int | float) or alpha <= 0:
        refuse("alpha", alpha, "a number above 0")
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        refuse("dropout", dropout, "a number from 0 to below 1")
    position = read("dropout_position", "pre")
    if position not in ("pre", "post"):
        refuse("dropout_position", position, "pre or post")
    elif is_dora and position == "post":
        refuse("dropout_position", position, "pre, the only place that DoRA knows")
    starts = {name: read(f"lora_{name}_init_method", fallback) for name, fallback in (("A", "xavier"), ("B", "zero"))}
    for name, value in starts.items():
        if value not in INITIALIZERS:
            refuse(f"lora_{name}_init_method", value, f"one of {', '.join(INITIALIZERS)}")
    targets, excluded = tuple(read("target_modules", DEFAULT_TARGETS)), tuple(read("exclude_modules", ()))
    if targets and excluded:
        message = f"{list(excluded)!r} and peft.target_modules are both set"
        hint = "set peft.target_modules=[] or peft.exclude_modules=[]"
        problems.append(Problem(path="peft.exclude_modules", code="contradiction", message=message, hint=hint))
    if problems:
        raise UsageError(problems)
    return AdapterSettings(
        kind=kind,
        dim=dim,
        alpha=float(alpha),
        dropout=float(dropout),
        dropout_position=position,
        targets=targets,
        excluded=excluded,
        a_init=starts["A"],
        b_init=starts["B"],
        shares_experts=not is_dora and read("share_expert_adapters", True) and _groups_experts(run),
    )


def _groups_experts(run: RunConfig) -> bool:
    return bool(run.get("model.num_moe_experts", None)) and run.get("model.moe_grouped_gemm", None) is True
