"""The plain PyTorch loop that the engine is measured against: `python bench/plain_torch.py ROWS LENGTH MICRO_BATCHES [STEPS]`.

A Llama-shaped model of 1.24B parameters as one would write it without a framework: float32 weights and gradients, bfloat16
autocast, scaled dot product attention with grouped queries, torch.compile, fused AdamW, gradient clipping. Random tokens. Prints
one JSON object: milliseconds of each step (host clock, synchronised) and the peak of allocated MiB.
"""

import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, HEADS, GROUPS, INNER, VOCABULARY, BASE = 16, 2048, 32, 8, 8192, 128256, 500000.0
HEAD = WIDTH // HEADS


class Layer(nn.Module):
    """One transformer layer."""

    def __init__(self):
        super().__init__()
        self.before_attention = nn.RMSNorm(WIDTH, eps=1e-5)
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key_value = nn.Linear(WIDTH, 2 * GROUPS * HEAD, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.before_feed_forward = nn.RMSNorm(WIDTH, eps=1e-5)
        self.up = nn.Linear(WIDTH, 2 * INNER, bias=False)
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x, cos, sin):
        """Return [rows, length, width]."""
        rows, length, _ = x.shape
        normal = self.before_attention(x)
        query = self.query(normal).view(rows, length, HEADS, HEAD).transpose(1, 2)
        key, value = self.key_value(normal).view(rows, length, 2, GROUPS, HEAD).unbind(2)
        query, key = rotate(query, cos, sin), rotate(key.transpose(1, 2), cos, sin)
        seen = F.scaled_dot_product_attention(query, key, value.transpose(1, 2), is_causal=True, enable_gqa=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, WIDTH))
        gate, linear = self.up(self.before_feed_forward(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * linear)


class Model(nn.Module):
    """The whole model, its loss included."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)

    def forward(self, tokens, labels, cos, sin):
        """Return the mean loss."""
        x = self.embedding(tokens).to(torch.bfloat16)
        for layer in self.layers:
            x = layer(x, cos, sin)
        logits = F.linear(self.norm(x), self.embedding.weight)  # tied
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def rotate(x, cos, sin):
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def main(rows, length, micro_batches, steps=12):
    torch.manual_seed(1)
    model = Model().cuda()
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.02)
    angles = torch.outer(torch.arange(length), BASE ** (-torch.arange(0, HEAD, 2) / HEAD)).cuda()
    cos, sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    compiled = torch.compile(model)
    times = []
    for _ in range(steps):
        torch.cuda.synchronize()
        started = time.perf_counter()
        optimizer.zero_grad(set_to_none=False)
        for _ in range(micro_batches):
            tokens = torch.randint(VOCABULARY, (rows, length + 1), device="cuda")
            with torch.autocast("cuda", torch.bfloat16):
                loss = compiled(tokens[:, :-1], tokens[:, 1:], cos, sin)
            (loss / micro_batches).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - started))
    print(json.dumps({"ms": times, "peak_mib": torch.cuda.max_memory_allocated() / 2**20, "loss": float(loss)}))


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
