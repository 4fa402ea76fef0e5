"""Streams over mock and indexed data: order, blends, documents kept apart, and trained on."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from tests.e2e.conftest import Outcome, read_trace

from autorecipe.engine import compat
from autorecipe.engine.data.datasets import build_datasets, build_streams
from autorecipe.engine.data.index import write_index
from autorecipe.engine.data.spec import DataSpec, read_data_spec
from autorecipe.engine.data.tokenizer import ByteTokenizer, NullTokenizer
from autorecipe.engine.loop.settings import LoopSettings, read_settings
from autorecipe.schema.run import RunConfig

pytestmark = pytest.mark.xdist_group("ranks")

BASE: dict[str, Any] = {
    "train.train_iters": 10,
    "train.global_batch_size": 4,
    "train.micro_batch_size": 2,
    "validation.eval_iters": 1,
    "validation.eval_interval": 5,
    "dataset.seq_length": 64,
    "dataset.random_seed": 1234,
}


def read(**extra: Any) -> tuple[DataSpec, LoopSettings]:
    run = RunConfig(values={**BASE, **{f"dataset.{name}": value for name, value in extra.items()}})
    return read_data_spec(run), read_settings(run)


def corpus(folder: Path, name: str, letter: str, documents: int = 40) -> str:
    source = folder / f"{name}.jsonl"
    source.write_text("".join(json.dumps({"text": letter * (10 + number)}) + "\n" for number in range(documents)))
    write_index([source], str(folder / name), tokenizer=ByteTokenizer())
    return str(folder / name)


@pytest.fixture(autouse=True, scope="module")
def core() -> Iterator[None]:
    """Make Megatron-Core importable and give it the process group of one that its blended dataset asks for."""
    compat.prepare()
    started = not torch.distributed.is_initialized()
    if started:
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    if started:
        torch.distributed.destroy_process_group()


def test_mock_samples_are_what_megatron_cores_own_dataset_gives() -> None:
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDatasetConfig, MockGPTDataset

    spec, settings = read()
    tokenizer = NullTokenizer(512)
    datasets = build_datasets(spec, settings, tokenizer)
    config = GPTDatasetConfig(
        random_seed=1234,
        sequence_length=64,
        tokenizer=tokenizer,
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
    )
    expected = BlendedMegatronDatasetBuilder(MockGPTDataset, [40, 3 * 4, 4], lambda: True, config).build()
    for ours, theirs in zip(datasets, expected, strict=True):
        assert all(torch.equal(ours[index]["tokens"], theirs[index]["tokens"]) for index in range(8))


def test_ranks_and_resumed_streams_read_the_same_samples_in_the_same_order() -> None:
    spec, settings = read()
    datasets = build_datasets(spec, settings, NullTokenizer(512))

    def first_tokens(*, consumed: int, rank: int, size: int, batches: int) -> list[list[int]]:
        streams = build_streams(
            datasets, spec, settings, consumed_train=consumed, consumed_valid=0, data_parallel_rank=rank, data_parallel_size=size
        )
        assert streams.train is not None
        return [next(streams.train)["tokens"].tolist() for _ in range(batches)]

    one = [row for batch in first_tokens(consumed=0, rank=0, size=1, batches=8) for row in batch]
    two = [first_tokens(consumed=0, rank=rank, size=2, batches=4) for rank in (0, 1)]
    assert one == [row for batches in zip(*two, strict=True) for batch in batches for row in batch]
    resumed = [row for batch in first_tokens(consumed=8, rank=0, size=1, batches=4) for row in batch]
    assert resumed == one[8:]


def test_a_blend_draws_by_weight(tmp_path: Path) -> None:
    paths = [corpus(tmp_path, "a", "a"), corpus(tmp_path, "b", "b")]
    spec, settings = read(blend=[paths, [0.25, 0.75]], split="100,0,0", path_to_cache=str(tmp_path / "cache"))
    train, validation, test = build_datasets(spec, settings, ByteTokenizer())
    shares = [int((train[index]["tokens"] == ord("b")).any()) for index in range(40)]
    assert numpy.mean(shares) == pytest.approx(0.75, abs=0.03)
    assert validation is None and test is None
    assert list((tmp_path / "cache").iterdir())


def test_own_blends_per_split_are_kept_apart(tmp_path: Path) -> None:
    paths = [corpus(tmp_path, "a", "a"), corpus(tmp_path, "b", "b")]
    spec, settings = read(blend_per_split=[[[paths[0]], None], [[paths[1]], None], None])
    train, validation, test = build_datasets(spec, settings, ByteTokenizer())
    assert not (train[0]["tokens"] == ord("b")).any()
    assert not (validation[0]["tokens"] == ord("a")).any()
    assert test is None


def test_documents_are_kept_apart_where_asked(tmp_path: Path) -> None:
    fields = {"reset_position_ids": True, "reset_attention_mask": True, "eod_mask_loss": True}
    spec, settings = read(data_path=corpus(tmp_path, "a", "a"), split="100,0,0", **fields)
    sample = build_datasets(spec, settings, ByteTokenizer())[0][0]
    ends = (sample["tokens"] == ByteTokenizer().eod).nonzero().flatten().tolist()
    assert ends
    assert sample["loss_mask"][ends].sum() == 0
    following = ends[0] + 1
    assert sample["position_ids"][following] == 0
    # True forbids: the token after a document's end must not see the document.
    assert sample["attention_mask"][0, following, : ends[0] + 1].all()


@pytest.mark.parametrize("order", ["single", "cyclic"])
def test_text_is_indexed_and_trained_on(train_ranks: Callable[..., Outcome], tmp_path: Path, order: str) -> None:
    prefix = corpus(tmp_path, "text", "ab", documents=200)
    values = {
        "dataset.data_path": [prefix],
        "dataset.split": "90,5,5",
        "dataset.dataloader_type": order,
        "dataset.reset_attention_mask": order == "single",
        "tokenizer.tokenizer_type": "ByteTokenizer",
        "train.train_iters": 6,
        "train.rampup_batch_size": [2, 2, 4],
        "train.iterations_to_skip": [2],
    }
    outcome = train_ranks(tmp_path / "run", values=values)
    assert outcome.codes == [0], outcome.log
    rows = [row for row in read_trace(tmp_path / "run") if "lm loss" in row]
    assert rows[-1]["lm loss"] < rows[0]["lm loss"]
    assert rows[0]["batch-size"] == 2 and rows[-1]["batch-size"] == 4
    assert "iteration 3 skipped" in outcome.log and 3 not in {row["iteration"] for row in rows}
