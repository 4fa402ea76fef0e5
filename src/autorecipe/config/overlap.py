"""What a comm_overlap section overwrites on model, ddp and optimizer at start.

Source: megatron/bridge/training/comm_overlap.py:406-643 @ 0.6.2. Transformer Engine is taken to be installed.
"""

from __future__ import annotations

from autorecipe.config.state import Resolution, show
from autorecipe.config.traps import OVERLAP_DDP_FIELDS, OVERLAP_MODEL_FIELDS
from autorecipe.schema.run import OriginKind
from autorecipe.schema.value import FieldValue

SECTION = "comm_overlap"
BUCKET_SIZE = 128 * 1024 * 1024


def apply_comm_overlap(state: Resolution) -> None:
    """Write the overlap settings that the section asks for or that upstream chooses."""
    if not state.has_section(SECTION):
        return
    for field, (value, why) in _model_fields(state).items():
        _write(state, f"model.{field}", value, why)
    if state.get("ddp.use_distributed_optimizer") is not True:
        return
    for field, (value, why) in _ddp_fields(state).items():
        for section in ("optimizer", "ddp"):
            _write(state, f"{section}.{field}", value, why)


def _model_fields(state: Resolution) -> dict[str, tuple[FieldValue, str]]:
    tp, pp, vp = (state.size(f"model.{axis}_model_parallel_size") for axis in ("tensor", "pipeline", "virtual_pipeline"))
    interleaved = pp > 1 and vp > 1
    chosen: dict[str, tuple[FieldValue, str]] = {
        "tp_comm_overlap": (False, "off unless asked for"),
        "defer_embedding_wgrad_compute": (False, "off unless asked for"),
        "wgrad_deferral_limit": (-1, "no limit unless asked for"),
        "overlap_moe_expert_parallel_comm": (False, "off unless asked for"),
        "delay_wgrad_compute": (False, "off unless asked for"),
        "overlap_p2p_comm": (interleaved, f"PP={pp}, VP={vp}"),
        "batch_p2p_comm": (pp > 1 and not interleaved, f"PP={pp}, VP={vp}"),
    }
    for field in OVERLAP_MODEL_FIELDS:
        asked = state.get(f"{SECTION}.{field}")
        if asked is not None:
            chosen[field] = (asked, f"{SECTION}.{field}={show(asked)}")
    if chosen["tp_comm_overlap"][0] is True:
        if tp < 2:
            chosen["tp_comm_overlap"] = (False, "tp_comm_overlap needs TP >= 2")
        elif state.get("model.sequence_parallel") is not True:
            chosen["tp_comm_overlap"] = (False, "tp_comm_overlap needs sequence_parallel")
    if chosen["tp_comm_overlap"][0] is not True:
        # The backend is written only with the overlap; elsewhere upstream leaves what the section says, null included.
        chosen.setdefault("tp_comm_bootstrap_backend", (None, "unset on comm_overlap"))
    return chosen


def _ddp_fields(state: Resolution) -> dict[str, tuple[FieldValue, str]]:
    pp, vp = (state.size(f"model.{axis}_model_parallel_size") for axis in ("pipeline", "virtual_pipeline"))
    dp = state.get("data_parallel_size")
    if dp is None:
        is_parallel, why = True, "distributed optimizer and DP > 1 (the GPU count is not given)"
    else:
        is_parallel, why = dp > 1, f"distributed optimizer and DP={dp}"
    chosen: dict[str, tuple[FieldValue, str]] = {
        "bucket_size": (BUCKET_SIZE if is_parallel else None, why),
        "overlap_grad_reduce": (is_parallel, why),
        "overlap_param_gather": (is_parallel, why),
        "overlap_param_gather_with_optimizer_step": (False, "off unless asked for"),
        "align_param_gather": (is_parallel and pp > 1 and vp > 1, f"{why}, PP={pp}, VP={vp}"),
        "delay_wgrad_compute": (None, "unset on comm_overlap"),
    }
    for field in OVERLAP_DDP_FIELDS:
        asked = state.get(f"{SECTION}.{field}")
        if asked is not None:
            chosen[field] = (asked, f"{SECTION}.{field}={show(asked)}")
    return chosen


def _write(state: Resolution, path: str, value: FieldValue, why: str) -> None:
    if not state.has(path):
        return
    wanted = show(state.get(path))
    field = path.split(".", 1)[1]
    state.overrule(
        path,
        value,
        trap="TRAP-OVL",
        kind=OriginKind.PRESET,
        detail=f"comm_overlap decides {field} ({why})",
        remedy=f"set {SECTION}.{field}={wanted}",
    )
