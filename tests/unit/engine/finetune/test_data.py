"""From files to tensors: tokenized copies, bad rows, held-out rows, packs, order."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from autorecipe.engine.data.tokenizer import ByteTokenizer
from autorecipe.engine.finetune.batches import PackDataset, RowDataset, collate, open_stream
from autorecipe.engine.finetune.data import FinetuneData, build_finetune_data, split_rows
from autorecipe.engine.finetune.order import GlobalBatchSampler
from autorecipe.engine.finetune.spec import read_finetune_spec
from autorecipe.engine.finetune.store import CACHE, SHOWN_BAD_ROWS
from autorecipe.errors import NegativeAnswer, UsageError
from autorecipe.schema.run import RunConfig

EOD = 256
PACKED = {
    "dataset.enable_offline_packing": True,
    "dataset.offline_packing_specs.packed_sequence_size": 48,
    "dataset.offline_packing_specs.pad_seq_to_mult": 4,
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def write(folder: Path, rows: list[Any], name: str = "training") -> Path:
    folder.mkdir(exist_ok=True)
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return folder


def rows_of(count: int) -> list[Any]:
    return [{"input": "q" * (1 + index % 5), "output": "a" * (1 + index % 3)} for index in range(count)]


def build(folder: Path, *, max_bad_rows: int = 0, **fields: Any) -> FinetuneData:
    values = {"dataset._class": "GPTSFTDatasetConfig", "dataset.dataset_root": str(folder), "dataset.seq_length": 48}
    spec = read_finetune_spec(RunConfig(values={**values, "dataset.seed": 7, **fields}))
    return build_finetune_data(spec, ByteTokenizer(), max_bad_rows=max_bad_rows)


def test_tokens_predict_their_labels_and_only_answers_count(tmp_path: Path) -> None:
    data = build(write(tmp_path / "d", [{"input": "ab", "output": "XY"}]))
    assert isinstance(data.train, RowDataset)
    row = data.train[0, 16]
    assert row["tokens"].tolist()[:5] == [*b"ab XY"] and row["labels"].tolist()[:5] == [*b"b XY", EOD]
    assert row["loss_mask"].tolist() == [0, 1, 1, 1, 1] + [0] * 11
    assert row["tokens"].tolist()[5:] == [EOD] * 11 and row["position_ids"].tolist() == list(range(16))


def test_packs_hold_each_row_as_it_is_alone(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", rows_of(40))
    alone, packed = build(folder).train, build(folder, **PACKED).train
    assert isinstance(alone, RowDataset) and isinstance(packed, PackDataset) and len(packed) < 20
    found = []
    for number in range(len(packed)):
        pack = packed[number, 48]
        bounds = pack["cu_seqlens"].tolist()
        assert bounds[0] == 0 and bounds[-1] == 48 and all(bound % 4 == 0 for bound in bounds)
        for begin, end in itertools.pairwise(bounds):
            assert pack["position_ids"][begin:end].tolist() == list(range(end - begin))
            mask = pack["loss_mask"][begin:end].bool()
            found.append((pack["tokens"][begin:end][mask].tolist(), pack["labels"][begin:end][mask].tolist()))
    expected = []
    for number in range(len(alone)):
        row = alone[number, 48]
        mask = row["loss_mask"].bool()
        expected.append((row["tokens"][mask].tolist(), row["labels"][mask].tolist()))
    assert sorted(pair for pair in found if pair[0]) == sorted(expected)


def test_every_bad_row_stops_the_run_and_is_listed_with_its_line(tmp_path: Path) -> None:
    bad = ["{", json.dumps({"input": "q"}), json.dumps({"input": "q", "output": 1})]
    folder = write(tmp_path / "d", [*rows_of(3), *bad])
    with pytest.raises(NegativeAnswer) as caught:
        build(folder)
    text = str(caught.value)
    assert "3 rows of 6 cannot be read" in text and "--max-bad-rows 3" in text
    assert all(f"training.jsonl:{line}: " in text for line in (4, 5, 6))
    assert not list((tmp_path / "cache" / "finetune").iterdir())  # nothing half-made stays
    with pytest.raises(NegativeAnswer):
        build(folder, max_bad_rows=2)
    for _ in range(2):  # made, then found
        data = build(folder, max_bad_rows=3)
        assert len(data.train) == 3
        assert any("3 rows LEFT OUT" in note and "training.jsonl:5: lacks" in note for note in data.notes)
    with pytest.raises(NegativeAnswer):
        build(folder)  # a copy that was made with leave does not hide them


def test_of_many_bad_rows_the_first_are_listed_and_the_others_counted(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", ["[]"] * (SHOWN_BAD_ROWS + 5))
    with pytest.raises(NegativeAnswer, match=r"\.\.\. and 5 more"):
        build(folder)


def test_rows_that_are_cut_or_lose_their_answer_are_counted(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "x" * 60}, {"role": "assistant", "content": "y"}]
    fields = {"dataset.preprocessing._class": "ChatSFTPreprocessingConfig"}
    notes = build(write(tmp_path / "d", [{"messages": turns}] * 2), **fields).notes
    assert any("2 rows were longer than 49 tokens and are cut" in note for note in notes)
    assert any("2 rows have no answer left" in note for note in notes)
    assert any("has no chat template" in note for note in notes)


def test_a_copy_is_made_once_for_the_same_rows_and_again_for_others(tmp_path: Path, cache: Path) -> None:
    folder = write(tmp_path / "d", rows_of(4))
    build(folder)
    (made,) = (cache / "finetune").iterdir()
    stamp = (made / "ids.bin").stat().st_mtime_ns
    build(folder)
    build(folder, **PACKED)  # the same rows of another limit are another copy
    assert (made / "ids.bin").stat().st_mtime_ns == stamp and len(list((cache / "finetune").iterdir())) == 2
    build(folder, **{"dataset.hf_rewrite": True})
    assert (made / "ids.bin").stat().st_mtime_ns > stamp
    write(folder, rows_of(5))
    assert len(build(folder).train) == 5


def test_several_processes_make_the_same_copy(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", [*rows_of(300), "{"])

    def ids_of(data: FinetuneData) -> list[list[int]]:
        return [data.train[number, 48]["tokens"].tolist() for number in range(len(data.train))]

    alone = ids_of(build(folder, max_bad_rows=1))
    pool = {"dataset.offline_packing_specs.num_tokenizer_workers": 2, "dataset.hf_rewrite": True}
    data = build(folder, max_bad_rows=1, **pool)
    assert ids_of(data) == alone and any("training.jsonl:301" in note for note in data.notes)


def test_held_out_rows_are_those_that_datasets_holds_out() -> None:
    from datasets import Dataset

    split = Dataset.from_dict({"row": list(range(37))}).train_test_split(test_size=0.1, seed=5678)
    held, rest = split_rows(37, share=0.1, seed=5678)
    assert (held.tolist(), rest.tolist()) == (split["test"]["row"], split["train"]["row"])


def test_too_few_rows_for_a_global_batch_say_so(tmp_path: Path) -> None:
    dataset = build(write(tmp_path / "d", rows_of(3))).train

    def open_with(batch: int, **sampling: Any) -> Any:
        place = {"data_parallel_rank": 0, "data_parallel_size": 1, "seed": 7, "consumed_samples": 0, "micro_batch_size": 2}
        sampler = GlobalBatchSampler(dataset=dataset, batch_size=lambda _consumed: batch, **place, **sampling)
        return open_stream(dataset, sampler, called="training", largest_batch=batch, num_workers=0)

    with pytest.raises(UsageError, match=r"4 is more than the 3 rows of training data"):
        open_with(4)
    batch = next(open_with(2))
    assert batch["tokens"].shape == (2, 16) and batch["loss_mask"].dtype is torch.float32
    assert numpy.isin(batch["tokens"].numpy(), [*range(257)]).all()
    filled = open_with(4, drops_last=False)  # the fourth row repeats the last one and teaches nothing
    whole = [next(filled)["loss_mask"].sum(dim=1).tolist() for _ in range(2)]
    assert [bool(learned) for learned in whole[0] + whole[1]] == [True, True, True, False]
    assert collate([{"tokens": torch.zeros(4), "cu_seqlens": torch.tensor([0, 4])}])["cu_seqlens"].tolist() == [0, 4]


def test_samples_are_drawn_from_rows_or_packs(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", rows_of(12))
    data = build(folder, **{"dataset.max_train_samples": 30})
    assert len(data.train) == 30 and any("30 rows are drawn from 12" in note for note in data.notes)
    packed = build(folder, **PACKED)
    drawn = build(folder, **PACKED, **{"dataset.max_train_samples": 2 * len(packed.train)})

    def tokens(dataset: Any) -> list[list[int]]:
        return sorted(dataset[number, 48]["tokens"].tolist() for number in range(len(dataset)))

    assert tokens(drawn.train) == sorted(2 * tokens(packed.train))


def test_padded_boundaries_are_as_many_for_every_pack(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", rows_of(40))
    plain = build(folder, **PACKED).train
    padded = build(folder, **PACKED, **{"dataset.offline_packing_specs.pad_cu_seqlens": True}).train
    bounds = [padded[number, 48]["cu_seqlens"].tolist() for number in range(len(padded))]
    assert len({len(each) for each in bounds}) == 1
    assert [sorted(set(each)) for each in bounds] == [plain[number, 48]["cu_seqlens"].tolist() for number in range(len(plain))]
