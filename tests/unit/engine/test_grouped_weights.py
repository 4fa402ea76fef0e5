import torch

from autorecipe.engine import compat

compat.prepare()

from autorecipe.engine.modules.experts import view_together  # noqa: E402


def test_evenly_spaced_weights_are_one_tensor_without_a_copy():
    buffer = torch.arange(24.0)
    parts = [buffer[start : start + 6].view(2, 3) for start in (0, 8, 16)]  # padded to eight
    whole = view_together(parts)
    assert torch.equal(whole, torch.stack(parts))
    buffer[8] = -1.0
    assert whole[1, 0, 0] == -1.0


def test_others_are_not():
    buffer = torch.arange(24.0)
    assert view_together([buffer[0:4], buffer[8:12], buffer[12:16]]) is None
    assert view_together([buffer[8:12], buffer[0:4]]) is None
    assert view_together([torch.ones(4), torch.ones(4)]) is None
    assert view_together([buffer.view(4, 6).t()[:3], buffer.view(4, 6).t()[3:]]) is None
