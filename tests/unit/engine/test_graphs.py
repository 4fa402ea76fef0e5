"""When passes are captured and replayed; capturing itself needs a GPU."""

import contextlib
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


class InPlace(torch.autograd.Function):
    """A product as Megatron-Core does it: its weight's gradient goes to `main_grad`, and what it returns is not filled."""

    @staticmethod
    def forward(ctx, inputs, weight):
        ctx.weight = weight
        ctx.save_for_backward(inputs)
        return inputs @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        ctx.weight.main_grad += grad.t() @ ctx.saved_tensors[0]
        ctx.weight.grad_added_to_main_grad = True
        return None, torch.full_like(ctx.weight, torch.nan)


def test_a_replayed_pass_hands_on_no_gradient_that_nobody_filled(monkeypatch):
    recorded = types.SimpleNamespace(pool=lambda: None, replay=lambda: None)
    for name, answer in {
        "CUDAGraph": lambda: recorded,
        "graph": lambda *_, **__: contextlib.nullcontext(),
        "current_stream": lambda: None,
        "empty_cache": lambda: None,
        "memory_reserved": lambda: 0,
    }.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    weight, bias = torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.zeros(2))
    weight.main_grad, weight.grad_added_to_main_grad = torch.zeros(2, 2), True  # an eager pass of the step has marked it
    weight.reduces_without_hook = True
    pair = graphs._GraphPair(lambda inputs: InPlace.apply(inputs, weight) + bias, (torch.ones(1, 2),), [weight, bias])
    weight.grad_added_to_main_grad = False  # the next step begins
    pair.replay((torch.ones(1, 2),)).sum().backward()
    assert weight.grad is None
    assert bias.grad is not None
