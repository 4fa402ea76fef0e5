"""PRC: base precision and precision presets."""

from __future__ import annotations

from collections.abc import Iterator

from autorecipe.errors import near_misses
from autorecipe.rules.context import Context
from autorecipe.rules.declare import adjusts, computes, requires, show
from autorecipe.rules.rule import Breach, Verdict
from autorecipe.rules.spelling import dtype_name, read_preset
from autorecipe.schema import Fix, Severity, Stage

BOTH = ("bridge", "megatron-lm")
NEW = "changes arithmetic: a new convergence experiment"
PRESETS = (
    "bf16_mixed",
    "fp16_mixed",
    "bf16_with_fp8_delayed_scaling_mixed",
    "fp16_with_fp8_delayed_scaling_mixed",
    "bf16_with_mxfp8_mixed",
    "fp16_with_mxfp8_mixed",
    "bf16_with_fp8_current_scaling_mixed",
    "nemotron_h_bf16_with_fp8_current_scaling_mixed",
    "nanov2_bf16_with_fp8_current_scaling_mixed",
    "fp16_with_fp8_current_scaling_mixed",
    "bf16_with_fp8_subchannel_scaling_mixed",
    "fp16_with_fp8_subchannel_scaling_mixed",
    "bf16_with_nvfp4_mixed",
    "nemotron_3_super_bf16_with_nvfp4_mixed",
    "nemotron_3_ultra_bf16_with_nvfp4_mixed",
)
"""Registered presets (megatron/bridge/training/mixed_precision.py:184-433 @ 0.6.2)."""

COPIED = {
    "grad_reduce_in_fp32": "ddp",
    "fp8_param_gather": "ddp",
    "fp8": "model",
    "fp8_recipe": "model",
    "fp8_param": "model",
    "fp4": "model",
    "first_last_layers_bf16": "model",
    "loss_scale": "optimizer",
    "initial_loss_scale": "optimizer",
    "reuse_grad_buf_for_mxfp8_param_ag": "ddp",
}
"""Preset field -> section whose field of the same name it overwrites."""

ABSENT = object()


@computes(
    "PRC001",
    "BR-ORDER-01 TRAP-MP",
    "a precision preset overwrites the fields it covers",
    formula="mixed_precision set -> model.F, optimizer.F, ddp.F := mixed_precision.F for each of its fields",
    paths="mixed_precision ddp.grad_reduce_in_fp32 model.fp8 optimizer.loss_scale",
    severity=Severity.AUTO_FIX,
    stage=Stage.NEVER,
    source="bm:155",
    why="The preset is applied after overrides, with a debug message only: an override of "
    "ddp.grad_reduce_in_fp32 or model.fp8 is "
    "lost.",
    bad="mixed_precision=bf16_mixed mixed_precision.grad_reduce_in_fp32=true ddp.grad_reduce_in_fp32=false",
    good="ddp.grad_reduce_in_fp32=true",
)
def preset_owner(context: Context) -> Iterator[Verdict]:
    """Report precision fields that the preset will overwrite."""
    preset = context.values.get("mixed_precision")
    if preset is None and not context.values.get("mixed_precision._class"):
        return
    for field, section in COPIED.items():
        acting = context.values.get(f"mixed_precision.{field}", ABSENT)
        if acting is ABSENT and field == "grad_reduce_in_fp32" and isinstance(preset, str) and read_preset(preset):
            acting = True
        path = f"{section}.{field}"
        given = context.values.get(path, ABSENT)
        if acting is ABSENT or given is ABSENT or given == acting:
            continue
        typed = context.origin(path) == "override"
        if not typed and context.config.origins.get(path) is not None:
            continue
        yield Breach(
            message=f"{path}={show(given)} will not act: mixed_precision sets it to {show(acting)}",
            severity=Severity.ERROR if typed else None,
            paths=(path, f"mixed_precision.{field}"),
            effective={path: acting},
            fixes=(Fix(overrides={path: acting}, note="what upstream would use"),),
            hint=f"set the field on a mixed_precision object: mixed_precision.{field}={show(given)}",
        )


@computes(
    "PRC002",
    "BR-ORDER-02",
    "the precision preset must be a registered one",
    formula="mixed_precision in the registered presets, with - or _",
    paths="mixed_precision",
    source="bm:448",
    why="The name is looked up at start; 16-mixed is not registered, fp16_mixed is.",
    bad="mixed_precision=16-mixed",
    good="mixed_precision=fp16_mixed",
)
def known_preset(context: Context) -> Iterator[Verdict]:
    """Check the name of a preset."""
    preset = context.values.get("mixed_precision")
    if not isinstance(preset, str) or preset.replace("-", "_") in PRESETS:
        return
    if context.values.get("mixed_precision._class") or any(path.startswith("mixed_precision.") for path in context.values):
        return
    close = near_misses(preset.replace("-", "_"), PRESETS)
    yield Breach(
        message=f"mixed_precision={preset!r} is not a registered preset" + (f"; did you mean {close[0]!r}?" if close else ""),
        legal={"mixed_precision": list(PRESETS)},
        fixes=tuple(Fix(overrides={"mixed_precision": name}, note=NEW) for name in close[:2]),
    )


