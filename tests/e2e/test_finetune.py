"""Fine-tuning: packed equals unpacked, layouts train alike, runs resume, bad rows stop every rank."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import Outcome, read_trace

from autorecipe.engine.finetune.packing import pack_rows

pytestmark = pytest.mark.xdist_group("ranks")

Train = Callable[..., Outcome]

LLAMA: dict[str, Any] = {
    "model.num_query_groups": 2,
    "model.position_embedding_type": "rope",
    "model.normalization": "RMSNorm",
    "model.activation_func": "torch.nn.functional:silu",
    "model.gated_linear_unit": True,
    "model.add_bias_linear": False,
    "model.attention_dropout": 0.0,
    "model.hidden_dropout": 0.0,
    "model.calculate_per_token_loss": True,
    "tokenizer.tokenizer_type": "ByteTokenizer",
    "tokenizer.vocab_size": None,
    "model.num_layers": 4,
    "model.vocab_size": 288,
    "train.train_iters": 4,
    "train.micro_batch_size": 1,
    "scheduler.lr_decay_iters": 4,
    "validation.eval_iters": 0,
}
EXPERTS: dict[str, Any] = {
    "model.num_moe_experts": 4,
    "model.moe_router_topk": 2,
    "model.moe_ffn_hidden_size": 32,
    "model.moe_router_load_balancing_type": "none",
    "model.moe_token_dispatcher_type": "alltoall",
    "model.moe_grouped_gemm": True,
}
MTP = {"model.mtp_num_layers": 1, "model.mtp_loss_scaling_factor": 0.3}
SP = {"model.tensor_model_parallel_size": 2, "model.sequence_parallel": True}
PP2 = {"model.pipeline_model_parallel_size": 2}
VP2 = {**PP2, "model.virtual_pipeline_model_parallel_size": 2}
CP2 = {"model.context_parallel_size": 2}
ROWS = 24


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder of rows of different lengths; what is spelled must be said again."""
    folder = tmp_path_factory.mktemp("data")
    source = random.Random(0)
    for name, count in (("training", ROWS), ("validation", 8)):
        words = ["".join(source.choices("abcdef", k=source.randint(1, 9))) for _ in range(count)]
        rows = [{"input": f"say {' '.join(word)}:", "output": word} for word in words]
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def finetune(train_ranks: Train, data: Path, cache: Path, tmp_path: Path) -> Train:
    """Give a function that fine-tunes random weights on the rows."""

    def run(name: str, *, ranks: int = 1, values: dict[str, Any] | None = None, **command: Any) -> Outcome:
        fields = {
            "dataset._class": "GPTSFTDatasetConfig",
            "dataset.dataset_root": str(data),
            "dataset.hf_output_root": str(cache),
            "dataset.seed": 5678,
            "dataset.random_seed": None,
        }
        command.setdefault("from_scratch", True)
        return train_ranks(tmp_path / name, ranks=ranks, values={**LLAMA, **fields, **(values or {})}, **command)

    return run


def packed(multiple: int = 1) -> dict[str, Any]:
    specs = "dataset.offline_packing_specs"
    return {
        "dataset.enable_offline_packing": True,
        f"{specs}.packed_sequence_size": 64,
        f"{specs}.pad_seq_to_mult": multiple,
        "dataset.dataset_kwargs.pad_to_max_length": True,
    }


def trace(folder: Path) -> list[tuple[float, float]]:
    return [(row["lm loss"], row["grad-norm"]) for row in read_trace(folder) if "lm loss" in row]


def assert_alike(one: list[tuple[float, float]], other: list[tuple[float, float]]) -> None:
    assert len(one) == len(other) == 4
    for (loss, norm), (other_loss, other_norm) in zip(one, other, strict=True):
        # float32 sums in another order; the largest differences seen are 1.4e-6 and 6e-6
        assert abs(loss - other_loss) < 1e-5
        assert abs(norm - other_norm) / norm < 1e-4


