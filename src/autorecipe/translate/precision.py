"""Rules for arithmetic: one preset, or one precision object, for all of Megatron-LM's precision options.

Bridge writes its `mixed_precision` over model, optimizer and ddp at start, so that single fields there are lost. A preset is
used where it says exactly what was given; otherwise the whole object is written.
"""

from __future__ import annotations

from collections.abc import Mapping

from autorecipe.schema.translation import Status
from autorecipe.schema.value import FieldValue
from autorecipe.translate.effective import MlmConfig
from autorecipe.translate.rule import BridgeView, Cell, Rule
from autorecipe.translate.values import from_dtype, same_value, to_dtype

TARGET = "megatron.bridge.training.mixed_precision.MixedPrecisionConfig"
SECTION = "mixed_precision"
_FP8 = {
    "fp8": "fp8",
    "fp8_recipe": "fp8_recipe",
    "fp8_margin": "fp8_margin",
    "fp8_amax_history_len": "fp8_amax_history_len",
    "fp8_amax_compute_algo": "fp8_amax_compute_algo",
    "fp8_wgrad": "fp8_wgrad",
    "fp8_param_gather": "fp8_param_gather",
    "first_last_layers_bf16": "first_last_layers_bf16",
    "num_layers_at_start_in_bf16": "num_layers_at_start_in_bf16",
    "num_layers_at_end_in_bf16": "num_layers_at_end_in_bf16",
    "fp8_dot_product_attention": "fp8_dot_product_attention",
    "fp8_multi_head_attention": "fp8_multi_head_attention",
}
_FP4 = {"fp4": "fp4", "fp4_recipe": "fp4_recipe", "fp4_param_gather": "fp4_param_gather"}
_SCALING = ("loss_scale", "initial_loss_scale", "min_loss_scale", "loss_scale_window", "hysteresis")
_LAYOUT_ONLY = ("reuse_grad_buf_for_mxfp8_param_ag",)
_ONLY_DELAYED = ("fp8_margin", "fp8_amax_history_len", "fp8_amax_compute_algo")
_FIRST_LAST = ("num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16")

COPIED_FIELDS = (
    "bf16",
    "fp16",
    "fp32",
    "params_dtype",
    "pipeline_dtype",
    "autocast_dtype",
    "grad_reduce_in_fp32",
    "enable_autocast",
    "autocast_enabled",
    *_FP8.values(),
    *_FP4.values(),
    "fp8_param",
    "fp4_param",
    *_SCALING,
    *_LAYOUT_ONLY,
)
"""Field names that Bridge copies from `mixed_precision` to model, optimizer and ddp at start."""

PRECISION_DESTS = (
    "bf16",
    "fp16",
    "accumulate_allreduce_grads_in_fp32",
    "grad_reduce_in_bf16",
    *_FP8,
    *_FP4,
    *_SCALING,
    *_LAYOUT_ONLY,
)


def _wanted(config: MlmConfig) -> dict[str, FieldValue]:
    """Return the fields that decide the arithmetic, by name on the precision object."""
    half = "bf16" if config.on("bf16") else "fp16" if config.on("fp16") else ""
    dtype = {"bf16": "torch.bfloat16", "fp16": "torch.float16"}.get(half, "torch.float32")
    fields: dict[str, FieldValue] = {
        "bf16": half == "bf16",
        "fp16": half == "fp16",
        "params_dtype": dtype,
        "pipeline_dtype": dtype,
        "autocast_enabled": False,
        "grad_reduce_in_fp32": config.on("accumulate_allreduce_grads_in_fp32"),
        "fp8": config.get("fp8"),
        "fp4": config.get("fp4"),
    }
    if fields["fp8"] is not None:
        recipe = config.get("fp8_recipe")
        for dest, name in _FP8.items():
            if dest in _ONLY_DELAYED and recipe != "delayed":
                continue
            if dest in _FIRST_LAST and not config.on("first_last_layers_bf16"):
                continue
            if dest in config.values:
                fields[name] = config.get(dest)
        fields["reuse_grad_buf_for_mxfp8_param_ag"] = config.on("reuse_grad_buf_for_mxfp8_param_ag")
    if fields["fp4"] is not None:
        fields |= {name: config.get(dest) for dest, name in _FP4.items() if dest in config.values}
    if half == "fp16":
        fields |= {name: config.get(name) for name in _SCALING if name in config.values}
    return fields


def _same_field(name: str, left: FieldValue, right: FieldValue) -> bool:
    if name in _LAYOUT_ONLY or name in ("pipeline_dtype", "params_dtype"):
        return True
    return same_value(left, right) or (not left and not right and left in (None, False) and right in (None, False))


def _preset_for(fields: dict[str, FieldValue], presets: Mapping[str, Mapping[str, FieldValue]]) -> str | None:
    for name in sorted(presets, key=lambda item: (len(item), item)):
        preset = presets[name]
        if all(_same_field(key, value, preset.get(key)) for key, value in fields.items()):
            return name
    return None


