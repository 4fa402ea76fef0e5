"""Rules for training data and vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

from autorecipe.schema.translation import Status
from autorecipe.schema.value import FieldValue
from autorecipe.translate.effective import MlmConfig
from autorecipe.translate.rule import BridgeView, Cell, Rule

_PARTS = ("train_data_path", "valid_data_path", "test_data_path")
_DATA = ("mock_data", "data_path", *_PARTS, "split")


def _data_forward(config: MlmConfig) -> list[Cell]:
    cells: list[Cell] = []
    mock = config.on("mock_data")
    if mock:
        note = "Bridge uses mock data where no data path is set; start run_recipe.py with `--dataset mock`"
        config.remark("mock_data", Status.DERIVED, note)
        sources = ("dataset.data_path", "dataset.blend", "dataset.blend_per_split")
        cells += [Cell(path, None, ("mock_data",), note, quiet=True) for path in sources]
    paths = config.get("data_path")
    if paths is not None:
        joined = paths if any(" " in item for item in paths) else " ".join(paths)
        cells.append(Cell("dataset.data_path", joined, ("data_path",)))
    if any(config.get(part) is not None for part in _PARTS):
        blends = [_to_blend(config.get(part)) for part in _PARTS]
        cells.append(Cell("dataset.blend_per_split", blends, _PARTS, "training, validation and test blends"))
    split = config.get("split")
    if split is not None:
        text = ",".join(item.strip() for item in str(split).split(","))
        cells.append(Cell("dataset.split", text, ("split", "data_path"), config.derived.get("split", "")))
    return cells


def _to_blend(words: Sequence[str] | None) -> FieldValue:
    """Return `[paths, weights]` as core's datasets take a blend: pairs of weight and path, or paths alone."""
    if not words:
        return None
    if len(words) % 2 == 0 and all(_is_number(word) for word in words[0::2]):
        return [list(words[1::2]), [float(word) for word in words[0::2]]]
    return [list(words), None]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _from_blend(blend: FieldValue) -> list[str] | None:
    if not blend:
        return None
    paths, weights = blend
    if weights is None:
        return list(paths)
    return [text for weight, path in zip(weights, paths, strict=True) for text in (repr(float(weight)), path)]


def _data_backward(view: BridgeView) -> dict[str, FieldValue]:
    values: dict[str, FieldValue] = {}
    path, blends = view.get("dataset.data_path"), view.get("dataset.blend_per_split")
    if path is not None:
        values["data_path"] = path.split() if isinstance(path, str) else list(path)
    elif blends:
        values |= {part: _from_blend(blend) for part, blend in zip(_PARTS, blends, strict=False) if blend}
    elif not view.get("dataset.blend"):
        values["mock_data"] = True
    if view.get("dataset.split") is not None and "mock_data" not in values and not blends:
        values["split"] = str(view.get("dataset.split"))
    return values


_VOCABULARY = ("vocab_size", "padded_vocab_size")


def _vocabulary_forward(config: MlmConfig) -> list[Cell]:
    cells: list[Cell] = []
    if config.get("vocab_size") is not None:
        cells.append(Cell("tokenizer.vocab_size", config.get("vocab_size"), ("vocab_size",)))
    padded = config.get("padded_vocab_size")
    if padded is not None:
        why = "an explicit model vocabulary acts only when the tokenizer's is not used, and is not padded again"
        cells.append(Cell("model.vocab_size", padded, ("padded_vocab_size",), why))
        cells.append(Cell("tokenizer.use_tokenizer_vocab_size", False, ("padded_vocab_size",), why))
    return cells


def _vocabulary_backward(view: BridgeView) -> dict[str, FieldValue]:
    values: dict[str, FieldValue] = {}
    if view.get("tokenizer.vocab_size") is not None:
        values["vocab_size"] = view.get("tokenizer.vocab_size")
    explicit = view.get("model.vocab_size")
    if explicit is not None and not view.on("tokenizer.use_tokenizer_vocab_size"):
        values["padded_vocab_size"] = explicit
    return values


def _positions_table_forward(config: MlmConfig) -> list[Cell]:
    table, length = config.number("max_position_embeddings"), config.number("seq_length")
    dest = "max_position_embeddings"
    if table is None or dest not in config.given:
        return []
    if table == length:
        config.remark(
            dest, Status.DERIVED, "nothing to write: equal to the sequence length, and Bridge's providers have no such field"
        )
    elif config.get("position_embedding_type") == "learned_absolute":
        config.remark(
            dest,
            Status.UNMAPPED,
            f"Megatron-LM's table has {table} learned positions; Bridge's has as many as the sequence is long ({length})",
        )
    else:
        config.remark(dest, Status.DERIVED, "nothing to write: the position embedding has no table")
    return []


DATA_RULES = (
    Rule(
        name="training data",
        dests=_DATA,
        paths=("dataset.data_path", "dataset.blend", "dataset.blend_per_split", "dataset.split", "dataset.mock"),
        status=Status.SAME,
        forward=_data_forward,
        backward=_data_backward,
    ),
    Rule(
        name="vocabulary",
        dests=_VOCABULARY,
        paths=("tokenizer.vocab_size", "model.vocab_size", "tokenizer.use_tokenizer_vocab_size"),
        status=Status.RENAMED,
        forward=_vocabulary_forward,
        backward=_vocabulary_backward,
    ),
    Rule(
        name="position table",
        dests=("max_position_embeddings",),
        paths=(),
        status=Status.DERIVED,
        forward=_positions_table_forward,
        backward=lambda view: {},
    ),
)
