"""Trains one adapter twice, with this engine and with the peft package, and prints both traces. Not a test.

Usage: peft_pair.py FOLDER KIND...; FOLDER/hf holds a Llama.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from autorecipe.engine import build, optimizer, parallel, step
from autorecipe.engine.adapters.attach import attach_adapters
from autorecipe.engine.adapters.settings import read_adapter
from autorecipe.engine.checkpoint.identity import describe_identity
from autorecipe.engine.checkpoint.pretrained import find_checkpoint, load_pretrained
from autorecipe.engine.hf.convert import import_weights
from autorecipe.engine.hf.model import read_hf_model
from autorecipe.schema.run import RunConfig

STEPS = 20
RATE = 2e-2
BATCH, LENGTH, VOCABULARY = 4, 24, 96
PARTS = {"self_attention.linear_proj": "self_attn.o_proj", "mlp.linear_fc2": "mlp.down_proj"}
"""Layers whose weights are the same matrix on both sides; query, key and value are one matrix here and three there."""


def make_rows(number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 + number % 4)
    return torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1), generator=generator)


def train_here(folder: Path, kind: str) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Return the losses, and the initial adapter weights by layer and name."""
    values: dict[str, Any] = {
        **read_hf_model(folder / "hf").values,
        "model.calculate_per_token_loss": True,
        "train.micro_batch_size": BATCH,
        "train.global_batch_size": BATCH,
        "optimizer.lr": RATE,
        "optimizer.adam_beta1": 0.9,
        "optimizer.adam_beta2": 0.95,
        "optimizer.adam_eps": 1e-8,
        "optimizer.clip_grad": 1.0,
        "optimizer.weight_decay": 0.0,
        "peft._class": kind,
        "peft.dim": 4,
        "peft.alpha": 8,
        "peft.target_modules": ["linear_proj", "linear_fc2"],
    }
    run = RunConfig(values=values)
    context = parallel.initialize(run)
    chunks = build.build_bare_model(run, context)
    identity = describe_identity(run, with_adapter=False)
    load_pretrained(find_checkpoint(folder / "mcore", identity=identity, asked_by="test"), chunks)
    settings = read_adapter(run)
    assert settings is not None
    attach_adapters(chunks, settings, seed=1234)
    start = {name: value.detach().clone() for name, value in chunks[0].named_parameters() if ".adapter." in name}
    chunks = build.wrap_model(run, chunks, context)
    adam = optimizer.build_optimizer(run, chunks, context)
    step.prepare_schedule(run, chunks, adam)
    losses = []
    for number in range(STEPS):
        rows = make_rows(number)
        batch = {
            "tokens": rows[:, :-1].contiguous(),
            "labels": rows[:, 1:].contiguous(),
            "loss_mask": torch.ones(BATCH, LENGTH),
            "position_ids": torch.arange(LENGTH).expand(BATCH, -1).contiguous(),
        }
        sizes = {"num_microbatches": 1, "micro_batch_size": BATCH, "seq_length": LENGTH}
        losses.append(step.train_step(chunks, adam, [iter([batch])], context, **sizes).losses[step.LOSS_NAME].item())
    parallel.shut_down()
    return losses, start


def train_there(folder: Path, kind: str, start: dict[str, torch.Tensor]) -> list[float]:
    """Return the losses of peft from the same initial weights."""
    import peft
    import transformers

    base = transformers.AutoModelForCausalLM.from_pretrained(folder / "hf", attn_implementation="eager")
    targets = [name.rsplit(".", 1)[1] for name in PARTS.values()]
    config = peft.LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules=targets, use_dora=kind == "DoRA")
    model = peft.get_peft_model(base, config)
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in start.items():
            layer, part, what = name.split(".", 3)[2], *name.split(".", 3)[3].split(".adapter.")
            place = f"base_model.model.model.layers.{layer}.{PARTS[part]}"
            suffix = {"linear_in.weight": "lora_A", "linear_out.weight": "lora_B"}.get(what)
            if suffix is not None:
                parameters[f"{place}.{suffix}.default.weight"].copy_(value)
            else:  # both sides take it from the weight alone
                assert torch.allclose(parameters[f"{place}.lora_magnitude_vector.default.weight"], value, rtol=1e-5)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert len(trained) == len(start)
    adam = torch.optim.AdamW(trained, lr=RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    losses = []
    for number in range(STEPS):
        rows = make_rows(number)
        logits = model(rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), rows[:, 1:].reshape(-1))
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        adam.step()
        losses.append(loss.item())
    return losses


def drop_here_and_there(rate: float = 0.3) -> dict[str, list[list[float]]]:
    """Return outputs and gradients of one DoRA layer with dropout of either side, under the same mask."""
    import peft
    from megatron.core.tensor_parallel import RowParallelLinear, model_parallel_cuda_manual_seed
    from megatron.core.transformer import TransformerConfig

    from autorecipe.engine.adapters.layers import adapt

    run = RunConfig(
        values={"peft._class": "DoRA", "peft.dim": 4, "peft.alpha": 8, "peft.dropout": rate, "peft.lora_B_init_method": "normal"}
    )
    settings = read_adapter(run)
    assert settings is not None
    parallel.initialize(RunConfig(values={"model.hidden_dropout": 0.0, "model.position_embedding_type": "rope"}))
    config = TransformerConfig(num_layers=1, hidden_size=16, num_attention_heads=1, use_cpu_initialization=True)
    ours = RowParallelLinear(
        16, 12, config=config, init_method=torch.nn.init.normal_, bias=False, input_is_parallel=True, skip_bias_add=True
    )
    theirs = torch.nn.Sequential(torch.nn.Linear(16, 12, bias=False))
    theirs[0].weight.data.copy_(ours.weight)
    adapt(ours, settings, name="layer.linear_proj", seed=1)
    wrapped = peft.get_peft_model(
        theirs, peft.LoraConfig(r=4, lora_alpha=8, lora_dropout=rate, use_dora=True, target_modules=["0"])
    )
    layer = wrapped.base_model.model[0]
    layer.lora_A["default"].weight.data.copy_(ours.adapter.linear_in.weight)
    layer.lora_B["default"].weight.data.copy_(ours.adapter.linear_out.weight)
    for magnitude in (ours.adapter.magnitude.data, layer.lora_magnitude_vector["default"].weight.data):
        magnitude.fill_(2.5)
    features = torch.randn(6, 1, 16)
    found = {}
    for name, module in (("here", ours.train()), ("there", wrapped.train())):
        x = features.clone().requires_grad_(True)
        model_parallel_cuda_manual_seed(5, force_reset_rng=True)
        if name == "there":  # the generator that a row-parallel layer draws the mask of its input's columns from
            from megatron.core.tensor_parallel import get_cuda_rng_tracker

            with get_cuda_rng_tracker().fork():
                output = module(x)
        else:
            output, _ = module(x)
        output.square().sum().backward()
        up = ours.adapter.linear_out.weight if name == "here" else layer.lora_B["default"].weight
        found[name] = [output.flatten().tolist(), x.grad.flatten().tolist(), up.grad.flatten().tolist()]
    parallel.shut_down()
    return found


if __name__ == "__main__":
    place = Path(sys.argv[1])
    import_weights(place / "hf", place / "mcore")
    found = {}
    for kind in sys.argv[2:]:
        here, start = train_here(place, kind)
        found[kind] = {"here": here, "there": train_there(place, kind, start)}
    print("TRACES " + json.dumps(found))
    print("DROPPED " + json.dumps(drop_here_and_there()))
