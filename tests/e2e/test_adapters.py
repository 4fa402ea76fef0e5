"""Adapters: every layout trains alike, only adapters are saved, and they resume at other layouts."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import Outcome, read_trace

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
    "train.train_iters": 4,
    "scheduler.lr_decay_iters": 4,
    "validation.eval_iters": 0,
}
TP2 = {"model.tensor_model_parallel_size": 2}
SP = {**TP2, "model.sequence_parallel": True}
PP2 = {"model.pipeline_model_parallel_size": 2}
RECOMPUTE = {"model.recompute_granularity": "full", "model.recompute_method": "uniform", "model.recompute_num_layers": 1}


def adapter(kind: str, base: Path, **fields: Any) -> dict[str, Any]:
    given = {"_class": kind, "dim": 4, "alpha": 8, "lora_B_init_method": "normal", **fields}
    own = {f"peft.{name}": value for name, value in given.items()}
    return {**LLAMA, "checkpoint.pretrained_checkpoint": str(base), **own}


def losses(folder: Path) -> list[tuple[float, float]]:
    return [(row["lm loss"], row["grad-norm"]) for row in read_trace(folder) if "lm loss" in row]


@pytest.fixture(scope="module")
def base(train_ranks: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the checkpoints of a small trained Llama."""
    folder = tmp_path_factory.mktemp("base")
    outcome = train_ranks(folder, values=LLAMA)
    assert outcome.codes == [0], outcome.log
    return folder / "checkpoints"


@pytest.fixture(scope="module")
def alone(train_ranks: Train, base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Give a run of each kind of adapter on one process."""
    found = {}
    for kind in ("LoRA", "DoRA"):
        folder = tmp_path_factory.mktemp(kind)
        outcome = train_ranks(folder, values={**adapter(kind, base), "checkpoint.save_interval": 2})
        assert outcome.codes == [0], outcome.log
        assert f"weights from {base / 'iter_0000004'}" in outcome.log
        found[kind] = folder
    return found


@pytest.mark.parametrize(
    ("kind", "ranks", "layout"),
    [
        pytest.param("DoRA", 2, TP2, id="dora-tensor"),
        pytest.param("LoRA", 2, SP, id="lora-sequence"),
        pytest.param("DoRA", 2, SP, id="dora-sequence"),
        pytest.param("LoRA", 2, {**PP2, **RECOMPUTE}, id="lora-pipeline-recomputed"),
        pytest.param("LoRA", 2, {"train.micro_batch_size": 1}, id="lora-data"),
    ],
)
def test_layouts_train_an_adapter_alike(
    train_ranks: Train, base: Path, alone: dict[str, Path], tmp_path: Path, kind: str, ranks: int, layout: dict[str, Any]
) -> None:
    outcome = train_ranks(tmp_path, ranks=ranks, values={**adapter(kind, base), **layout})
    assert outcome.codes == [0] * ranks, outcome.log
    expected, found = losses(alone[kind]), losses(tmp_path)
    assert len(found) == 4
    for (loss, norm), (other_loss, other_norm) in zip(expected, found, strict=True):
        # float32 sums in another order; the largest differences seen are 4.8e-7 and 9.9e-7
        assert abs(loss - other_loss) < 1e-5
        assert abs(norm - other_norm) / norm < 1e-4


@pytest.mark.parametrize("kind", ["DoRA"])
def test_an_adapter_resumes_at_another_layout_from_what_was_saved_of_it_alone(
    train_ranks: Train, base: Path, alone: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(alone[kind], folder)
    shutil.rmtree(folder / "checkpoints" / "iter_0000004")
    outcome = train_ranks(folder, ranks=2, values={**adapter(kind, base), **SP})
    assert outcome.codes == [0, 0], outcome.log
    assert "iteration 2," in outcome.log and "weights from" in outcome.log
    for (loss, _), (other, _) in zip(losses(alone[kind]), losses(folder), strict=True):
        assert abs(loss - other) < 1e-5


def test_a_checkpoint_holds_adapters_and_nothing_else(alone: dict[str, Path], base: Path) -> None:
    from torch.distributed.checkpoint import FileSystemReader

    def keys(root: Path) -> set[str]:
        metadata = FileSystemReader(str(root / "iter_0000004")).read_metadata()
        return {key for key in metadata.state_dict_metadata if not key.startswith(("optimizer", "autorecipe", "rng"))}

    mine = keys(alone["DoRA"] / "checkpoints")
    assert mine and all(".adapter." in key for key in mine)
    assert {key.rsplit(".adapter.", 1)[1] for key in mine} == {"linear_in.weight", "linear_out.weight", "magnitude"}
    assert keys(base) and not any(".adapter." in key for key in keys(base))


def test_what_does_not_fit_is_refused_by_name(train_ranks: Train, base: Path, tmp_path: Path) -> None:
    wrong = train_ranks(tmp_path / "a", values=adapter("LoRA", base, target_modules=["q_proj"]))
    assert wrong.codes == [2] and "no linear layer matches ['q_proj']" in wrong.log
    other = train_ranks(tmp_path / "b", values={**adapter("LoRA", base), "model.ffn_hidden_size": 128})
    assert other.codes == [1] and "model.ffn_hidden_size: is 128 here and 64 in the checkpoint" in other.log
    empty = train_ranks(tmp_path / "c", values=adapter("LoRA", tmp_path / "nowhere"))
    assert empty.codes == [3] and "holds no checkpoint of this engine" in empty.log
    bare = train_ranks(tmp_path / "d", values={**LLAMA, "peft._class": "LoRA"})
    assert bare.codes == [2] and "an adapter needs the weights that it adapts" in bare.log


def test_an_adapter_of_another_rank_is_not_resumed(
    train_ranks: Train, base: Path, alone: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(alone["LoRA"], tmp_path / "copy")
    outcome = train_ranks(tmp_path / "copy", values=adapter("LoRA", base, dim=8))
    assert outcome.codes == [1] and "peft: is {" in outcome.log
