"""Adapters on experts: every layout trains one alike, grouped or not, one each or one together."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import Outcome, Trainer, read_trace

pytestmark = pytest.mark.xdist_group("ranks")

MIXTURE: dict[str, Any] = {
    "model.num_layers": 4,
    "model.num_query_groups": 2,
    "model.position_embedding_type": "rope",
    "model.normalization": "RMSNorm",
    "model.activation_func": "torch.nn.functional:silu",
    "model.gated_linear_unit": True,
    "model.add_bias_linear": False,
    "model.attention_dropout": 0.0,
    "model.hidden_dropout": 0.0,
    "model.num_moe_experts": 4,
    "model.moe_layer_freq": [0, 1, 1, 1],
    "model.moe_router_topk": 2,
    "model.moe_ffn_hidden_size": 24,
    "model.moe_shared_expert_intermediate_size": 40,
    "model.moe_router_load_balancing_type": "none",
    "model.moe_router_score_function": "sigmoid",
    "model.moe_router_enable_expert_bias": True,
    "model.moe_router_bias_update_rate": 0.1,
    "model.moe_token_dispatcher_type": "alltoall",
    "model.moe_grouped_gemm": True,
    "train.train_iters": 3,
    "scheduler.lr_decay_iters": 3,
    "validation.eval_iters": 0,
}
EP2 = {"model.expert_model_parallel_size": 2}
TP2 = {"model.tensor_model_parallel_size": 2, "model.sequence_parallel": True}
WHOLE = {**TP2, "model.expert_tensor_parallel_size": 1}
ETP2 = {**TP2, "model.expert_tensor_parallel_size": 2}
ALONE = {"model.moe_grouped_gemm": False}
OVERLAP = {"model.moe_shared_expert_overlap": True}
PP2 = {"model.pipeline_model_parallel_size": 2}
VP2 = {**PP2, "model.virtual_pipeline_model_parallel_size": 2}
CP2 = {"model.context_parallel_size": 2, "model.cp_comm_type": "all_gather"}

SLOW = pytest.mark.slow

KINDS: dict[str, dict[str, Any]] = {
    "each": {"_class": "LoRA", "share_expert_adapters": False},
    "together": {"_class": "LoRA"},
    "dora": {"_class": "DoRA"},
}


@pytest.fixture(scope="module")
def base(train_ranks: Trainer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the checkpoints of a small mixture of experts."""
    folder = tmp_path_factory.mktemp("base")
    outcome = train_ranks(folder, values=MIXTURE)
    assert outcome.codes == [0], outcome.log
    return folder / "checkpoints"


class Runs:
    """Trains adapters and remembers those of one process."""

    def __init__(self, train: Trainer, base: Path, folder: Path) -> None:
        self._train, self._base, self._folder = train, base, folder
        self._alone: dict[str, Path] = {}

    def start(self, folder: Path, kind: str, *, ranks: int = 1, values: dict[str, Any] | None = None) -> Outcome:
        fields = {"dim": 8, "alpha": 8, "lora_B_init_method": "normal", **KINDS[kind]}
        own = {f"peft.{name}": value for name, value in fields.items()}
        start = {"checkpoint.pretrained_checkpoint": str(self._base)}
        outcome = self._train(folder, ranks=ranks, values={**MIXTURE, **own, **start, **(values or {})})
        assert outcome.codes == [0] * ranks, outcome.log
        return outcome

    def alone(self, kind: str) -> Path:
        if kind not in self._alone:
            self._alone[kind] = self._folder / kind
            self.start(self._alone[kind], kind, values={"checkpoint.save_interval": 2})
        return self._alone[kind]


