"""Measure peak memory of this project's engine on one GPU, and compare with the closed form.

    python bench/memory_h200.py --out results.jsonl        every configuration, one process each
    python bench/memory_h200.py --compare results.jsonl    the table alone, anywhere

Each configuration builds the model, takes three optimizer steps on random tokens, and reports torch's peak of allocated
and reserved bytes over the last two (the optimizer's states exist by then). A configuration that fails is printed with its
error, not left out.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from layouts import COMMON, EXPERTS, GPT

MODEL_1B = {
    "model.num_layers": 16,
    "model.hidden_size": 2048,
    "model.ffn_hidden_size": 8192,
    "model.num_attention_heads": 32,
    "model.num_query_groups": 8,
    "model.vocab_size": 128256,
}
MODEL_3B = {
    "model.num_layers": 28,
    "model.hidden_size": 3072,
    "model.ffn_hidden_size": 8192,
    "model.num_attention_heads": 24,
    "model.num_query_groups": 8,
    "model.vocab_size": 128256,
}
MODEL_MOE = {
    "model.num_layers": 12,
    "model.hidden_size": 2048,
    "model.ffn_hidden_size": 6144,
    "model.num_attention_heads": 32,
    "model.num_query_groups": 4,
    "model.kv_channels": 128,
    "model.vocab_size": 151936,
    "model.qk_layernorm": True,
    "model.num_moe_experts": 32,
    "model.moe_router_topk": 8,
    "model.moe_ffn_hidden_size": 768,
    "model.moe_router_force_load_balancing": True,
    **EXPERTS,
}
MODEL_MLA = {
    "model.num_layers": 12,
    "model.hidden_size": 2048,
    "model.ffn_hidden_size": 8192,
    "model.num_attention_heads": 16,
    "model.num_query_groups": 16,
    "model.vocab_size": 102400,
    "model.multi_latent_attention": True,
    "model.q_lora_rank": 1536,
    "model.kv_lora_rank": 512,
    "model.qk_head_dim": 128,
    "model.qk_pos_emb_head_dim": 64,
    "model.v_head_dim": 128,
    "model.qk_layernorm": True,
}
FULL = {"model.recompute_granularity": "full", "model.recompute_method": "uniform", "model.recompute_num_layers": 1}
SELECTIVE = {"model.recompute_granularity": "selective"}
EAGER = {"engine.fused_layers": "off", "engine.fused_loss": "off", "engine.fused_grad": "off"}
GROUPS = {"dense": MODEL_1B, "3b": MODEL_3B, "gpt": GPT, "moe": MODEL_MOE, "mla": MODEL_MLA}


def _run(model: Mapping[str, Any], *, seq: int = 4096, mbs: int = 1, gbs: int = 4, **rest: Any) -> dict[str, Any]:
    values = {**COMMON, **model, "dataset.seq_length": seq, "model.seq_length": seq}
    values |= {"train.micro_batch_size": mbs, "train.global_batch_size": gbs}
    return {**values, **rest.get("more", {})}


CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "1b": _run(MODEL_1B, more=EAGER),
    "1b mbs 4 x 2048": _run(MODEL_1B, seq=2048, mbs=4, gbs=16, more=EAGER),
    "1b full recompute": _run(MODEL_1B, more={**EAGER, **FULL}),
    "1b mlp recompute": _run(MODEL_1B, more={**EAGER, **SELECTIVE, "model.recompute_modules": ["mlp"]}),
    "1b 32k full recompute": _run(MODEL_1B, seq=32768, gbs=2, more={**EAGER, **FULL}),
    "1b 16-bit gradients": _run(MODEL_1B, more={**EAGER, "mixed_precision.grad_reduce_in_fp32": False}),
    "1b tied": _run(MODEL_1B, more={**EAGER, "model.share_embeddings_and_output_weights": True}),
    "1b engine defaults": _run(MODEL_1B),
    "1b engine defaults mbs 4": _run(MODEL_1B, seq=2048, mbs=4, gbs=16),
    "3b": _run(MODEL_3B, more=EAGER),
    "3b 16k": _run(MODEL_3B, seq=16384, gbs=2, more=EAGER),
    "gpt learned positions": _run(GPT, seq=2048, mbs=4, gbs=8, more=EAGER),
    "moe": _run(MODEL_MOE, more=EAGER),
    "moe mbs 2": _run(MODEL_MOE, mbs=2, more=EAGER),
    "moe act recompute": _run(MODEL_MOE, more={**EAGER, **SELECTIVE, "model.recompute_modules": ["moe_act"]}),
    "mla": _run(MODEL_MLA, more=EAGER),
    "mla full recompute": _run(MODEL_MLA, more={**EAGER, **FULL}),
}


def measure(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Train three steps in this process, with an adapter where the values name one, and return the peaks."""
    import torch

    from autorecipe.engine import build, optimizer, parallel, step
    from autorecipe.engine.adapters.settings import read_adapter
    from autorecipe.schema.run import RunConfig

    run = RunConfig(values=values)
    context = parallel.initialize(run)
    chunks = build.build_bare_model(run, context)
    adapter = read_adapter(run)
    if adapter is not None:
        from autorecipe.engine.adapters.attach import attach_adapters

        attach_adapters(chunks, adapter, seed=1234)
    chunks = build.wrap_model(run, chunks, context)
    updater = optimizer.build_optimizer(run, chunks, context)
    step.prepare_schedule(run, chunks, updater)
    seq, mbs = values["dataset.seq_length"], values["train.micro_batch_size"]

    def batches() -> Any:
        while True:
            tokens = torch.randint(0, values["model.vocab_size"], (mbs, seq + 1))
            yield {
                "tokens": tokens[:, :-1].contiguous(),
                "labels": tokens[:, 1:].contiguous(),
                "position_ids": torch.arange(seq).expand(mbs, -1).contiguous(),
                "loss_mask": torch.ones(mbs, seq),
            }

    resident = 0
    for index in range(3):
        if index == 1:
            torch.cuda.synchronize()
            resident = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
        step.train_step(
            chunks,
            updater,
            [batches() for _ in chunks],
            context,
            num_microbatches=values["train.global_batch_size"] // mbs,
            micro_batch_size=mbs,
            seq_length=seq,
        )
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return {
        "name": name,
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "resident_bytes": resident,
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "device_bytes": total - free,
    }


