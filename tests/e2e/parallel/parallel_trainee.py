"""Trains one small model on this rank and reports losses and gradient norms."""

import parallel_weights as weights
import torch

from autorecipe.engine import build, optimizer, parallel, step
from autorecipe.schema.run import RunConfig

VOCAB = 128
SEQ = 32
GLOBAL_BATCH = 4


def import_everything():
    """Import what every rank needs, before forking."""

    import autorecipe.engine.modules.spec  # noqa: F401


def train(case):
    run = RunConfig(values=case["values"])
    context = parallel.initialize(run)
    chunks = build.build_bare_model(run, context)
    weights.fill(chunks)
    chunks = build.wrap_model(run, chunks, context)
    optimiser = optimizer.build_optimizer(run, chunks, context)
    step.prepare_schedule(run, chunks, optimiser)
    micro_batch = run.get("train.micro_batch_size")
    micro_batches = GLOBAL_BATCH // (context.data_parallel_size * micro_batch)
    packed = case.get("packed", False)
    losses, norms = [], []
    for iteration in range(case["steps"]):
        share = make_tokens(iteration).chunk(context.data_parallel_size)[context.data_parallel_rank]
        result = step.train_step(
            chunks,
            optimiser,
            [cut_batches(share, micro_batch, packed) for _ in chunks],
            context,
            num_microbatches=micro_batches,
            micro_batch_size=1 if packed else micro_batch,
            seq_length=SEQ * (micro_batch if packed else 1),
        )
        losses.append(result.losses[step.LOSS_NAME].item())
        norms.append(result.grad_norm)
    return {"losses": losses, "norms": norms}


def leave():
    parallel.shut_down()


def make_tokens(iteration):
    """Return [global batch, sequence + 1] tokens in which every second one follows from the one before."""
    generator = torch.Generator().manual_seed(1000 + iteration % 3)
    tokens = torch.randint(0, VOCAB, (GLOBAL_BATCH, SEQ + 1), generator=generator)
    tokens[:, 1::2] = (5 * tokens[:, 0:-1:2] + 3) % VOCAB
    return tokens


def cut_batches(tokens, micro_batch, packed):
    for rows in tokens.split(micro_batch):
        count = rows.shape[0]
        batch = {
            "tokens": rows[:, :-1].contiguous(),
            "labels": rows[:, 1:].contiguous(),
            "loss_mask": (torch.arange(SEQ) % 7 != 3).float().expand(count, -1).contiguous(),
            "position_ids": torch.arange(SEQ).expand(count, -1).contiguous(),
        }
        if packed:  # the rows of a micro batch laid end to end
            batch = {name: value.reshape(1, -1) for name, value in batch.items()}
            batch["cu_seqlens"] = torch.arange(0, (count + 1) * SEQ, SEQ, dtype=torch.int32)
        yield batch
