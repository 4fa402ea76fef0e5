"""Resolution against Megatron Bridge itself: the same recipes and overrides, resolved here and by upstream's own code.

    python bench/resolution.py --bridge MEGATRON_BRIDGE.whl --core MEGATRON_CORE.whl [--recipes 60] [--seed 1]

Upstream's side runs in a subprocess on the CPU, with the catalog evaluator's stand-ins: the recipe function, Hydra overrides, the
launcher's sequence synchronisation, then `runtime_config_update` for the world size. Prints how many values agree, and how many
of the values that upstream moved after the recipe are reproduced. Without the two wheels it says so and does nothing.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

OVERRIDES: tuple[tuple[str, ...], ...] = (
    (),
    ("model.seq_length=2048",),
    ("dataset.seq_length=2048",),
    ("train.train_iters=10",),
    ("train.train_iters=10", "scheduler.lr_warmup_iters=2"),
    ("mixed_precision=bf16_mixed", "ddp.grad_reduce_in_fp32=False"),
    ("mixed_precision=bf16_with_fp8_current_scaling_mixed",),
    ("mixed_precision=null",),
    ("ddp.overlap_grad_reduce=false",),
    ("comm_overlap=null",),
    ("ddp.use_distributed_optimizer=false",),
    ("optimizer.weight_decay=0.2",),
    ("model.tensor_model_parallel_size=1",),
    ("model.sequence_parallel=true",),
    ("model.expert_tensor_parallel_size=null",),
    ("model.params_dtype=fp32",),
    ("rng.te_rng_tracker=true",),
    ("scheduler.max_steps=2000000", "train.train_iters=100"),
    ("scheduler.lr_decay_style=WSD",),
    ("train.eval_iters=7",),
    (
        "model.cuda_graph_impl=transformer_engine",
        "model.cuda_graph_scope=[attn]",
        "model.cuda_graph_modules=[]",
        "rng.te_rng_tracker=true",
    ),
    ("model.cuda_graph_scope=[attn]",),
    (
        "model.cuda_graph_impl=local",
        "model.cuda_graph_scope=full_iteration",
        "rng.te_rng_tracker=true",
        "rerun_state_machine.check_for_nan_in_loss=false",
    ),
    ("+env_vars.ABC=1",),
    ("ddp.use_megatron_fsdp=true", "ddp.data_parallel_sharding_strategy=optim_grads_params"),
)

NOT_COMPARED = {
    "optimizer.weight_decay": "reported as the value that acts",
    "optimizer.use_precision_aware_optimizer": "the launcher's own switch for benchmark recipes",
    "ddp.megatron_fsdp_use_decoupled_grad": "follows the launcher's own switch for benchmark recipes",
    "optimizer.use_precision_aware_optimizer_no_fp8_or_ds_fp8": "internal",
    "comm_overlap.data_parallel_size": "internal",
    "comm_overlap.user_comm_overlap_cfg": "internal copy",
    "dataset.offline_packing_specs.pad_seq_to_mult": "the launcher's own alignment, which the wheel does not have",
    "dataset.offline_packing_specs.packed_sequence_size": "likewise",
    "dataset.split_matrix": "internal form of dataset.split",
    "mixed_precision": "a preset's name becomes an object",
    "model.init_method": "a function of init_method_std",
    "model.output_layer_init_method": "a function of init_method_std",
    "model.embedding_init_method": "a function of init_method_std",
    "model.inference_cuda_graph_scope": "inference only",
    "model.tp_comm_overlap_cfg": "copied from comm_overlap",
}
"""Paths (and what lies below them) that resolution leaves to upstream on purpose."""


def choose_jobs(count: int, seed: int) -> list[dict[str, Any]]:
    """Return recipe, overrides and world size of each job."""
    from autorecipe.catalog.store import open_catalog

    catalog = open_catalog()
    names = [item.name for item in catalog.summaries() if item.alias_of is None and item.status == "ok" and "@" not in item.name]
    random.Random(seed).shuffle(names)
    jobs = []
    for index, name in enumerate(names[:count]):
        recipe = catalog.load(name)
        tp, pp, cp, ep = (
            recipe.fields.get(f"model.{axis}_parallel_size") or 1
            for axis in ("tensor_model", "pipeline_model", "context", "expert_model")
        )
        overrides = list(OVERRIDES[index % len(OVERRIDES)])
        if "peft._class" in recipe.fields:
            overrides.append("checkpoint.pretrained_checkpoint=.")
        jobs.append({"recipe": name, "overrides": overrides, "world": recipe.gpus or max(tp * cp, ep) * pp * 2})
    return jobs


def run_upstream(request: dict[str, Any]) -> None:
    """Resolve every job with upstream's own code and print one JSON line each; runs in the subprocess."""
    import logging
    import warnings

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.path[:0] = [request["bridge"], request["core"]]
    from autorecipe.catalog.evaluator import standins

    standins.install()
    import transformer_engine.pytorch.optimizers as stand_in_optimizers

    stand_in_optimizers.FusedAdam = _FusedAdam
    from autorecipe.catalog.evaluator.container import ContainerWriter
    from autorecipe.catalog.evaluator.discovery import discover
    from autorecipe.catalog.evaluator.hub import Hub
    from autorecipe.catalog.evaluator.recipe import RecipeEvaluator
    from autorecipe.catalog.evaluator.values import ValueWriter

    bridge = Path(request["bridge"])
    writer = ContainerWriter(ValueWriter({str(bridge): "${BRIDGE}", str(Path.cwd()): "${CWD}"}))
    hub = Hub(request["configs"], request["tokenizer_lengths"], writer.snapshot)
    evaluator = RecipeEvaluator(bridge=bridge, hub=hub, writer=writer, seconds=30)
    hub.install()
    evaluator.note_missing_quantization_files()
    exports = {name: export for export in discover().exports for name in (export.name, *export.aliases)}
    for job in request["jobs"]:
        result = dict(job)
        saved = dict(os.environ)
        hub.start_recipe()
        try:
            container = _resolve(exports[job["recipe"]], evaluator, job)
            writer.writer.reset()
            result["fields"] = writer.write(container, model_base=None)["fields"]
            result["fields"]["data_parallel_size"] = container.data_parallel_size
        except Exception as error:
            result["error"] = f"{type(error).__name__}: {str(error)[:200]}"
        finally:
            os.environ.clear()
            os.environ.update(saved)
        print(json.dumps(result), file=events, flush=True)


