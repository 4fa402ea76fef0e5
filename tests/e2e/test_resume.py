"""What a second start does: resume, reshard, fall back, refuse, start over."""

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import Outcome, read_trace

pytestmark = pytest.mark.xdist_group("ranks")

Train = Callable[..., Outcome]

NO_DROPOUT: dict[str, Any] = {"model.attention_dropout": 0.0, "model.hidden_dropout": 0.0}
TP2: dict[str, Any] = {"model.tensor_model_parallel_size": 2, "model.sequence_parallel": True}


def losses(folder: Path) -> dict[int, float]:
    return {row["iteration"]: row["lm loss"] for row in read_trace(folder) if "lm loss" in row}


@pytest.fixture(scope="module")
def half(train_ranks: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a run of 12 steps that saved at 6 and 12 on two tensor-parallel ranks."""
    folder = tmp_path_factory.mktemp("half")
    outcome = train_ranks(folder, ranks=2, values={**NO_DROPOUT, **TP2, "checkpoint.save_interval": 6})
    assert outcome.codes == [0, 0], outcome.log
    assert "saved iteration 6" in outcome.log and "saved iteration 12" in outcome.log
    return folder


@pytest.fixture
def copy(half: Path, tmp_path: Path) -> Path:
    """Give a copy of that run to go on from or to harm."""
    folder = tmp_path / "copy"
    shutil.copytree(half, folder)
    for log in folder.glob("log*.txt"):
        log.unlink()
    return folder


def drop_last(folder: Path) -> None:
    shutil.rmtree(folder / "checkpoints" / "iter_0000012")


def test_resuming_is_announced_and_says_that_nothing_is_left(train_ranks: Train, copy: Path) -> None:
    outcome = train_ranks(copy, ranks=2, values={**NO_DROPOUT, **TP2})
    assert outcome.codes == [0, 0]
    path = copy / "checkpoints" / "iter_0000012"
    assert f"RESUMING from {path}: iteration 12, 48 samples consumed" in outcome.log
    assert "nothing left to train: iteration 12 of 12 is done" in outcome.log


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param((1, {}), id="one-process"),
        pytest.param((2, {"model.pipeline_model_parallel_size": 2}), id="pipeline"),
        pytest.param((2, {"ddp.use_distributed_optimizer": True, "train.micro_batch_size": 1}), id="data-parallel"),
    ],
)
def test_a_run_goes_on_at_another_layout_with_the_same_losses(
    train_ranks: Train, copy: Path, half: Path, layout: tuple[int, dict[str, Any]]
) -> None:
    drop_last(copy)
    ranks, values = layout
    outcome = train_ranks(copy, ranks=ranks, values={**NO_DROPOUT, **values})
    assert outcome.codes == [0] * ranks, outcome.log
    assert "resharded from TP2 PP1 CP1 SP (2 processes)" in outcome.log
    whole, resumed = losses(half), losses(copy)
    assert resumed.keys() == whole.keys()
    # float32 sums in another order; the largest difference seen is 1e-6
    assert all(abs(resumed[step] - whole[step]) < 1e-5 for step in whole)


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(train_ranks: Train, copy: Path, half: Path) -> None:
    shard = max((copy / "checkpoints" / "iter_0000012").glob("*.distcp"), key=lambda path: path.stat().st_size)
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 0xFF
    shard.write_bytes(bytes(content))
    outcome = train_ranks(copy, ranks=2, values={**NO_DROPOUT, **TP2})
    assert outcome.codes == [0, 0]
    assert "iter_0000012 is damaged" in outcome.log and "falling back to iteration 6" in outcome.log
    assert read_trace(copy) == read_trace(half)


def test_another_model_is_refused_and_names_what_differs(train_ranks: Train, copy: Path) -> None:
    outcome = train_ranks(copy, ranks=1, values={**NO_DROPOUT, "model.num_layers": 4, "model.ffn_hidden_size": 128})
    assert outcome.codes == [1]
    assert "model.num_layers: is 4 here and 2 in the checkpoint" in outcome.log
    assert "model.ffn_hidden_size: is 128 here and 64 in the checkpoint" in outcome.log
    assert "--fresh" in outcome.log


def test_starting_over_moves_the_old_checkpoints_aside(train_ranks: Train, copy: Path, half: Path) -> None:
    outcome = train_ranks(copy, ranks=2, values={**NO_DROPOUT, **TP2, "checkpoint.save_interval": 6}, fresh=True)
    assert outcome.codes == [0, 0]
    assert "RESUMING" not in outcome.log
    [aside] = copy.glob("checkpoints.before-*")
    assert (aside / "iter_0000012").is_dir()
    assert read_trace(copy) == read_trace(half)


def test_changed_training_fields_are_said(train_ranks: Train, copy: Path) -> None:
    drop_last(copy)
    outcome = train_ranks(copy, ranks=2, values={**NO_DROPOUT, **TP2, "optimizer.lr": 5e-3, "train.train_iters": 7})
    assert outcome.codes == [0, 0]
    assert "changed since the checkpoint: optimizer.lr: 0.01 -> 0.005" in outcome.log
    assert "schedule changed since the checkpoint: max_lr 0.01 -> 0.005; the new one acts" in outcome.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_one_rank_saves_on_all_and_the_run_goes_on_identically(
    train_ranks: Train, tmp_path: Path, number: int
) -> None:
    values = {**TP2, "train.train_iters": 400, "scheduler.lr_decay_iters": 400, "validation.eval_iters": 0}
    stopped = train_ranks(
        tmp_path / "run", ranks=2, values=values, signal=int(number), victims=[1], signal_after="iteration        3/"
    )
    assert stopped.codes == [128 + number] * 2, stopped.log
    assert f"stopped by {signal.Signals(number).name} after iteration" in stopped.log
    last = max(losses(tmp_path / "run"))
    assert f"saved iteration {last} to" in stopped.log
    limit = {"train.train_iters": last + 3}
    assert train_ranks(tmp_path / "run", ranks=2, values={**values, **limit}).codes == [0, 0]
    assert train_ranks(tmp_path / "whole", ranks=2, values={**values, **limit}).codes == [0, 0]
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


def test_a_full_disk_costs_a_message_and_not_the_run(train_ranks: Train, tmp_path: Path) -> None:
    outcome = train_ranks(tmp_path, values={"train.train_iters": 4, "checkpoint.save_interval": 2}, free_bytes=1000)
    assert outcome.codes == [3]
    assert "iteration 2 was NOT saved: the disk is full" in outcome.log
    assert "training goes on" in outcome.log
    assert max(losses(tmp_path)) == 4
    assert not list((tmp_path / "checkpoints").glob("iter_*"))


def test_a_loss_that_is_not_finite_stops_without_saving(train_ranks: Train, tmp_path: Path) -> None:
    outcome = train_ranks(tmp_path, values={"optimizer.lr": 1e30, "optimizer.clip_grad": 0.0, "optimizer.min_lr": 0.0})
    assert outcome.codes == [1], outcome.log
    assert "bad-loss" in outcome.log and "train.iterations_to_skip" in outcome.log
    assert not list((tmp_path / "checkpoints").glob("iter_*"))


@pytest.mark.parametrize(
    "fields", [{"checkpoint.finetune": True}, {"checkpoint.load_optim": False}], ids=["finetune", "load_optim"]
)
def test_weights_without_their_optimizer_are_what_trains_on(train_ranks: Train, tmp_path: Path, fields: dict[str, Any]) -> None:
    """In half precision the float32 copies that the optimizer trains must be of the loaded weights, not of the first ones."""
    values = {**NO_DROPOUT, "mixed_precision": "bf16_mixed", "validation.eval_iters": 0}
    assert train_ranks(tmp_path / "first", values={**values, "train.train_iters": 12}).codes == [0]
    before = losses(tmp_path / "first")
    loaded = {"checkpoint.load": str(tmp_path / "first" / "checkpoints"), "train.train_iters": 14, "optimizer.lr": 1e-5}
    second = train_ranks(tmp_path / "second", values={**values, "optimizer.min_lr": 0.0, **loaded, **fields})
    assert second.codes == [0], second.log
    after = losses(tmp_path / "second")
    fall = before[1] - before[12]
    assert fall > 0.2
    assert all(loss < before[12] + fall / 3 for loss in after.values())


def test_the_tracker_file_of_upstreams_tools_is_kept(half: Path) -> None:
    assert (half / "checkpoints" / "latest_checkpointed_iteration.txt").read_text() == "12"
    manifest = json.loads((half / "checkpoints" / "iter_0000012" / "autorecipe.json").read_text())
    assert manifest["consumed_train_samples"] == 48 and manifest["world_size"] == 2


MIXTURE: dict[str, Any] = {
    **NO_DROPOUT,
    "model.position_embedding_type": "rope",
    "model.normalization": "RMSNorm",
    "model.add_bias_linear": False,
    "model.gated_linear_unit": True,
    "model.activation_func": "torch.nn.functional:silu",
    "model.num_moe_experts": 4,
    "model.moe_router_topk": 2,
    "model.moe_ffn_hidden_size": 32,
    "model.moe_token_dispatcher_type": "alltoall",
    "model.moe_router_load_balancing_type": "aux_loss",
    "model.moe_aux_loss_coeff": 0.01,
    "model.moe_grouped_gemm": False,
}


@pytest.mark.parametrize(
    ("first", "second", "extra"),
    [
        pytest.param((2, {"model.expert_model_parallel_size": 2}), (1, {}), MIXTURE, id="experts-2-to-1"),
        pytest.param((1, {}), (2, {"model.expert_model_parallel_size": 2}), MIXTURE, id="experts-1-to-2"),
        pytest.param(
            (2, {"model.pipeline_model_parallel_size": 2, "model.virtual_pipeline_model_parallel_size": 2}),
            (1, {}),
            {**NO_DROPOUT, "model.num_layers": 4},
            id="interleaved-pipeline-to-1",
        ),
    ],
)
def test_experts_and_pipeline_chunks_move_between_layouts(
    train_ranks: Train, tmp_path: Path, first: tuple[int, Any], second: tuple[int, Any], extra: dict[str, Any]
) -> None:
    steps = {"train.train_iters": 6, "scheduler.lr_decay_iters": 6, "checkpoint.save_interval": 3, "validation.eval_iters": 0}
    whole = train_ranks(tmp_path / "run", ranks=first[0], values={**extra, **steps, **first[1]})
    assert whole.codes == [0] * first[0], whole.log
    expected = losses(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "iter_0000006")
    resumed = train_ranks(tmp_path / "run", ranks=second[0], values={**extra, **steps, **second[1]})
    assert resumed.codes == [0] * second[0], resumed.log
    assert "RESUMING" in resumed.log and "iteration 3," in resumed.log
    found = losses(tmp_path / "run")
    assert found.keys() == expected.keys()
    # The balancing loss of a batch depends on how it is cut into ranks, so experts agree less closely than dense layers.
    assert all(abs(found[step] - expected[step]) < (1e-3 if extra is MIXTURE else 1e-5) for step in expected)