@computes(
    "PRC003",
    "MC-OPTADAM-02",
    "low-precision optimizer states need the precision-aware optimizer",
    formula="not use_precision_aware_optimizer -> main_grads, main_params, exp_avg, exp_avg_sq dtypes all fp32",
    paths="optimizer.use_precision_aware_optimizer optimizer.exp_avg_dtype optimizer.exp_avg_sq_dtype optimizer.main_grads_dtype "
    "optimizer.main_params_dtype",
    source="oc:477",
    why="The ordinary optimizer keeps its states in FP32. Their precision belongs to convergence.",
    bad="optimizer.exp_avg_dtype=torch.bfloat16 optimizer.use_precision_aware_optimizer=false",
    good="optimizer.use_precision_aware_optimizer=true",
)
def state_precision(context: Context) -> Iterator[Verdict]:
    """Check state dtypes of the ordinary optimizer."""
    if context.values.get("optimizer.use_precision_aware_optimizer", True) is not False:
        return
    names = ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")
    low = {
        f"optimizer.{name}": context.get(f"optimizer.{name}")
        for name in names
        if context.get(f"optimizer.{name}") is not None and dtype_name(context.get(f"optimizer.{name}")) != "fp32"
    }
    if low:
        yield Breach(
            message=f"{', '.join(f'{path}={show(value)}' for path, value in low.items())} without the precision-aware optimizer",
            paths=("optimizer.use_precision_aware_optimizer", *low),
            fixes=(
                Fix(overrides={"optimizer.use_precision_aware_optimizer": True}, note="optimizer-state precision is convergence"),
                Fix(overrides=dict.fromkeys(low, "torch.float32"), note="optimizer-state precision is convergence"),
            ),
        )


