"""Which data a configuration asks for: mock, or indexed files with blend, split and cache. No torch.

Leaves out: reading (`datasets`), writing (`index`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from autorecipe.errors import EnvironmentProblem, Problem, UsageError
from autorecipe.schema.run import RunConfig
from autorecipe.schema.value import UNKNOWN

Blend: TypeAlias = tuple[tuple[str, ...], tuple[float, ...] | None]
"""Path prefixes (without .bin/.idx) and their weights, or None for weights by size."""

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """The data of one run.

    Attributes:
        mock: synthetic tokens, identical to Megatron-LM's mock stream.
        blend: one blend that `split` cuts into train, validation and test; None where unused.
        blend_per_split: own blends of train, validation and test (None where a split has none); None where unused.
        split: such as `9999,8,2`.
        seed: of shuffling and mixing.
        cache: folder for shuffle indices, or None for next to the data.
        order: `single` (dataset order) or `cyclic` (reshuffled each epoch).
        sharding: whether a cyclic rank keeps to its own shard.
        num_workers: loader processes per rank and split.
        reset_position_ids: restart positions after each document.
        reset_attention_mask: keep attention inside documents.
        eod_mask_loss: no loss on end-of-document tokens.
        mmap: map .bin files instead of reading them.
    """

    mock: bool
    blend: Blend | None
    blend_per_split: tuple[Blend | None, Blend | None, Blend | None] | None
    split: str | None
    seed: int
    cache: Path | None
    order: str
    sharding: bool
    num_workers: int
    reset_position_ids: bool
    reset_attention_mask: bool
    eod_mask_loss: bool
    mmap: bool

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Every path prefix that is read, once, in order."""
        blends = [self.blend] if self.blend else list(self.blend_per_split or ())
        return tuple(dict.fromkeys(prefix for blend in blends if blend for prefix in blend[0]))

    def render(self) -> str:
        """Return one line for the user."""
        if self.mock:
            return "mock data (synthetic tokens; losses prove nothing about convergence)"
        return f"indexed data: {', '.join(self.prefixes)}"


def read_data_spec(run: RunConfig) -> DataSpec:
    """Read the data fields.

    Raises:
        UsageError: contradictory or malformed fields, or a dataset that only another engine reads.
    """
    problems: list[Problem] = []

    def value(path: str, fallback: Any = None) -> Any:
        found = run.get(path, None)
        return fallback if found is None or found is UNKNOWN else found

    data_path, blend_value, per_split_value = value("dataset.data_path"), value("dataset.blend"), value("dataset.blend_per_split")
    given = [
        name
        for name, found in (("data_path", data_path), ("blend", blend_value), ("blend_per_split", per_split_value))
        if found is not None
    ]
    if "blend_per_split" in given and len(given) > 1:
        problems.append(
            Problem(
                path="dataset.blend_per_split",
                code="contradiction",
                message=f"and dataset.{given[0]} are both set",
                hint="set one of them to null",
            )
        )
    blend = None
    per_split = None
    if blend_value is not None:
        blend = _parse_blend("dataset.blend", blend_value, problems)
    elif data_path is not None:
        blend = _parse_path_list("dataset.data_path", data_path, problems)
    elif per_split_value is not None:
        if not isinstance(per_split_value, Sequence) or len(per_split_value) != len(SPLITS):
            problems.append(
                Problem(
                    path="dataset.blend_per_split",
                    code="bad-value",
                    message=f"needs three entries ({', '.join(SPLITS)}), each a blend or null",
                    hint="such as dataset.blend_per_split=[[[train_text],null],[[valid_text],null],null]",
                )
            )
        else:
            parsed = [
                None if entry is None else _parse_blend(f"dataset.blend_per_split[{index}]", entry, problems)
                for index, entry in enumerate(per_split_value)
            ]
            per_split = (parsed[0], parsed[1], parsed[2])
    order = str(value("dataset.dataloader_type", "single"))
    if order not in ("single", "cyclic"):
        problems.append(
            Problem(
                path="dataset.dataloader_type",
                code="unsupported",
                message=f"{order!r} is not supported by --engine core",
                hint="use dataset.dataloader_type=single or cyclic, or --engine bridge",
            )
        )
    split = value("dataset.split")
    if blend is not None and split is None:
        problems.append(
            Problem(path="dataset.split", code="missing-value", message="is not set", hint="add dataset.split=969,30,1")
        )
    if problems:
        raise UsageError(problems)
    cache = value("dataset.path_to_cache")
    return DataSpec(
        mock=blend is None and per_split is None,
        blend=blend,
        blend_per_split=per_split,
        split=None if split is None else str(split),
        seed=int(value("dataset.random_seed", value("rng.seed", 1234))),
        cache=Path(str(cache)) if cache else None,
        order=order,
        sharding=bool(value("dataset.data_sharding", True)),
        num_workers=int(value("dataset.num_workers", 2)),
        reset_position_ids=bool(value("dataset.reset_position_ids", False)),
        reset_attention_mask=bool(value("dataset.reset_attention_mask", False)),
        eod_mask_loss=bool(value("dataset.eod_mask_loss", False)),
        mmap=bool(value("dataset.mmap_bin_files", True)),
    )


