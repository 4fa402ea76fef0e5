"""Triton kernels, and the functions that start them. Inputs in bfloat16 or float16, arithmetic in float32.

One file per idea; `fusion.formulas` has the same functions in plain torch, under the same names. Shapes, here and there: N rows
(tokens), H hidden size, F width of the feed-forward layer on this rank, V vocabulary, S sequence, B batch, D head size.
"""

from autorecipe.engine.fusion.kernels.experts import (
    add_weight_gradients,
    gather_rows,
    grouped_product,
    route,
    sum_rows,
    weighted_swiglu,
    weighted_swiglu_backward,
)
from autorecipe.engine.fusion.kernels.gated import swiglu, swiglu_backward
from autorecipe.engine.fusion.kernels.loss import cross_entropy_, scale_rows
from autorecipe.engine.fusion.kernels.norm import add_norm, norm_backward, rms_norm
from autorecipe.engine.fusion.kernels.rotary import merge_heads, rotate, split_heads

__all__ = [
    "add_norm",
    "add_weight_gradients",
    "cross_entropy_",
    "gather_rows",
    "grouped_product",
    "merge_heads",
    "norm_backward",
    "rms_norm",
    "rotate",
    "route",
    "scale_rows",
    "split_heads",
    "sum_rows",
    "swiglu",
    "swiglu_backward",
    "weighted_swiglu",
    "weighted_swiglu_backward",
]
