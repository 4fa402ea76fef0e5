"""Rules for length of training, learning-rate schedule and the weight decay that acts."""

from __future__ import annotations

from autorecipe.schema.translation import Status
from autorecipe.schema.value import FieldValue
from autorecipe.translate.effective import MlmConfig
from autorecipe.translate.rule import BridgeView, Cell, Rule

_LENGTH = (
    "train_iters",
    "train_samples",
    "lr_decay_iters",
    "lr_decay_samples",
    "lr_warmup_iters",
    "lr_warmup_samples",
    "lr_warmup_fraction",
)
_LENGTH_PATHS = ("train.train_iters", "train.train_samples", *(f"scheduler.{dest}" for dest in _LENGTH[2:]))


def _length_forward(config: MlmConfig) -> list[Cell]:
    cells: list[Cell] = []
    samples = config.get("train_samples")
    clears = "recipes preset iterations, and Bridge refuses both units at once"
    if samples is not None:
        cells.append(Cell("train.train_samples", samples, ("train_samples",)))

        def counts_samples(view: BridgeView) -> bool:
            return bool(view.get("train.train_samples") == samples)  # Bridge derives the iterations from them

        cells.append(Cell("train.train_iters", None, ("train_samples",), clears, matches=counts_samples))
        if "lr_decay_samples" in config.given:
            cells.append(Cell("scheduler.lr_decay_samples", config.get("lr_decay_samples"), ("lr_decay_samples",)))
        cells.append(Cell("scheduler.lr_decay_iters", None, ("train_samples",), clears, quiet=True))
    elif config.get("train_iters") is not None:
        decays = ("lr_decay_iters", "train_iters")
        cells.append(Cell("train.train_iters", config.get("train_iters"), ("train_iters",)))
        cells.append(Cell("train.train_samples", None, ("train_iters",), clears, quiet=True))
        cells.append(
            Cell("scheduler.lr_decay_iters", config.get("lr_decay_iters"), decays, "the decay takes the whole run unless given")
        )
        cells.append(Cell("scheduler.lr_decay_samples", None, ("train_iters",), clears, quiet=True))
    elif "lr_decay_iters" in config.given:
        cells.append(Cell("scheduler.lr_decay_iters", config.get("lr_decay_iters"), ("lr_decay_iters",)))
    return cells + _warmup(config, by_samples=samples is not None)


def _warmup(config: MlmConfig, *, by_samples: bool) -> list[Cell]:
    fraction = config.get("lr_warmup_fraction")
    dests = ("lr_warmup_fraction", "lr_warmup_iters", "lr_warmup_samples")
    iterations = 0 if by_samples or fraction is not None else config.get("lr_warmup_iters")
    samples = config.get("lr_warmup_samples") if by_samples and fraction is None else 0
    why = "" if config.given & {*dests} else "Megatron-LM does not warm up unless told to"
    deciding = ("lr_warmup_iters",) if fraction is None and not by_samples else (*dests, "train_samples")
    return [
        Cell("scheduler.lr_warmup_fraction", fraction, ("lr_warmup_fraction",), why),
        Cell("scheduler.lr_warmup_iters", iterations, deciding, why),
        Cell("scheduler.lr_warmup_samples", samples, ("lr_warmup_samples",), why),
    ]


def _length_backward(view: BridgeView) -> dict[str, FieldValue]:
    values: dict[str, FieldValue] = {}
    by_samples = view.get("train.train_samples") is not None
    unit = "samples" if by_samples else "iters"
    values[f"train_{unit}"] = view.get(f"train.train_{unit}")
    decay = view.get(f"scheduler.lr_decay_{unit}")
    if decay is not None and decay != values[f"train_{unit}"]:
        values[f"lr_decay_{unit}"] = decay
    fraction = view.get("scheduler.lr_warmup_fraction")
    if fraction is not None:
        values["lr_warmup_fraction"] = fraction
    elif view.get(f"scheduler.lr_warmup_{unit}"):
        values[f"lr_warmup_{unit}"] = view.get(f"scheduler.lr_warmup_{unit}")
    return values


