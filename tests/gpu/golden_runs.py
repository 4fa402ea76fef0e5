"""Runs of Megatron-LM on one H200, as overrides for this engine, and how a run's lines compare with Megatron-LM's.

`golden_verdicts.py` starts them; tests/golden/test_losses.py compares recorded ones.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOSSES = ROOT / "tests" / "golden" / "losses"

# pretrain_gpt.py's defaults where the recipe's differ.
MEGATRON_LM = {
    "scheduler.lr_decay_style": "linear",
    "scheduler.lr_warmup_iters": 0,
    "optimizer.adam_beta2": 0.999,
    "optimizer.weight_decay": 0.01,
    "scheduler.start_weight_decay": 0.01,
    "scheduler.end_weight_decay": 0.01,
    "optimizer.lr": 3e-4,
    "optimizer.min_lr": 3e-5,
    "optimizer.use_distributed_optimizer": False,
    "ddp.use_distributed_optimizer": False,
    "rng.seed": 1234,
    "train.train_iters": 10,
    "validation.eval_interval": 10,
    "validation.eval_iters": 2,
    "logger.log_interval": 1,
    "logger.tensorboard_dir": None,
    "checkpoint.save": None,
    "model.cross_entropy_loss_fusion": False,
    "model.attention_dropout": 0.0,
    "model.hidden_dropout": 0.0,
}
FP32 = {"mixed_precision": None, "ddp.grad_reduce_in_fp32": False}
SEED = {
    **MEGATRON_LM,
    "model.num_layers": 2,
    "model.hidden_size": 256,
    "model.num_attention_heads": 4,
    "model.ffn_hidden_size": 1024,
    "model.seq_length": 512,
    "dataset.seq_length": 512,
    "train.micro_batch_size": 4,
    "train.global_batch_size": 32,
    "tokenizer.vocab_size": 32000,
}
LLAMA_STYLE = {
    "model.normalization": "RMSNorm",
    "model.gated_linear_unit": True,
    "model.activation_func": "silu",
    "model.position_embedding_type": "rope",
    "model.rotary_base": 500000,
    "model.add_bias_linear": False,
}
LLAMA = {
    **MEGATRON_LM,
    **LLAMA_STYLE,
    "model.num_layers": 4,
    "model.hidden_size": 256,
    "model.num_attention_heads": 8,
    "model.num_query_groups": 4,
    "model.ffn_hidden_size": 688,
    "model.share_embeddings_and_output_weights": False,
    "model.seq_length": 256,
    "dataset.seq_length": 256,
    "train.micro_batch_size": 2,
    "train.global_batch_size": 16,
    "tokenizer.vocab_size": 8192,
}
MOE = {
    **LLAMA,
    "model.num_moe_experts": 4,
    "model.moe_router_topk": 2,
    "model.moe_router_load_balancing_type": "aux_loss",
    "model.moe_aux_loss_coeff": 1e-2,
    "model.moe_token_dispatcher_type": "alltoall",
    "model.moe_ffn_hidden_size": 256,
}
ONE_BILLION = {
    **MEGATRON_LM,
    **LLAMA_STYLE,
    "model.num_layers": 16,
    "model.hidden_size": 2048,
    "model.num_attention_heads": 32,
    "model.num_query_groups": 8,
    "model.ffn_hidden_size": 8192,
    "model.seq_length": 4096,
    "dataset.seq_length": 4096,
    "train.micro_batch_size": 1,
    "train.global_batch_size": 8,
    "train.train_iters": 12,
    "validation.eval_interval": 100,
    "tokenizer.vocab_size": 128256,
    "optimizer.min_lr": 0.0,
    "optimizer.use_distributed_optimizer": True,
    "ddp.use_distributed_optimizer": True,
    "logger.log_throughput": True,
}
DROPOUT = {"model.attention_dropout": 0.1, "model.hidden_dropout": 0.1}

RUNS = {
    "llama_fp32": {**LLAMA, **FP32},
    "llama_bf16": LLAMA,
    "moe_fp32": {**MOE, **FP32},
    "seed_fp32_nodropout": {**SEED, **FP32},
    "seed_bf16_nodropout": SEED,
    "seed_bf16": {**SEED, **DROPOUT},
    "perf_1b_s4096": ONE_BILLION,
}

PARAMETERS = {
    "llama_fp32": 7_096_576,
    "llama_bf16": 7_096_576,
    "moe_fp32": 8_132_864,
    "seed_fp32_nodropout": 9_903_104,
    "seed_bf16_nodropout": 9_903_104,
    "seed_bf16": 9_903_104,
    "perf_1b_s4096": 1_235_814_400,
}
"""What Megatron-LM's logs say of the number of parameters."""

LINE = re.compile(
    r"iteration +(\d+)/.*learning rate: (\S+) .*lm loss: (\S+) .*grad norm: (\S+) ",
)
COUNT = re.compile(r"number of parameters on .*: (\d+)")


def read_lines(text):
    """Return (iteration, loss, gradient norm, learning rate) of every training line, as printed."""
    return [(found[1], found[3], found[4], found[2]) for found in LINE.finditer(text)]


def read_reference(name):
    """Return the rows of Megatron-LM's log, its averaged second line included."""
    return (LOSSES / f"{name}__megatron-lm.txt").read_text(encoding="utf-8").splitlines()


def bound_name(name):
    """Return which bound of `tolerances.GOLDEN` a configuration is held to."""
    return "perf" if name.startswith("perf") else "fp32" if "fp32" in name else "bf16"


def render(lines):
    return "".join(" ".join(line) + "\n" for line in lines)


def undo_average(lines):
    """Megatron-LM's second line averages the first two iterations' losses; return lines with the second alone."""
    if len(lines) < 2:
        return lines
    first, second = float(lines[0][1]), float(lines[1][1])
    return [lines[0], (lines[1][0], f"{2 * second - first:.6E}", *lines[1][2:]), *lines[2:]]


def command(values, options, folder):
    overrides = [f"{path}={render_value(value)}" for path, value in values.items()]
    return [
        sys.executable,
        str(ROOT / "scripts" / "training" / "run_recipe.py"),
        "--recipe",
        "vanilla_gpt_pretrain_config",
        "--dataset",
        "mock",
        f"dataset.path_to_cache={folder}/cache",
        *overrides,
        *options,
    ]


def render_value(value):
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return f"'{value}'" if isinstance(value, str) and "," in value else repr(value) if isinstance(value, float) else value