BASE = (
    requires(
        "PRC004",
        "MC-PREC-01 MLM-PREC-01 BR-PREC-03",
        "FP16 and BF16 exclude each other",
        need="not (on(fp16) and on(bf16)) and not (on(mixed_precision.fp16) and on(mixed_precision.bf16))",
        frameworks=BOTH,
        source="tc:1434 + ar:1196 + bc:2155",
        why="A matrix product has one input precision; Megatron-LM's assertion has no message.",
        bad="fp16=true bf16=true",
        good="fp16=false",
        note=NEW,
    ),
    requires(
        "PRC005",
        "BR-PREC-03",
        "the optimizer's precision flags exclude each other",
        need="not (on(optimizer.fp16) and on(optimizer.bf16))",
        stage=Stage.VALIDATE,
        source="bc:2155",
        why="They say what the gradients come in.",
        bad="optimizer.fp16=true optimizer.bf16=true",
        good="optimizer.fp16=false",
    ),
    requires(
        "PRC006",
        "BR-PREC-03",
        "the precision-aware optimizer needs the model's flags",
        when="on(optimizer.use_precision_aware_optimizer) and unset(get(mixed_precision)) and isset(bf16) and "
        "isset(optimizer.bf16)",
        need=("bf16 == optimizer.bf16", "on(fp16) == on(optimizer.fp16)"),
        stage=Stage.VALIDATE,
        source="bc:2155",
        why="It stores states relative to the parameters' precision. A preset sets both.",
        bad="optimizer.use_precision_aware_optimizer=true mixed_precision=null bf16=true optimizer.bf16=false",
        good="optimizer.bf16=true",
        fixes=({"optimizer.bf16": True},),
    ),
    adjusts(
        "PRC007",
        "MC-FP32RES-01",
        "an FP32 residual stream makes the pipeline FP32",
        when="on(fp32_residual_connection) and PP > 1 and isset(get(pipeline_dtype)) and dtype(get(pipeline_dtype)) != 'fp32'",
        effective={"model.pipeline_dtype": "torch.float32"},
        source="tc:1426",
        why="Stages exchange the residual stream: twice the bytes.",
        bad="fp32_residual_connection=true PP=2 num_layers=4 pipeline_dtype=torch.bfloat16",
        good="pipeline_dtype=torch.float32",
    ),
    requires(
        "PRC008",
        "MLM-PREC-11",
        "an FP32 residual stream is for FP16 or BF16",
        when="on(fp32_residual_connection)",
        need="FP16 or BF16",
        stage=Stage.PARSE,
        source="ar:1376",
        why="In FP32 the stream has that precision already.",
        bad="fp32_residual_connection=true fp16=false bf16=false",
        good="bf16=true",
    ),
    adjusts(
        "PRC009",
        "MLM-PREC-06",
        "FP16 with a dynamic loss scale switches the NaN check off",
        when="FP16 and unset(get(optimizer.loss_scale)) and on(rerun_state_machine.check_for_nan_in_loss)",
        effective={"rerun_state_machine.check_for_nan_in_loss": False},
        stage=Stage.PARSE,
        source="ar:1203",
        why="Overflow steps are skipped and are no error.",
        bad="fp16=true bf16=false optimizer.loss_scale=null rerun_state_machine.check_for_nan_in_loss=true",
        good="rerun_state_machine.check_for_nan_in_loss=false",
    ),
    adjusts(
        "PRC010",
        "MLM-PREC-07",
        "BF16 training accumulates gradients in FP32",
        when="BF16 and ddp.grad_reduce_in_fp32 == False and not on(mlm.grad_reduce_in_bf16) "
        "and dtype(get(optimizer.main_grads_dtype)) in ('fp32', None)",
        effective={"ddp.grad_reduce_in_fp32": True},
        stage=Stage.PARSE,
        source="ar:1217",
        why="Megatron-LM turns it on unless gradients are to be reduced in BF16.",
        bad="bf16=true ddp.grad_reduce_in_fp32=false",
        good="ddp.grad_reduce_in_fp32=true",
    ),
    requires(
        "PRC011",
        "MLM-PREC-08",
        "FP32 accumulation needs FP32 main gradients",
        when="BF16 and on(ddp.grad_reduce_in_fp32)",
        need="dtype(get(optimizer.main_grads_dtype)) in ('fp32', None)",
        stage=Stage.PARSE,
        source="ar:1211",
        why="The main gradients are what is accumulated.",
        bad="bf16=true ddp.grad_reduce_in_fp32=true optimizer.main_grads_dtype=torch.bfloat16 "
        "optimizer.use_precision_aware_optimizer=true",
        good="optimizer.main_grads_dtype=torch.float32",
    ),
    adjusts(
        "PRC012",
        "MLM-PREC-09",
        "FP32 accumulation switches FP32 reduce-scatter off",
        when="on(ddp.grad_reduce_in_fp32) and on(ddp.reduce_scatter_with_fp32_accumulation)",
        effective={"ddp.reduce_scatter_with_fp32_accumulation": False},
        stage=Stage.PARSE,
        source="ar:1232",
        why="The reduction is in FP32 already.",
        bad="core=HEAD ddp.grad_reduce_in_fp32=true ddp.reduce_scatter_with_fp32_accumulation=true",
        good="ddp.reduce_scatter_with_fp32_accumulation=false",
        core=">=0.20",
    ),
    requires(
        "PRC013",
        "MLM-PREC-10",
        "cross entropy in half precision needs FP16",
        when="on(fp16_lm_cross_entropy)",
        need="FP16",
        stage=Stage.PARSE,
        source="ar:1373",
        why="BF16 is too coarse for it.",
        bad="fp16_lm_cross_entropy=true fp16=false",
        good="fp16_lm_cross_entropy=false",
    ),
    adjusts(
        "PRC014",
        "MLM-PREC-12",
        "query-key layer scaling makes the attention softmax FP32",
        when="on(apply_query_key_layer_scaling) and attention_softmax_in_fp32 == False",
        effective={"model.attention_softmax_in_fp32": True},
        stage=Stage.PARSE,
        source="ar:1713",
        why="Scores are scaled back inside the softmax.",
        bad="apply_query_key_layer_scaling=true attention_softmax_in_fp32=false",
        good="attention_softmax_in_fp32=true",
    ),
    requires(
        "PRC015",
        "MLM-XENT-01",
        "fused cross entropy is native or Transformer Engine's",
        when="on(cross_entropy_loss_fusion)",
        need="get(cross_entropy_fusion_impl) != 'te'",
        stage=Stage.PARSE,
        source="ar:1700",
        why="Megatron-LM refuses what Megatron-Core only warns about.",
        bad="cross_entropy_loss_fusion=true cross_entropy_fusion_impl=te",
        good="cross_entropy_fusion_impl=native",
        fixes=({"model.cross_entropy_fusion_impl": "native"},),
    ),
    requires(
        "PRC016",
        "MC-XENT-01",
        "Transformer Engine's fused cross entropy is discouraged",
        when="on(cross_entropy_loss_fusion)",
        need="get(cross_entropy_fusion_impl) != 'te'",
        severity=Severity.INFO,
        frameworks=("bridge",),
        source="lm:megatron/core/model_parallel_config.py:538",
        why="Megatron-Core warns about it; many shipped recipes use it.",
        bad="cross_entropy_loss_fusion=true cross_entropy_fusion_impl=te",
        good="cross_entropy_fusion_impl=native",
    ),
    requires(
        "PRC017",
        "MC-SYMAR-01",
        "symmetric all-reduce needs torch 2.7 and Transformer Engine 2.3",
        when="isset(get(symmetric_ar_type))",
        need=("TORCH >= version('2.7')", "TE >= version('2.3')"),
        source="tc:3133",
        why="The kernels came with those releases.",
        bad="symmetric_ar_type=multimem_all_reduce package.torch=2.6 package.transformer-engine=2.9",
        good="package.torch=2.9",
    ),
)

RULES = (preset_owner, known_preset, state_precision, *BASE)
