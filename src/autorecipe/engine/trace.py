"""Trace one rank of any layout: build the real model under fake tensors and measure the peak of its live bytes.

    echo '{"values": {...}, "rank": 0, "world_size": 256}' | python -m autorecipe.engine.trace

Reads one JSON object (flat configuration values, rank, world size; optionally `mode` and `num_microbatches`), writes one JSON
object. Needs the training extra and no GPU. What is measured: parameters, gradient buffers, main weights as Megatron-Core
allocates them, the two moments that Adam would add, and the peak of one pass of the real pipeline schedule with even routing.
What is not: kernels' workspaces, allocator, communicators. Start reading at `trace_rank`.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any


def main() -> None:
    """Answer one request from standard input."""
    # The trace lives on the host also where GPUs are: fake tensors need no device, and a device would start a context.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    from autorecipe.errors import AutorecipeError

    try:
        result = trace_rank(json.load(sys.stdin))
    except AutorecipeError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    print(json.dumps(result), flush=True)
    # Process groups and fake modes do not matter any more; skipping their teardown saves seconds.
    sys.stdout.flush()
    os._exit(0)


def trace_rank(request: Mapping[str, Any]) -> dict[str, Any]:
    """Build and step one rank.

    Args:
        request: `values`, `rank`, `world_size`, and optionally `mode` and `num_microbatches`.

    Returns:
        bytes by part, parameter counts, layers, seconds.

    Raises:
        UsageError: what the engine cannot build, by name.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from autorecipe.config.views import view_batch, view_layout
    from autorecipe.engine import compat, fake
    from autorecipe.engine.parallel import ParallelContext, start_model_parallel
    from autorecipe.schema.run import RunConfig

    started = time.monotonic()
    # Checks of gradient values need values.
    checks = {
        "ddp.check_for_nan_in_grad": False,
        "ddp.check_for_large_grads": False,
        "rerun_state_machine.check_for_nan_in_loss": False,
    }
    values = {**request["values"], **checks, "dist.use_gloo_process_groups": False}
    run = RunConfig(values=values, mode=request.get("mode", ""))
    layout, batch = view_layout(run), view_batch(run)
    rank, world_size = request["rank"], request["world_size"]
    compat.prepare()
    fake.start_fake_group(rank=rank, world_size=world_size)
    start_model_parallel(run, layout)
    from megatron.core.process_groups_config import ProcessGroupCollection

    context = ParallelContext(
        rank=rank,
        world_size=world_size,
        local_rank=0,
        device=torch.device("cpu"),
        backend="fake",
        layout=layout,
        groups=ProcessGroupCollection.use_mpu_process_groups(),
    )
    fake.prepare_fakes(topk=values.get("model.moe_router_topk") or 1, windows=bool(values.get("model.window_size")))
    live = fake.LiveBytes()
    with FakeTensorMode(allow_non_fake_inputs=True), live:
        built = _build(run, context, live)
        microbatches = request.get("num_microbatches") or _enough_microbatches(
            context, batch.num_microbatches(context.data_parallel_size)
        )
        activations = _step(run, context, built["chunks"], built["optimizer"], live, batch, microbatches)
    del built["chunks"], built["optimizer"]
    return {
        **built,
        **activations,
        "rank": rank,
        "stage": context.pipeline_rank,
        "num_microbatches": microbatches,
        "core": compat.core_release(),
        "seconds": round(time.monotonic() - started, 2),
    }


