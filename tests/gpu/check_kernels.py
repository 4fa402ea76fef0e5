"""Every Triton kernel against its formula in plain torch: `python tests/gpu/check_kernels.py` prints one JSON object.

On CUDA in bfloat16, sizes as in training; with TRITON_INTERPRET=1 on the host in float32, small ones. Each figure is
||kernel - formula|| / ||formula||, the largest over a function's results; what a formula leaves open is not compared.
"""

import json

import torch

from autorecipe.engine.fusion import formulas, kernels
from autorecipe.engine.fusion.kernels.adam import AdamPlan, NormPlan

ON_GPU = torch.cuda.is_available()
DEVICE, DTYPE = ("cuda", torch.bfloat16) if ON_GPU else ("cpu", torch.float32)
S, B, H, F, V, G, PER_GROUP, D = (512, 2, 2048, 5632, 32000, 8, 4, 64) if ON_GPU else (6, 2, 40, 72, 9000, 3, 2, 10)


def draw(*shape, dtype=DTYPE):
    return torch.randn(shape, device=DEVICE, dtype=dtype)


def difference(ours, theirs):
    ours, theirs = ((x,) if torch.is_tensor(x) else x for x in (ours, theirs))
    pairs = [(a.float(), b.float()) for a, b in zip(ours, theirs, strict=True) if b is not None]
    return max(float((a - b).norm() / b.norm().clamp(min=1e-12)) for a, b in pairs)


def compare(name, *arguments, **named):
    def call(module):
        copies = [x.clone() if torch.is_tensor(x) else x for x in arguments]
        copied = {key: x.clone() if torch.is_tensor(x) else x for key, x in named.items()}
        result = getattr(module, name)(*copies, **copied)
        changed = [x for x in (*copies, *copied.values()) if torch.is_tensor(x)]  # some write to their arguments
        return [*((result,) if torch.is_tensor(result) else result or ()), *changed]

    return difference(call(kernels), call(formulas))


def compare_adam(decoupled, factor):
    sizes = [(5000,), (3, 7), (1,), (H, F)]
    state = [[draw(*size, dtype=torch.float32) for size in sizes] for _ in range(4)]
    state[3] = [x.square() for x in state[3]]
    theirs = [[x.clone() for x in row] for row in state]
    copies = [torch.zeros(size, device=DEVICE, dtype=torch.bfloat16) for size in sizes]
    scale = torch.tensor([0.25], device=DEVICE) if factor else None
    AdamPlan(*state, copies).step(
        lr=1e-2, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1, step=3, decoupled=decoupled, factor=scale
    )
    if factor:
        theirs[1] = [x * scale for x in theirs[1]]
    step = torch.full((), 3.0, device=DEVICE)
    (torch._fused_adamw_ if decoupled else torch._fused_adam_)(
        *theirs,
        [],
        [step] * len(sizes),
        lr=1e-2,
        beta1=0.9,
        beta2=0.95,
        weight_decay=0.1,
        eps=1e-6,
        amsgrad=False,
        maximize=False,
    )
    updated = [difference(state[index], theirs[index]) for index in (0, 2, 3)]
    rounded = [difference(copy, main.to(torch.bfloat16)) for copy, main in zip(copies, state[0], strict=True)]
    assert max(rounded) < 2**-7  # the interpreter cuts where the GPU rounds
    return max(updated)


def compare_norm():
    tensors = [draw(*size, dtype=torch.float32) for size in ((5000,), (3, 7), (H, F))]
    return difference(NormPlan(tensors).norm(), torch.cat([x.flatten() for x in tensors]).double().norm().reshape(1))


def draw_routing(tokens, experts, per_token):
    scores = draw(tokens, experts, dtype=torch.float32)
    chosen = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, scores.topk(per_token).indices, True)
    return chosen, torch.where(chosen, scores.sigmoid(), 0.0)


def compare_route(chosen, probs, per_token):
    ours, theirs = kernels.route(chosen, probs, per_token), formulas.route(chosen, probs, per_token)
    return max(difference(a, b) for index, (a, b) in enumerate(zip(ours, theirs, strict=True)) if index != 1)


def main():
    torch.manual_seed(0)
    cos, sin = draw(S, D // 2 - 1), draw(S, D // 2 - 1)
    heads = [draw(S, B, n, D) for n in (G * PER_GROUP, G, G)]
    apart = draw(B, G * PER_GROUP, S, D).permute(2, 0, 1, 3)
    total, scale = draw(S, B, H), draw(S, B, dtype=torch.float32).square()
    tokens, experts, per_token = S * B, 8, 2
    chosen, probs = draw_routing(tokens, experts, per_token)
    ends, _, index, slots, weights = formulas.route(chosen, probs, per_token)
    rows = tokens * per_token
    print(
        json.dumps(
            {
                "swiglu": compare("swiglu", draw(S, B, 2 * F)),
                "swiglu backward": compare("swiglu_backward", draw(S, B, 2 * F), draw(S, B, F)),
                "norm": compare("rms_norm", total, draw(H), 1e-5, 1.0),
                "addition and norm": compare("add_norm", draw(S, B, H), total, draw(H), 1e-5),
                "addition and norm in place": compare("add_norm", draw(S, B, H), total, draw(H), 1e-5, 1.0, in_place=True),
                "norm backward": compare("norm_backward", total, draw(H), scale, draw(S, B, H)),
                "norm and addition backward": compare(
                    "norm_backward",
                    total,
                    draw(H),
                    scale,
                    draw(S, B, H),
                    1.0,
                    passed=draw(S, B, H),
                    into=draw(H, dtype=torch.float32),
                ),
                "rotate": compare("rotate", apart, cos, sin),
                "rotate back": compare("rotate", heads[0], cos, sin, inverse=True),
                "split heads": compare("split_heads", draw(S, B, G * (PER_GROUP + 2) * D), cos, sin, G, PER_GROUP),
                "merge heads": compare("merge_heads", apart, *heads[1:], cos, sin),
                "cross entropy": compare("cross_entropy_", draw(7, V), torch.randint(V, (7,), device=DEVICE)),
                "scaled rows": compare("scale_rows", draw(S, H), draw(S, dtype=torch.float32)),
                "route": compare_route(chosen, probs, per_token),
                "gathered rows": compare("gather_rows", draw(tokens, H), index),
                "summed rows": compare("sum_rows", draw(rows, H), slots),
                "experts' products": compare("grouped_product", draw(rows, H), draw(experts, F, H), ends),
                "experts' products backward": compare("grouped_product", draw(rows, F), draw(experts, F, H), ends, forward=False),
                "weighted swiglu": compare("weighted_swiglu", draw(rows, 2 * F), weights),
                "weighted swiglu backward": compare("weighted_swiglu_backward", draw(rows, 2 * F), weights, draw(rows, F)),
                "experts' weight gradients": compare(
                    "add_weight_gradients", draw(experts, F, H, dtype=torch.float32), draw(rows, F), draw(rows, H), ends
                ),
                "adam": compare_adam(decoupled=False, factor=False),
                "norm of many": compare_norm(),
                "adamw, clipped": compare_adam(decoupled=True, factor=True),
            }
        )
    )


if __name__ == "__main__":
    main()
