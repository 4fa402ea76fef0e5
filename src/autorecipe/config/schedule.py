"""The schedule that acts: training length, learning-rate steps, capped warmup, weight decay.

Source: megatron/bridge/training/config.py:1607 (_calculate_scheduler_steps), :467 (TrainingConfig.finalize), optim.py:347
@ 0.6.2. Steps are counted in samples, as upstream does.
"""

from __future__ import annotations

from autorecipe.config.state import Resolution, show
from autorecipe.schema.run import OriginKind

DERIVED = OriginKind.DERIVED


def derive_schedule(state: Resolution) -> None:
    """Derive the training length and the scheduler's steps."""
    _derive_weight_decay(state)
    samples, batch = _integer(state, "train.train_samples"), _integer(state, "train.global_batch_size")
    if samples is not None:
        if state.get("train.train_iters") is not None:
            state.note(
                "TRAP-SAMPLES",
                f"train.train_samples={samples} and train.train_iters={show(state.get('train.train_iters'))} are both set, which "
                "Megatron Bridge refuses",
            )
        elif batch:
            iters = samples // batch
            state.replace("train.train_iters", iters, kind=DERIVED, detail=f"{samples} samples / global batch {batch}")
        _derive_steps(state, unit="samples", length=samples, scale=1)
        return
    iters_given = _integer(state, "train.train_iters")
    if iters_given is not None and batch:
        _derive_steps(state, unit="iters", length=iters_given, scale=batch)


def _derive_steps(state: Resolution, *, unit: str, length: int, scale: int) -> None:
    """Upstream's arithmetic in samples: `unit` is what the schedule is written in, `scale` its samples."""
    if not any(path.startswith("scheduler.") for path in state.values):
        return
    decay_path, wsd_path = f"scheduler.lr_decay_{unit}", f"scheduler.lr_wsd_decay_{unit}"
    limit = _integer(state, "scheduler.max_steps") if unit == "iters" else None
    if limit is not None:
        state.overrule(
            decay_path,
            limit,
            trap="TRAP-WARMUP",
            kind=DERIVED,
            detail=f"scheduler.max_steps={limit} is the length of the schedule",
            remedy="set scheduler.max_steps=null to use lr_decay_iters",
        )
    elif state.get(decay_path) is None:
        state.replace(decay_path, length, kind=DERIVED, detail="unset: as long as the training")
    decay = _integer(state, decay_path)
    if decay is None:
        return
    if unit == "iters" and state.get("scheduler.lr_decay_style") == "WSD" and state.get(wsd_path) is None:
        state.replace(wsd_path, decay, kind=DERIVED, detail="unset: as long as the decay")
    decay_steps = decay * scale
    _set(state, "lr_decay_steps", decay_steps, f"lr_decay_{unit} x {scale} samples")
    _set(state, "wd_incr_steps", (limit or length) * scale, f"the training's length in {unit} x {scale} samples")
    wsd = _integer(state, wsd_path)
    if wsd is not None:
        _set(state, "wsd_decay_steps", wsd * scale, f"lr_wsd_decay_{unit} x {scale} samples")
    fraction = state.get("scheduler.lr_warmup_fraction")
    warmup = _integer(state, f"scheduler.lr_warmup_{unit}") or 0
    if isinstance(fraction, int | float) and not isinstance(fraction, bool):
        steps: float = fraction * decay_steps
        why = f"lr_warmup_fraction={fraction} x lr_decay_steps"
    else:
        steps, why = warmup * scale, f"lr_warmup_{unit}={warmup} x {scale} samples"
    if steps >= decay_steps > 0:
        capped = decay_steps - 1
        _set(state, "lr_warmup_steps", capped, f"{why} = {steps} does not fit the decay of {decay_steps}: capped at decay - 1")
        state.note(
            "TRAP-WARMUP",
            f"warmup ({why} = {steps} samples) is not shorter than the decay ({decay_steps} samples): it is capped, the learning "
            "rate still ramps at the end and never decays",
            remedy=f"set scheduler.lr_warmup_iters to less than {decay}, or scheduler.max_steps to the full length"
            if unit == "iters"
            else f"set scheduler.lr_warmup_samples to less than {decay}",
        )
    else:
        _set(state, "lr_warmup_steps", steps, why)
    _note_unequal_lengths(state, unit=unit, length=length, decay=decay, decay_path=decay_path)


def _note_unequal_lengths(state: Resolution, *, unit: str, length: int, decay: int, decay_path: str) -> None:
    """Say where a typed length leaves the decay shorter or longer than the training."""
    length_path = f"train.train_{unit}"
    if decay < length and (decay_path in state.typed or length_path in state.typed):
        state.note(
            "TRAP-WARMUP",
            f"the learning rate reaches its minimum after {decay} of {length} {unit}",
            remedy=f"set {decay_path}={length} where that is not meant",
        )
    has_full_length = state.get("scheduler.max_steps") is not None
    if decay > length and length_path in state.typed and decay_path not in state.typed and not has_full_length:
        state.note(
            "TRAP-WARMUP",
            f"the learning rate decays over {decay} {unit} but the training stops after {length}: it never reaches its minimum",
            remedy=f"set {decay_path}={length} for a full schedule (a new experiment), or leave it for a shortened one",
        )


def _derive_weight_decay(state: Resolution) -> None:
    start, end = state.get("scheduler.start_weight_decay"), state.get("scheduler.end_weight_decay")
    path = "optimizer.weight_decay"
    if not state.has(path) or start is None:
        return
    given = state.get(path)
    acts = show(start) if start == end else f"{show(start)}..{show(end)}"
    state.overrule(
        path,
        start,
        trap="TRAP-WD",
        kind=DERIVED,
        detail=f"the scheduler writes its own weight decay ({acts}) into every parameter group each step",
        remedy=f"set scheduler.start_weight_decay={show(given)} scheduler.end_weight_decay={show(given)}",
    )


def _set(state: Resolution, field: str, value: float, why: str) -> None:
    state.replace(f"scheduler.{field}", value, kind=DERIVED, detail=why)


def _integer(state: Resolution, path: str) -> int | None:
    value = state.get(path)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
