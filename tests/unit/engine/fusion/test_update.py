import pytest
import torch

from autorecipe.engine import compat
from autorecipe.engine.adam import Adam
from autorecipe.engine.fusion import update


@pytest.fixture
def module(monkeypatch):
    compat.prepare()
    from megatron.core.optimizer import optimizer

    calls = []
    monkeypatch.setattr(optimizer, "clip_grad_by_total_norm_fp32", lambda *arguments, **_: calls.append(arguments))
    update._defer_clipping()
    update._defer_clipping()  # twice is once
    optimizer.calls = calls
    yield optimizer
    del optimizer.calls


def owned(count):
    parameters = [torch.nn.Parameter(torch.ones(3)) for _ in range(count)]
    adam = Adam(parameters)
    for parameter in parameters:
        parameter.updated_by = adam
    return parameters, adam


@pytest.mark.parametrize(("norm", "factor"), [(4.0, 0.25), (torch.tensor([4.0]), 0.25), (0.5, 1.0)])
def test_the_factor_waits_for_the_update(module, norm, factor):
    parameters, adam = owned(2)
    module.clip_grad_by_total_norm_fp32(parameters, 1.0, norm)
    assert adam.factor.tolist() == pytest.approx([factor], rel=1e-5)
    assert not module.calls


def test_other_parameters_are_scaled_at_once(module):
    parameters, adam = owned(2)
    module.clip_grad_by_total_norm_fp32(parameters[:1], 1.0, 4.0)
    module.clip_grad_by_total_norm_fp32([torch.nn.Parameter(torch.ones(1))], 1.0, 4.0)
    assert adam.factor is None
    assert len(module.calls) == 2


def test_copies_are_skipped_once_after_an_update_that_made_them():
    _, adam = owned(1)
    copied = []
    adam.has_copied = True
    update._copy_unless_done(adam, lambda: copied.append(1))
    assert not copied
    update._copy_unless_done(adam, lambda: copied.append(1))
    assert copied