_DECAY = ("weight_decay", "start_weight_decay", "end_weight_decay", "weight_decay_incr_style")


def _decay_forward(config: MlmConfig) -> list[Cell]:
    why = "Bridge applies the scheduler's decay at every step; optimizer.weight_decay alone does nothing"
    style, decay = config.get("weight_decay_incr_style"), config.get("weight_decay")
    constant = style == "constant"
    start, end = (("weight_decay",) if constant else (f"{name}_weight_decay",) for name in ("start", "end"))
    cells = [
        Cell("scheduler.start_weight_decay", config.get("start_weight_decay"), start, why),
        Cell("scheduler.end_weight_decay", config.get("end_weight_decay"), end, why),
        Cell("scheduler.weight_decay_incr_style", style, ("weight_decay_incr_style",)),
    ]
    if constant:
        cells.append(Cell("optimizer.weight_decay", decay, ("weight_decay",), "does not act; kept equal", inert=True))
    return cells


def _decay_backward(view: BridgeView) -> dict[str, FieldValue]:
    style = view.get("scheduler.weight_decay_incr_style", "constant")
    start, end = view.get("scheduler.start_weight_decay"), view.get("scheduler.end_weight_decay")
    if style == "constant":
        return {} if start is None else {"weight_decay": start, "weight_decay_incr_style": style}
    values = {"weight_decay_incr_style": style, "start_weight_decay": start, "end_weight_decay": end}
    values["weight_decay"] = view.get("optimizer.weight_decay", 0.01)
    return values


def _saved_forward(config: MlmConfig) -> list[Cell]:
    use, override = "use_checkpoint_opt_param_scheduler", "override_opt_param_scheduler"
    dests = (override, use) if config.on(use) else (override,)
    why = "recipes override the checkpoint's schedule, and Bridge refuses both" if config.on(use) else ""
    return [
        Cell(f"scheduler.{use}", config.on(use), (use,)),
        Cell(f"scheduler.{override}", config.on(override), dests, why),
    ]


def _saved_backward(view: BridgeView) -> dict[str, FieldValue]:
    names = ("use_checkpoint_opt_param_scheduler", "override_opt_param_scheduler")
    return {name: view.on(f"scheduler.{name}") for name in names if view.knows(f"scheduler.{name}")}


def _norms_forward(config: MlmConfig) -> list[Cell]:
    dests = ("apply_wd_to_qk_layernorm", "no_weight_decay_cond_type")
    decays = config.on("apply_wd_to_qk_layernorm")
    return [Cell("optimizer.apply_wd_to_qk_layernorm", decays, dests, config.derived.get("apply_wd_to_qk_layernorm", ""))]


def _norms_backward(view: BridgeView) -> dict[str, FieldValue]:
    path = "optimizer.apply_wd_to_qk_layernorm"
    return {"apply_wd_to_qk_layernorm": view.on(path)} if view.knows(path) else {}


SCHEDULE_RULES = (
    Rule(
        name="schedule of a checkpoint",
        dests=("use_checkpoint_opt_param_scheduler", "override_opt_param_scheduler"),
        paths=("scheduler.use_checkpoint_opt_param_scheduler", "scheduler.override_opt_param_scheduler"),
        status=Status.SAME,
        forward=_saved_forward,
        backward=_saved_backward,
    ),
    Rule(
        name="decay of query and key norms",
        dests=("apply_wd_to_qk_layernorm", "no_weight_decay_cond_type"),
        paths=("optimizer.apply_wd_to_qk_layernorm",),
        status=Status.SAME,
        forward=_norms_forward,
        backward=_norms_backward,
    ),
    Rule(
        name="length and warmup",
        dests=_LENGTH,
        paths=_LENGTH_PATHS,
        status=Status.DERIVED,
        forward=_length_forward,
        backward=_length_backward,
    ),
    Rule(
        name="weight decay",
        dests=_DECAY,
        paths=(
            "scheduler.start_weight_decay",
            "scheduler.end_weight_decay",
            "optimizer.weight_decay",
            "scheduler.weight_decay_incr_style",
        ),
        status=Status.EXPANDS,
        forward=_decay_forward,
        backward=_decay_backward,
    ),
)
