"""When passes are captured and replayed; capturing itself needs a GPU."""

import types

import pytest
import torch

from autorecipe.engine import graphs


class Pair:
    """Stands in for captured graphs: says that it ran."""

    made = 0

    def __init__(self, run, inputs, parameters):
        Pair.made += 1
        self.parameters = parameters

    def replay(self, inputs):
        return "replayed"


@pytest.fixture
def model(monkeypatch):
    monkeypatch.setattr(graphs, "_GraphPair", Pair)
    Pair.made = 0
    module = torch.nn.Linear(2, 2)
    module.forward = lambda *_, **__: "eager"
    graphs.use_graphs(module)
    return module


def batch(length):
    return (torch.zeros(1, length, dtype=torch.long),) * 2, torch.zeros(1, length, dtype=torch.long)


def call(model, length=8, **named):
    (tokens, positions), labels = batch(length)
    return model.forward(tokens, positions, None, labels=labels, **named)


def test_replays_after_some_eager_passes(model):
    assert [call(model) for _ in range(5)] == ["eager"] * 3 + ["replayed"] * 2
    assert Pair.made == 1


def test_rows_of_another_length_end_it(model):
    for _ in range(4):
        call(model)
    assert call(model, length=16) == "eager"
    assert [call(model) for _ in range(5)] == ["eager"] * 5
    assert Pair.made == 1


def test_what_is_not_plain_training_is_never_captured(model):
    for _ in range(4):
        call(model)
    with torch.no_grad():
        assert call(model) == "eager"
    assert call(model, packed_seq_params=types.SimpleNamespace()) == "eager"
    model.eval()
    assert call(model) == "eager"
    model.train()
    assert call(model, packed_seq_params=None) == "replayed"