def _build(run: Any, context: Any, live: Any) -> dict[str, Any]:
    """Build model, gradient buffers and optimizer, and note what each adds."""
    from autorecipe.engine.adapters.attach import attach_adapters
    from autorecipe.engine.adapters.settings import read_adapter
    from autorecipe.engine.build import build_bare_model, wrap_model
    from autorecipe.engine.optimizer import build_optimizer

    chunks = build_bare_model(run, context)
    adapter = read_adapter(run)
    if adapter is not None:
        attach_adapters(chunks, adapter, seed=0)
    parameters = {id(item): item for chunk in chunks for item in chunk.parameters()}
    expert = sum(item.numel() for item in parameters.values() if not getattr(item, "allreduce", True))
    total = sum(item.numel() for item in parameters.values())
    # Conversion to half precision replaces some parameters; the old ones must not stay alive in here.
    del parameters
    layers = sum(len(chunk.decoder.layers) for chunk in chunks)
    chunks = wrap_model(run, chunks, context)
    weights = sum(item.untyped_storage().nbytes() for item in _distinct(chunks))
    wrapped = live.now
    optimizer = build_optimizer(run, chunks, context)
    master = live.now - wrapped
    moments = _moment_bytes(run, optimizer)
    return {
        "chunks": chunks,
        "optimizer": optimizer,
        "parameters": total,
        "expert_parameters": expert,
        "layers": layers,
        "weights_bytes": weights,
        "gradients_bytes": wrapped - weights,
        "master_bytes": master,
        "moments_bytes": moments,
        "optimizer_bytes": master + moments,
    }


def _distinct(chunks: list[Any]) -> list[Any]:
    """Return one parameter for each storage."""
    found: dict[int, Any] = {}
    for chunk in chunks:
        for item in chunk.parameters():
            found.setdefault(item.untyped_storage()._cdata, item)
    return list(found.values())


def _moment_bytes(run: Any, optimizer: Any) -> int:
    """Return the bytes of the states that the first update will allocate: two 32-bit moments of each weight it owns."""
    if (run.get("optimizer.optimizer", None) or "adam") != "adam":
        return 0
    owned = 0
    for part in getattr(optimizer, "chained_optimizers", [optimizer]):
        for group in part.optimizer.param_groups:
            owned += sum(item.numel() for item in group["params"])
    return 8 * owned


def _enough_microbatches(context: Any, wanted: int) -> int:
    """Return as many micro batches as the peak needs: warm-up and one round more."""
    layout = context.layout
    if layout.pp == 1:
        return min(wanted, 2)
    if layout.vp == 1:
        return min(wanted, layout.pp - context.pipeline_rank + 1)
    return min(wanted, 3 * layout.pp)


def _step(run: Any, context: Any, chunks: list[Any], optimizer: Any, live: Any, batch: Any, microbatches: int) -> dict[str, Any]:
    """Run the schedule forward and backward and return the peak above what was there before."""
    import torch
    from megatron.core.distributed import finalize_model_grads
    from megatron.core.utils import get_model_config

    from autorecipe.engine.step import prepare_schedule, run_microbatches

    prepare_schedule(run, chunks, optimizer)
    # Whether any token counts depends on data.
    get_model_config(chunks[0]).finalize_model_grads_func = lambda model, num_tokens=None, **rest: finalize_model_grads(
        model, None, **rest
    )

    def batches() -> Iterator[dict[str, Any]]:
        shape = (batch.micro_batch_size, batch.seq_length)
        while True:
            # Recomputation leaves cycles that Python's collector frees some time later; a trace has too few objects to start it.
            gc.collect()
            yield {
                "tokens": torch.zeros(shape, dtype=torch.long),
                "labels": torch.zeros(shape, dtype=torch.long),
                "position_ids": torch.zeros(shape, dtype=torch.long),
                "loss_mask": torch.ones(shape),
            }

    for chunk in chunks:
        chunk.zero_grad_buffer()
    base = live.now
    live.reset_peak()
    run_microbatches(
        chunks,
        [batches() for _ in chunks],
        context,
        num_microbatches=microbatches,
        micro_batch_size=batch.micro_batch_size,
        seq_length=batch.seq_length,
        forward_only=False,
    )
    return {"activations_bytes": live.peak - base, "resident_bytes": base}


if __name__ == "__main__":
    main()
