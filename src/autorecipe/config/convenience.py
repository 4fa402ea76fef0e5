"""The convenience flags of the training launcher, and the paths that they stand for.

`scripts/training/run_recipe.py` and the command line share this table. Upstream turns each flag into an override that comes
before the trailing KEY=VALUE ones, so a trailing override wins (Megatron-Bridge scripts/training/run_recipe.py, 2026-08-22).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autorecipe.config.grammar import render_value
from autorecipe.record import dataclass
from autorecipe.schema.value import FieldValue


@dataclass(frozen=True, kw_only=True)
class ConvenienceFlag:
    """One flag.

    Attributes:
        name: long flag, such as `--global_batch_size`.
        short: short flag, such as `-gb`; empty where there is none.
        paths: configuration paths that it sets, all to the same value.
        type: Python type of the value.
        metavar: placeholder for help.
        help: one line for help.
    """

    name: str
    short: str
    paths: tuple[str, ...]
    type: type[int] | type[float] | type[str]
    metavar: str
    help: str

    @property
    def dest(self) -> str:
        """Attribute name after parsing, such as `global_batch_size`."""
        return self.name.lstrip("-").replace("-", "_")

    @property
    def flags(self) -> tuple[str, ...]:
        """Every spelling, short first."""
        return (self.short, self.name) if self.short else (self.name,)


def _flag(names: str, path: str, kind: type[int] | type[float] | type[str], metavar: str, what: str) -> ConvenienceFlag:
    *short, name = names.split()
    return ConvenienceFlag(
        name=name,
        short=short[0] if short else "",
        paths=(path,),
        type=kind,
        metavar=metavar,
        help=f"{what}; same as {path}={metavar}",
    )


CONVENIENCE_FLAGS: tuple[ConvenienceFlag, ...] = (
    _flag("-ms --max_steps", "train.train_iters", int, "STEPS", "training steps"),
    _flag("-gb --global_batch_size", "train.global_batch_size", int, "SIZE", "samples per optimizer step"),
    _flag("-mb --micro_batch_size", "train.micro_batch_size", int, "SIZE", "samples per forward pass on one rank"),
    _flag("-sl --seq_length", "dataset.seq_length", int, "LENGTH", "sequence length (the model's follows it)"),
    _flag("-tp --tensor_model_parallel_size", "model.tensor_model_parallel_size", int, "N", "tensor parallel size"),
    _flag("-pp --pipeline_model_parallel_size", "model.pipeline_model_parallel_size", int, "N", "pipeline parallel size"),
    _flag("-cp --context_parallel_size", "model.context_parallel_size", int, "N", "context parallel size"),
    _flag(
        "-vp --virtual_pipeline_model_parallel_size",
        "model.virtual_pipeline_model_parallel_size",
        int,
        "N",
        "virtual pipeline chunks per stage",
    ),
    _flag("-ep --expert_model_parallel_size", "model.expert_model_parallel_size", int, "N", "expert parallel size"),
    _flag("-etp --expert_tensor_parallel_size", "model.expert_tensor_parallel_size", int, "N", "expert tensor parallel size"),
    _flag("--lr", "optimizer.lr", float, "VALUE", "peak learning rate"),
    _flag("--min_lr", "optimizer.min_lr", float, "VALUE", "final learning rate"),
    _flag("--warmup_iters", "scheduler.lr_warmup_iters", int, "STEPS", "warmup steps"),
    _flag("--pretrained_checkpoint", "checkpoint.pretrained_checkpoint", str, "PATH", "checkpoint to start from"),
    _flag("--save_dir", "checkpoint.save", str, "PATH", "where checkpoints are written"),
    _flag("--load_dir", "checkpoint.load", str, "PATH", "checkpoint folder to resume from"),
    _flag("--save_interval", "checkpoint.save_interval", int, "STEPS", "steps between checkpoints"),
)
"""Flags in the order in which upstream turns them into overrides."""


def convenience_overrides(given: Mapping[str, FieldValue]) -> tuple[str, ...]:
    """Turn parsed flags into override texts.

    Args:
        given: `dest` -> value; flags that were not given are absent or None.
    """
    return tuple(
        f"{path}={render_value(given[flag.dest])}"
        for flag in CONVENIENCE_FLAGS
        if given.get(flag.dest) is not None
        for path in flag.paths
    )


def join_overrides(given: Mapping[str, FieldValue], trailing: Sequence[str]) -> tuple[str, ...]:
    """Return every override in order of application: flags first, so that a trailing KEY=VALUE wins."""
    return (*convenience_overrides(given), *trailing)
