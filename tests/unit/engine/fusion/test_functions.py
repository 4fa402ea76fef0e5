"""The kernels against plain torch, in Triton's interpreter (no GPU needed, Triton is): values and gradients."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")

PROGRAM = """
import json, torch
import torch.nn.functional as F
from autorecipe.engine.fusion import functions

torch.manual_seed(0)


def rotate(x, angles, size):
    turned, rest = x[..., :size], x[..., size:]
    first, second = turned.chunk(2, -1)
    angles = torch.cat([angles, angles], -1)[:, None, None]
    return torch.cat([turned * angles.cos() + torch.cat([-second, first], -1) * angles.sin(), rest], -1)


def gated(x, weight):
    gate, linear = x.chunk(2, -1)
    return (F.silu(gate) * linear) @ weight.t()


def compare(fused, plain, inputs):
    ours, theirs = fused(*inputs), plain(*inputs)
    grad = torch.randn_like(theirs)
    pairs = [(ours, theirs), *zip(torch.autograd.grad(ours, inputs, grad), torch.autograd.grad(theirs, inputs, grad))]
    return max(float((a - b).abs().max()) for a, b in pairs)


def draw(*shape):
    return torch.randn(shape, requires_grad=True)


angles, labels = torch.randn(6, 4), torch.randint(0, 9000, (7,))
heads = draw(6, 2, 6, 10)
print(json.dumps({
    "swiglu": compare(functions.SwigluLinear.apply, gated, (draw(3, 2, 1300), draw(8, 650))),
    "rotate": compare(
        lambda x: functions.Rotate.apply(x[:, :, ::2], angles.cos(), angles.sin()),
        lambda x: rotate(x[:, :, ::2], angles, 8),
        (heads,),
    ),
    "cross entropy": compare(
        lambda h, w: functions.LinearCrossEntropy.apply(h, w, labels),
        lambda h, w: F.cross_entropy(h @ w.t(), labels, reduction="none"),
        (draw(7, 16), draw(9000, 16)),
    ),
    "rms norm": compare(
        lambda x, w: functions.RmsNorm.apply(x, w, 1e-5),
        lambda x, w: F.rms_norm(x, (300,), w, 1e-5),
        (draw(9, 3, 300), draw(300)),
    ),
}))
"""


def test_functions_equal_plain_torch():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    differences = json.loads(done.stdout)
    assert set(differences) == {"swiglu", "rotate", "cross entropy", "rms norm"}
    assert max(differences.values()) < 1e-4
