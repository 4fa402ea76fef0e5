"""Read Megatron-LM options by flag or destination as configuration paths, so that rules can look at them.

Each option also stands under `mlm.DEST`, where rules about options without a Bridge field find it. Leaves out: converting a
command line to Bridge overrides (see `translate`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autorecipe.schema import MlmOption

DIRECT = {
    "max_position_embeddings": ("model.max_position_embeddings",),
    "num_query_groups": ("model.num_query_groups",),
    "group_query_attention": (),
    "bf16": ("model.bf16",),
    "fp16": ("model.fp16",),
    "fp8": ("model.fp8",),
    "fp8_format": ("model.fp8",),
    "fp8_recipe": ("model.fp8_recipe",),
    "fp8_param_gather": ("ddp.fp8_param_gather",),
    "fp4_param_gather": ("ddp.fp4_param_gather",),
    "reuse_grad_buf_for_mxfp8_param_ag": (
        "ddp.reuse_grad_buf_for_mxfp8_param_ag",
        "optimizer.reuse_grad_buf_for_mxfp8_param_ag",
    ),
    "accumulate_allreduce_grads_in_fp32": ("ddp.grad_reduce_in_fp32",),
    "num_layers_per_virtual_pipeline_stage": (),
    "seq_length": ("model.seq_length",),
    "seed": ("rng.seed",),
    "weight_decay": ("optimizer.weight_decay",),
    "train_samples": ("train.train_samples",),
    "rope_type": ("model.rope_type",),
    "hybrid_override_pattern": ("model.hybrid_override_pattern",),
    "deterministic_mode": ("model.deterministic_mode",),
}
"""Destination -> paths, where the translation to Bridge says more than a rule about Megatron-LM wants to read."""


def find_option(name: str, options: Mapping[str, MlmOption]) -> MlmOption | None:
    """Return the option of a flag (`--num-layers`, also one of several spellings) or a destination (`num_layers`)."""
    flag = name if name.startswith("--") else "--" + name.replace("_", "-")
    for known, option in options.items():
        if flag in known.split() or option.dest == name:
            return option
    return None


def read_option(name: str, value: Any, option: MlmOption) -> dict[str, Any]:
    """Return what an option sets, by path.

    Args:
        name: as given: a flag, or a destination.
        value: the flag's value (true for a switch that is given), or the destination's.
        option: what `find_option` found.
    """
    by_flag = name.startswith("--")
    inverted = "inverted" in option.transform
    own = not value if by_flag and inverted and isinstance(value, bool) else value
    found: dict[str, Any] = {f"mlm.{option.dest}": own}
    if option.dest in DIRECT:
        return found | dict.fromkeys(DIRECT[option.dest], own)
    for piece in option.bridge_field.split(";"):
        path, equals, literal = piece.strip().partition("=")
        if not path or " " in path or "." not in path or path.startswith("mixed_precision"):
            continue
        if equals:
            if own:
                found[path] = _literal(literal)
        elif inverted and _is_negative(option.dest):
            found[path] = not own
        elif option.transform.split(" ")[0] in ("same", "rename", "alias", "inverted", "expands"):
            found[path] = own
    return found


def derive_virtual_stages(values: dict[str, Any]) -> None:
    """Set the number of virtual stages from the layers of each, where it comes out whole (arguments.py:969)."""
    per_stage, layers = values.get("mlm.num_layers_per_virtual_pipeline_stage"), values.get("model.num_layers")
    pp = values.get("model.pipeline_model_parallel_size") or 1
    if isinstance(per_stage, int) and per_stage > 0 and isinstance(layers, int) and layers % (pp * per_stage) == 0:
        values.setdefault("model.virtual_pipeline_model_parallel_size", layers // pp // per_stage)


def _is_negative(dest: str) -> bool:
    return dest.startswith(("no_", "untie_", "disable_"))


def _literal(text: str) -> Any:
    return {"true": True, "false": False, "null": None}.get(text, int(text) if text.isdigit() else text)