def compare(rows: list[dict[str, Any]], configurations: Mapping[str, Mapping[str, Any]] = CONFIGURATIONS) -> None:
    """Print measured peaks beside the closed form."""
    from autorecipe.estimate.inputs import read_inputs
    from autorecipe.estimate.memory import MemoryModel
    from autorecipe.schema.estimate import LayerImplementation
    from autorecipe.schema.run import RunConfig

    errors = []
    heads = ("measured", "closed form", "error", "reserved/allocated", "outside GiB")
    print(f"{'configuration':28s} {heads[0]:>9s} {heads[1]:>11s} {heads[2]:>7s} {heads[3]:>18s} {heads[4]:>11s}")
    for row in rows:
        if "error" in row:
            print(f"{row['name']:28s} failed: {row['error'][:90]}")
            continue
        inputs = read_inputs(RunConfig(values=configurations[row["name"]]), layers=LayerImplementation.LOCAL)
        model = MemoryModel(inputs.shape, policy=inputs.policy)
        estimate = model.peak_bytes(inputs.layout, inputs.batch, 1)
        error = estimate / row["allocated_bytes"] - 1
        if "stale" not in row:
            errors.append(abs(error))
        outside = (row["device_bytes"] - row["reserved_bytes"]) / 2**30
        print(
            f"{row['name']:28s} {row['allocated_bytes'] / 2**30:9.2f} {estimate / 2**30:11.2f} {error:+7.1%} "
            f"{row['reserved_bytes'] / row['allocated_bytes']:18.3f} {outside:11.2f}"
            + (f"  {row['stale']}" if "stale" in row else "")
        )
    if errors:
        print(f"mean absolute error {sum(errors) / len(errors):.1%}, largest {max(errors):.1%}, {len(errors)} configurations")


def main() -> None:
    run_bench(CONFIGURATIONS, file=__file__, doc=__doc__)


def run_bench(configurations: Mapping[str, Mapping[str, Any]], *, file: str, doc: str | None) -> None:
    """Parse the command line of a memory bench and do what it says.

    Args:
        configurations: by name.
        file: the bench's own file, started anew for each configuration.
        doc: its help.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, help="measure, and write one JSON object a line here")
    parser.add_argument("--compare", type=pathlib.Path, help="print the table of an earlier measurement")
    parser.add_argument("--one", choices=sorted(configurations), help="measure one configuration in this process")
    parser.add_argument("--timeout", type=int, default=150, help="seconds for one configuration")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, configurations[options.one])), flush=True)
        os._exit(0)
    if options.compare:
        compare([json.loads(line) for line in options.compare.read_text(encoding="utf-8").splitlines() if line], configurations)
        return
    rows: list[dict[str, Any]] = []
    for name in configurations:
        command = [sys.executable, file, "--one", name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=options.timeout)
            ok = done.returncode == 0 and done.stdout.strip()
            row = json.loads(done.stdout.strip().splitlines()[-1]) if ok else {"name": name, "error": done.stderr.strip()[-400:]}
        except subprocess.TimeoutExpired:
            row = {"name": name, "error": f"no result after {options.timeout} s"}
        rows.append(row)
        print(name, row.get("error", f"{row.get('allocated_bytes', 0) / 2**30:.2f} GiB"), file=sys.stderr, flush=True)
        if options.out:
            options.out.write_text("".join(json.dumps(item) + "\n" for item in rows), encoding="utf-8")
    compare(rows, configurations)


if __name__ == "__main__":
    main()