@pytest.fixture(scope="module")
def runs(train_ranks: Trainer, base: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Give what trains adapters on the mixture."""
    return Runs(train_ranks, base, tmp_path_factory.mktemp("runs"))


def check_alike(expected: Path, found: Path) -> None:
    rows, others = ([row for row in read_trace(folder) if "lm loss" in row] for folder in (expected, found))
    assert len(rows) == len(others) == 3
    for row, other in zip(rows, others, strict=True):
        assert abs(row["lm loss"] - other["lm loss"]) < 1e-5
        assert abs(row["grad-norm"] - other["grad-norm"]) / row["grad-norm"] < 1e-4


@pytest.mark.parametrize(
    ("kind", "ranks", "layout"),
    [
        pytest.param("each", 1, ALONE, id="each-sequential", marks=SLOW),
        pytest.param("each", 2, EP2, id="each-EP2", marks=SLOW),
        pytest.param("each", 2, {**EP2, **TP2, **ALONE}, id="each-EP2-TP2-sequential", marks=SLOW),
        pytest.param("each", 2, {**EP2, **TP2, **OVERLAP}, id="each-EP2-TP2-overlapped"),
        pytest.param("each", 2, WHOLE, id="each-TP2-ETP1"),
        pytest.param("each", 2, {**WHOLE, **ALONE}, id="each-TP2-ETP1-sequential", marks=SLOW),
        pytest.param("together", 2, WHOLE, id="together-TP2-ETP1", marks=SLOW),
        pytest.param("dora", 2, WHOLE, id="dora-TP2-ETP1", marks=SLOW),
        pytest.param("each", 2, ETP2, id="each-ETP2"),
        pytest.param("each", 2, {**ETP2, **ALONE}, id="each-ETP2-sequential", marks=SLOW),
        pytest.param("each", 2, {**EP2, **CP2}, id="each-EP2-CP2", marks=SLOW),
        pytest.param("each", 2, VP2, id="each-PP2-VP2", marks=SLOW),
        pytest.param("each", 4, {**EP2, **ETP2}, id="each-EP2-ETP2", marks=SLOW),
        pytest.param("together", 2, EP2, id="together-EP2", marks=SLOW),
        pytest.param("together", 2, {**EP2, **TP2}, id="together-EP2-TP2"),
        pytest.param("together", 2, ETP2, id="together-ETP2", marks=SLOW),
        pytest.param("dora", 2, {**EP2, **TP2, **OVERLAP}, id="dora-EP2-TP2-overlapped", marks=SLOW),
        pytest.param("dora", 2, ETP2, id="dora-ETP2", marks=SLOW),
        pytest.param("dora", 2, {**ETP2, **ALONE}, id="dora-ETP2-sequential"),
    ],
)
def test_layouts_train_alike(runs: Runs, tmp_path: Path, kind: str, ranks: int, layout: dict[str, Any]) -> None:
    runs.start(tmp_path, kind, ranks=ranks, values=layout)
    check_alike(runs.alone(kind), tmp_path)


def test_the_kinds_train_differently(runs: Runs) -> None:
    last = {kind: read_trace(runs.alone(kind))[-1]["lm loss"] for kind in KINDS}
    assert min(abs(last[a] - last[b]) for a, b in (("each", "together"), ("each", "dora"), ("together", "dora"))) > 1e-4


@pytest.mark.parametrize("kind", ["each", pytest.param("together", marks=SLOW)])
def test_what_is_saved_of_experts_resumes_at_another_layout(runs: Runs, tmp_path: Path, kind: str) -> None:
    shutil.copytree(runs.alone(kind), tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "checkpoints" / "iter_0000003")
    outcome = runs.start(tmp_path / "copy", kind, ranks=2, values={**EP2, **TP2})
    assert "iteration 2," in outcome.log
    check_alike(runs.alone(kind), tmp_path / "copy")


@pytest.mark.parametrize("layer", [0, pytest.param(3, marks=SLOW)])
def test_a_stage_without_a_target_passes_on_what_it_gets(runs: Runs, tmp_path: Path, layer: int) -> None:
    targets = {"peft.target_modules": [f"*.layers.{layer}.*"]}
    runs.start(tmp_path / "one", "each", values=targets)
    runs.start(tmp_path / "two", "each", ranks=2, values={**PP2, **targets})
    check_alike(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize("kind", ["each", pytest.param("together", marks=SLOW), pytest.param("dora", marks=SLOW)])
def test_an_adapter_that_adds_nothing_leaves_experts_with_biases_as_they_are(
    train_ranks: Trainer, tmp_path: Path, kind: str
) -> None:
    biased = {
        "model.add_bias_linear": True,
        "model.bias_activation_fusion": False,
        "model.moe_shared_expert_intermediate_size": None,
    }
    values = {**MIXTURE, **biased}
    base = train_ranks(tmp_path / "base", values={**values, "optimizer.lr": 0.1})
    assert base.codes == [0], base.log
    start = {"checkpoint.pretrained_checkpoint": str(tmp_path / "base" / "checkpoints")}
    assert train_ranks(tmp_path / "bare", values={**values, **start}).codes == [0]
    nothing = {"peft.lora_B_init_method": "zero"}
    Runs(train_ranks, tmp_path / "base" / "checkpoints", tmp_path).start(tmp_path / kind, kind, values={**biased, **nothing})
    bare, adapted = (read_trace(tmp_path / name)[0]["lm loss"] for name in ("bare", kind))
    assert abs(bare - adapted) < 1e-5
