"""Measure peak memory of full fine-tuning, LoRA and DoRA on one GPU, and compare with the closed form.

    python bench/memory_finetune_h200.py --out results.jsonl
    python bench/memory_finetune_h200.py --compare results.jsonl

Models have Llama 3 8B's width and few layers. See `memory_h200.py` for what is measured.
"""

from __future__ import annotations

from typing import Any

from layouts import COMMON, LLAMA_8B
from memory_h200 import EAGER, FULL, run_bench

LORA = {
    "peft._class": "LoRA",
    "peft.dim": 8,
    "peft.alpha": 16,
    "peft.dropout": 0.0,
    "peft.target_modules": ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"],
}
DORA = {**LORA, "peft._class": "DoRA"}


def _run(*, layers: int, seq: int, **more: dict[str, Any]) -> dict[str, Any]:
    values = {**COMMON, **LLAMA_8B, "model.num_layers": layers, "dataset.seq_length": seq, "model.seq_length": seq}
    values |= {"train.micro_batch_size": 1, "train.global_batch_size": 2}
    for part in more.values():
        values |= part
    return values


CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "8b width, 4 layers, sft 2048": _run(layers=4, seq=2048, kernels=EAGER),
    "8b width, 4 layers, sft 4096": _run(layers=4, seq=4096, kernels=EAGER),
    "8b width, 8 layers, sft 4096": _run(layers=8, seq=4096, kernels=EAGER),
    "8b width, 4 layers, sft 4096, engine defaults": _run(layers=4, seq=4096),
    "8b width, 4 layers, lora 2048": _run(layers=4, seq=2048, adapter=LORA),
    "8b width, 4 layers, lora 4096": _run(layers=4, seq=4096, adapter=LORA),
    "8b width, 8 layers, lora 4096": _run(layers=8, seq=4096, adapter=LORA),
    "8b width, 8 layers, lora 4096, full recompute": _run(layers=8, seq=4096, adapter=LORA, recompute=FULL),
    "8b width, 4 layers, dora 4096": _run(layers=4, seq=4096, adapter=DORA),
    "8b, lora 4096": _run(layers=32, seq=4096, adapter=LORA),
}


if __name__ == "__main__":
    run_bench(CONFIGURATIONS, file=__file__, doc=__doc__)