class _FusedAdam:
    """Stands in for Transformer Engine's, whose signature upstream inspects."""

    def __init__(self, params: Any, *, store_param_remainders: bool = False, use_decoupled_grad: bool = False) -> None:
        del params, store_param_remainders, use_decoupled_grad


def _resolve(export: Any, evaluator: Any, job: dict[str, Any]) -> Any:
    from megatron.bridge.training.config import runtime_config_update
    from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

    from autorecipe.catalog.evaluator.gpus import pretend

    with pretend(evaluator._gpu(export)):
        container = export.function()
        container = process_config_with_overrides(container, cli_overrides=job["overrides"] or None)
        length = getattr(container.dataset, "seq_length", None) or getattr(container.dataset, "sequence_length", None)
        if length is not None:
            container.model.seq_length = length
        os.environ.update(WORLD_SIZE=str(job["world"]), RANK="0", NCCL_ALGO="Ring", NVTE_CPU_OFFLOAD_V1="1")
        os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
        runtime_config_update(container)
    return container


def compare(results: list[dict[str, Any]]) -> None:
    """Resolve the same jobs here and print the table."""
    from autorecipe.api.resolve import resolve_run
    from autorecipe.catalog.store import open_catalog
    from autorecipe.errors import AutorecipeError

    catalog = open_catalog()
    counts: collections.Counter[str] = collections.Counter()
    different: collections.Counter[str] = collections.Counter()
    examples: dict[str, str] = {}
    for result in results:
        if "fields" not in result:
            counts["refused upstream"] += 1
            continue
        try:
            run = resolve_run(result["recipe"], result["overrides"], world_size=result["world"])
        except AutorecipeError as error:
            counts["refused here only"] += 1
            examples["refused here only"] = f"{result['recipe']} {result['overrides']}: {error}"
            continue
        counts["runs"] += 1
        own = catalog.load(result["recipe"]).fields
        for path, value in result["fields"].items():
            if any(path == name or (path.startswith(name + ".") and name != "mixed_precision") for name in NOT_COMPARED):
                continue
            mine = run.values.get(path)
            agrees = json.dumps(mine) == json.dumps(value) or (_is_number(mine) and _is_number(value) and mine == value)
            moved = path not in own or own[path] != value
            counts["values"] += 1
            counts["equal"] += agrees
            counts["moved by upstream"] += moved
            counts["moved and reproduced"] += moved and agrees
            if not agrees:
                different[path] += 1
                examples.setdefault(path, f"{result['recipe']} {result['overrides']}: upstream {value!r}, here {mine!r}"[:230])
    for name in ("runs", "refused upstream", "refused here only", "values", "equal", "moved by upstream", "moved and reproduced"):
        print(f"{name:<22} {counts[name]:>10,}")
    print(f"{'share equal':<22} {counts['equal'] / max(1, counts['values']):>10.3%}")
    print(f"{'share reproduced':<22} {counts['moved and reproduced'] / max(1, counts['moved by upstream']):>10.3%}")
    for path, count in different.most_common(20):
        print(f"  {count:>4} {path}: {examples[path]}")
    if "refused here only" in examples:
        print(f"  refused here only: {examples['refused here only']}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def main() -> int:
    """Run both sides and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bridge", type=Path, help="Megatron Bridge wheel or checkout")
    parser.add_argument("--core", type=Path, help="Megatron-Core wheel or checkout")
    parser.add_argument("--recipes", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        run_upstream(json.load(sys.stdin))
        return 0
    if options.bridge is None or options.core is None:
        print("not run: give --bridge and --core (wheels or checkouts of Megatron Bridge and Megatron-Core)")
        return 0
    from autorecipe.catalog.configs import gather_configs
    from autorecipe.catalog.source import open_bridge, open_core

    configs = gather_configs()
    jobs = choose_jobs(options.recipes, options.seed)
    with open_bridge(options.bridge) as bridge, open_core(options.core) as core, tempfile.TemporaryDirectory() as directory:
        request = {
            "bridge": str(bridge.directory),
            "core": str(core.directory),
            "configs": dict(configs.configs),
            "tokenizer_lengths": dict(configs.tokenizer_lengths),
            "jobs": jobs,
        }
        environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONPATH": os.pathsep.join(str(Path(path).resolve()) for path in sys.path if path),
        }
        command = [sys.executable, str(Path(__file__).resolve()), "--worker"]
        done = subprocess.run(
            command,
            input=json.dumps(request),
            text=True,
            capture_output=True,
            cwd=directory,
            env=environment,
        )
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return 1
    compare([json.loads(line) for line in done.stdout.splitlines()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