@pytest.mark.parametrize("model", [pytest.param({}, id="plain"), pytest.param(MTP, id="predicting-further-tokens")])
def test_packed_rows_have_the_loss_per_token_that_they_have_alone(
    finetune: Train, data: Path, tmp_path: Path, model: dict[str, Any]
) -> None:
    rows = [json.loads(line) for line in (data / "training.jsonl").read_text().splitlines()]
    lengths = [len(f"{row['input']} {row['output']}") for row in rows]  # bytes and the end, less the last one
    packs = len(pack_rows(lengths, size=64, seed=5678))
    assert packs < ROWS // 2
    alone = finetune("alone", values={**model, "train.global_batch_size": ROWS})
    together = finetune("packed", values={**model, "train.global_batch_size": packs, **packed()})
    aligned = {"train.global_batch_size": len(pack_rows([-(-length // 4) * 4 for length in lengths], size=64, seed=5678))}
    padded = finetune("aligned", values={**model, **aligned, **packed(4)})
    assert alone.codes == together.codes == padded.codes == [0], alone.log + together.log + padded.log
    assert_alike(trace(tmp_path / "alone"), trace(tmp_path / "packed"))
    assert_alike(trace(tmp_path / "alone"), trace(tmp_path / "aligned"))


@pytest.fixture(scope="module")
def bases(train_ranks: Train, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """Give weights of a dense model, and of one with experts: random ones would differ between layouts."""
    found = {}
    for has_experts in (False, True):
        folder = tmp_path_factory.mktemp("base")
        shape = {"tokenizer.tokenizer_type": "NullTokenizer", "tokenizer.vocab_size": 288, "train.train_iters": 1}
        outcome = train_ranks(folder, values={**LLAMA, **(EXPERTS if has_experts else {}), **shape})
        assert outcome.codes == [0], outcome.log
        found[has_experts] = folder / "checkpoints"
    return found


references: dict[str, list[tuple[float, float]]] = {}


@pytest.mark.parametrize(
    ("both", "layout"),
    [
        pytest.param(packed(4), SP, id="packed-sequence"),
        pytest.param(packed(4), CP2, id="packed-context"),
        pytest.param(packed(4), {**CP2, "model.cp_comm_type": "a2a"}, id="packed-context-heads", marks=pytest.mark.slow),
        pytest.param(packed(4), PP2, id="packed-pipeline"),
        pytest.param({**packed(4), **EXPERTS}, {"model.expert_model_parallel_size": 2}, id="packed-experts"),
        pytest.param({"train.micro_batch_size": 2}, CP2, id="context"),
        pytest.param({"train.micro_batch_size": 2}, VP2, id="virtual-pipeline"),
    ],
)
def test_layouts_fine_tune_alike(
    finetune: Train, bases: dict[bool, Path], tmp_path: Path, both: dict[str, Any], layout: dict[str, Any]
) -> None:
    both = {**both, "checkpoint.pretrained_checkpoint": str(bases["model.num_moe_experts" in both])}
    key = json.dumps(both)
    if key not in references:
        alone = finetune("alone", values=both)
        assert alone.codes == [0], alone.log
        references[key] = trace(tmp_path / "alone")
    other = finetune("other", ranks=2, values={**both, **layout})
    assert other.codes == [0, 0], other.log
    assert_alike(references[key], trace(tmp_path / "other"))


def test_a_run_resumes_where_its_order_was(finetune: Train, tmp_path: Path) -> None:
    evaluation = {"validation.eval_iters": 1, "validation.eval_interval": 2}
    values = {"checkpoint.save_interval": 2, "train.global_batch_size": 2, **evaluation, **packed()}
    whole = finetune("whole", values=values)
    assert whole.codes == [0], whole.log
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    shutil.rmtree(tmp_path / "again" / "checkpoints" / "iter_0000004")
    again = finetune("again", values=values, from_scratch=False)
    assert again.codes == [0] and "iteration 2," in again.log, again.log
    assert read_trace(tmp_path / "again") == read_trace(tmp_path / "whole")


def test_a_growing_batch_over_drawn_rows_resumes_in_a_filled_up_epoch(finetune: Train, tmp_path: Path) -> None:
    drawn = {"dataset.max_train_samples": 7, "dataset.drop_last": False, "train.rampup_batch_size": [2, 2, 4]}
    values = {"checkpoint.save_interval": 2, "train.global_batch_size": 4, **drawn}
    whole = finetune("whole", ranks=2, values=values)
    assert whole.codes == [0, 0] and f"7 rows are drawn from {ROWS}" in whole.log, whole.log
    counts = [row["consumed_samples"] for row in read_trace(tmp_path / "whole") if "lm loss" in row]
    assert counts == [2, 4, 8, 12]  # the third step begins at row 4 of 7: one of its sequences fills it up
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    shutil.rmtree(tmp_path / "again" / "checkpoints" / "iter_0000004")
    again = finetune("again", ranks=2, values=values, from_scratch=False)
    assert again.codes == [0, 0] and "iteration 2," in again.log, again.log
    assert read_trace(tmp_path / "again") == read_trace(tmp_path / "whole")


def test_bad_rows_stop_every_rank_and_nothing_is_fine_tuned_from_nothing(finetune: Train, data: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text((data / "training.jsonl").read_text() + '{"input": "q"}\n[1, 2\n')
    stopped = finetune("stopped", ranks=2, values={"dataset.dataset_root": str(broken)})
    assert stopped.codes == [1, 1] and f"broken.jsonl:{ROWS + 1}: lacks 'output'" in stopped.log
    allowed = finetune("allowed", ranks=2, values={"dataset.dataset_root": str(broken)}, max_bad_rows=2)
    assert allowed.codes == [0, 0] and "2 rows LEFT OUT" in allowed.log
    nothing = finetune("nothing", from_scratch=False)
    assert nothing.codes == [3] and "nothing to fine-tune" in nothing.log and "--from-scratch" in nothing.log