def check_data_files(spec: DataSpec) -> None:
    """Check that every indexed file pair is here and not empty.

    Raises:
        EnvironmentProblem: naming every missing or empty file at once.
    """
    problems = []
    for prefix in spec.prefixes:
        for suffix in (".bin", ".idx"):
            path = Path(prefix + suffix)
            if path.is_file() and path.stat().st_size > 0:
                continue
            state = "is empty" if path.is_file() else "is not here"
            problems.append(
                Problem(
                    path=str(path),
                    code="data-missing",
                    message=state,
                    hint=f"make it with `autorecipe data index TEXT.jsonl --output {prefix}`, or correct dataset.blend",
                )
            )
    if problems:
        raise EnvironmentProblem(problems)


def _parse_blend(path: str, value: Any, problems: list[Problem]) -> Blend | None:
    """Parse `[[prefix, ...], [weight, ...] or null]`; a flat list is a path list."""
    if (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and len(value) == 2
        and isinstance(value[0], Sequence)
        and not isinstance(value[0], str)
    ):
        prefixes = tuple(str(prefix) for prefix in value[0])
        weights = value[1]
        if weights is None:
            return prefixes, None
        if not isinstance(weights, Sequence) or isinstance(weights, str) or len(weights) != len(prefixes):
            problems.append(
                Problem(
                    path=path,
                    code="bad-value",
                    message=f"{len(prefixes)} paths need {len(prefixes)} weights or null, not {weights!r}",
                    hint="such as dataset.blend=[[a_text,b_text],[0.3,0.7]]",
                )
            )
            return None
        return prefixes, tuple(float(weight) for weight in weights)
    return _parse_path_list(path, value, problems)


def _parse_path_list(path: str, value: Any, problems: list[Problem]) -> Blend | None:
    """Parse `PREFIX`, `PREFIX PREFIX`, or `WEIGHT PREFIX WEIGHT PREFIX`, as text or list."""
    words = value.split() if isinstance(value, str) else [str(word) for word in value]
    weights = [_number(word) for word in words[0::2]]
    if len(words) > 1 and len(words) % 2 == 0 and all(weight is not None for weight in weights):
        return tuple(words[1::2]), tuple(weight for weight in weights if weight is not None)
    if not words or any(_number(word) is not None for word in words):
        problems.append(
            Problem(
                path=path,
                code="bad-value",
                message=f"{value!r} mixes paths with and without weights",
                hint="give PREFIX ..., or WEIGHT PREFIX for every one",
            )
        )
        return None
    return tuple(words), None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