def _precision_forward(config: MlmConfig) -> list[Cell]:
    fields = _wanted(config)
    if not fields["bf16"] and not fields["fp16"]:
        return [_fp32_cell(config, fields)]
    name = _preset_for(fields, config.presets)
    deciding = ["bf16", "fp16"]
    deciding += [dest for dest in (*_FP8, *_FP4, *_SCALING, "grad_reduce_in_bf16") if dest in config.given]
    if name is not None:
        why = "one preset says all of it"
        if fields["grad_reduce_in_fp32"] and "accumulate_allreduce_grads_in_fp32" in config.given:
            config.remark(
                "accumulate_allreduce_grads_in_fp32",
                Status.DERIVED,
                f"nothing to write: {name} already reduces gradients in fp32",
            )
        return [Cell(SECTION, name, tuple(deciding), why, matches=lambda view: _matches(view, fields))]
    deciding.append("accumulate_allreduce_grads_in_fp32")
    why = "no preset says all of it, so the whole object is written"
    value = {"_target_": TARGET, **{key: item for key, item in fields.items() if item is not None}}
    return [Cell(SECTION, value, tuple(deciding), why, matches=lambda view: _matches(view, fields))]


def _fp32_cell(config: MlmConfig, fields: dict[str, FieldValue]) -> Cell:
    if "accumulate_allreduce_grads_in_fp32" in config.given:
        note = "nothing to write: gradients are reduced in fp32 (bf16_mixed does so as well)"
        config.remark("accumulate_allreduce_grads_in_fp32", Status.DERIVED, note)
    why = "without --bf16 or --fp16 Megatron-LM trains in fp32"
    return Cell(
        SECTION,
        None,
        ("bf16", "fp16"),
        why,
        matches=lambda view: not view.on(f"{SECTION}.bf16") and not view.on(f"{SECTION}.fp16"),
    )


def _matches(view: BridgeView, fields: dict[str, FieldValue]) -> bool:
    return all(_same_field(name, value, view.get(f"{SECTION}.{name}")) for name, value in fields.items())


def _precision_backward(view: BridgeView) -> dict[str, FieldValue]:
    name = view.get(SECTION)
    text = name if isinstance(name, str) else ""
    bf16 = view.on(f"{SECTION}.bf16") or text.startswith("bf16")
    fp16 = view.on(f"{SECTION}.fp16") or text.startswith("fp16")
    values: dict[str, FieldValue] = {"bf16": bf16, "fp16": fp16}
    if not bf16 and not fp16:
        return values
    reduces = view.get(f"{SECTION}.grad_reduce_in_fp32")
    if bf16 and reduces is False:
        values["grad_reduce_in_bf16"] = True
    elif fp16 and reduces:
        values["accumulate_allreduce_grads_in_fp32"] = True
    if view.get(f"{SECTION}.fp8") is not None:
        for dest, field in _FP8.items():
            if view.get(f"{SECTION}.{field}") is None:
                continue
            if dest in _ONLY_DELAYED and view.get(f"{SECTION}.fp8_recipe") != "delayed":
                continue
            if dest in _FIRST_LAST and not view.on(f"{SECTION}.first_last_layers_bf16"):
                continue
            values[dest] = view.get(f"{SECTION}.{field}")
        values["reuse_grad_buf_for_mxfp8_param_ag"] = view.on(f"{SECTION}.reuse_grad_buf_for_mxfp8_param_ag")
    if view.get(f"{SECTION}.fp4") is not None:
        values |= {dest: view.get(f"{SECTION}.{field}") for dest, field in _FP4.items()}
    if fp16:
        values |= {dest: view.get(f"{SECTION}.{dest}") for dest in _SCALING if view.get(f"{SECTION}.{dest}") is not None}
    return values


DTYPE_DESTS = (
    "main_grads_dtype",
    "main_params_dtype",
    "exp_avg_dtype",
    "exp_avg_sq_dtype",
    "megatron_fsdp_main_params_dtype",
    "megatron_fsdp_main_grads_dtype",
    "megatron_fsdp_grad_comm_dtype",
)


def dtype_rule(dest: str, path: str) -> Rule:
    """Return the rule of an option that names a dtype."""

    def backward(view: BridgeView) -> dict[str, FieldValue]:
        if not view.knows(path):
            return {}
        name = from_dtype(view.get(path))
        return {} if name == "auto" and not dest.startswith("megatron_fsdp_") else {dest: name}

    return Rule(
        name=dest,
        dests=(dest,),
        paths=(path,),
        status=Status.SAME,
        forward=lambda config: [Cell(path, to_dtype(config.get(dest)), (dest,))],
        backward=backward,
    )


_FUSED_LOSS = "model.cross_entropy_fusion_impl"


def _fused_loss_backward(view: BridgeView) -> dict[str, FieldValue]:
    """Source: megatron/training/arguments.py:1643 @ core 0.19.2 refuses Transformer Engine's fused loss, which recipes use."""
    if not view.knows(_FUSED_LOSS):
        return {}
    refused = view.on("model.cross_entropy_loss_fusion") and view.get(_FUSED_LOSS) == "te"
    return {"cross_entropy_fusion_impl": "native" if refused else view.get(_FUSED_LOSS)}


PRECISION_RULES = (
    Rule(
        name="fused loss",
        dests=("cross_entropy_fusion_impl",),
        paths=(_FUSED_LOSS,),
        status=Status.SAME,
        forward=lambda config: [Cell(_FUSED_LOSS, config.get("cross_entropy_fusion_impl"), ("cross_entropy_fusion_impl",))],
        backward=_fused_loss_backward,
    ),
    Rule(
        name="precision",
        dests=PRECISION_DESTS,
        paths=(
            SECTION,
            *(f"{SECTION}.{name}" for name in (*_FP8, *_FP4, *_SCALING, *_LAYOUT_ONLY, "bf16", "fp16", "grad_reduce_in_fp32")),
        ),
        status=Status.DERIVED,
        forward=_precision_forward,
        backward=_precision_backward,
    ),
)
