"""Subprocess entry: reads one JSON request on stdin, writes events as JSON lines on stdout.

Request: `bridge` and `core` (directories to import from), `configs` (path of a JSON object: Hugging Face id ->
configuration), `tokenizer_lengths`, `seconds` (limit per recipe), `shard` and `shards`, `only` (names, empty for all), `skip`
(function keys not to try again). Events: `found`, `sections` (of the first shard), `begin` and `result` per function, `bases`,
`done`. What upstream prints goes to stderr.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any, TextIO

MACHINE_PREFIXES = ("NEMO_", "SLURM_", "HF_", "XDG_", "WANDB_", "COMET_", "MASTER_", "NCCL_", "NVTE_", "MEGATRON_")
MACHINE_VARIABLES = frozenset(
    {
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "ENABLE_BRIDGE_QUANT_MAPPING",
        "GEMMA4_CONVERSION_MODE",
        "QWEN3_OMNI_HF_PATH",
        "TRANSFORMERS_CACHE",
        "USE_ACT_FUSION_FOR_DENSE",
    }
)
"""Variables that upstream or its libraries read; with the prefixes, so that every machine builds the same catalog."""


def main() -> int:
    """Evaluate one shard of a tree's recipes."""
    request = json.load(sys.stdin)
    events = _claim_stdout()
    home = _leave_this_machine()
    os.environ.update(
        HF_HUB_OFFLINE="1",
        TRANSFORMERS_OFFLINE="1",
        HF_DATASETS_OFFLINE="1",
        TOKENIZERS_PARALLELISM="false",
        CUDA_VISIBLE_DEVICES="",
    )
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    sys.path[:0] = [request["bridge"], *([request["core"]] if request["core"] else [])]
    # Transformer Engine, mamba and the like are stand-ins from here on, whatever is installed.
    from autorecipe.catalog.evaluator import standins

    finder = standins.install()
    started = time.process_time()

    import torch

    torch.set_num_threads(1)
    from autorecipe.catalog.evaluator.container import ContainerWriter
    from autorecipe.catalog.evaluator.discovery import discover
    from autorecipe.catalog.evaluator.hub import Hub
    from autorecipe.catalog.evaluator.options import describe_options
    from autorecipe.catalog.evaluator.presets import describe_presets
    from autorecipe.catalog.evaluator.recipe import RecipeEvaluator
    from autorecipe.catalog.evaluator.sections import describe_sections
    from autorecipe.catalog.evaluator.values import ValueWriter

    bridge = Path(request["bridge"])
    writer = ContainerWriter(ValueWriter({str(bridge): "${BRIDGE}", str(Path.cwd()): "${CWD}", str(home): "${HOME}"}))
    configs = json.loads(Path(request["configs"]).read_text(encoding="utf-8"))
    hub = Hub(configs, request["tokenizer_lengths"], writer.snapshot)
    evaluator = RecipeEvaluator(bridge=bridge, hub=hub, writer=writer, seconds=request["seconds"])
    hub.install()
    evaluator.note_missing_quantization_files()
    found = discover()
    names = [f"{export.kind}:{export.function.__module__}:{export.name}" for export in found.exports]
    _send(
        events,
        event="found",
        functions={name: evaluator.describe(export) for name, export in zip(names, found.exports, strict=True)},
        packages=found.packages,
        broken_modules=found.broken_modules,
        versions=_versions(),
        standins=sorted(finder.used),
        import_seconds=time.process_time() - started,
    )
    if request["shard"] == 0:
        sections = describe_sections(writer)
        options, reason = describe_options()
        presets = describe_presets(writer.writer)
        _send(events, event="sections", sections=sections, options=options, no_options=reason, presets=presets)
    only, skip = set(request["only"]), set(request["skip"])
    sent: set[str] = set()
    for index, (name, export) in enumerate(zip(names, found.exports, strict=True)):
        wanted = not only or export.name in only or bool(only & set(export.aliases))
        if index % request["shards"] != request["shard"] or name in skip or not wanted:
            continue
        _send(events, event="begin", function=name)
        record = evaluator.evaluate(export)
        fresh = {base: writer.bases[base] for base in writer.bases if base not in sent}
        sent |= set(fresh)
        if fresh:
            _send(events, event="bases", bases=fresh)
        _send(events, event="result", function=name, record=record)
    _send(events, event="bases", bases={base: writer.bases[base] for base in writer.bases if base not in sent})
    _send(events, event="done", cpu_seconds=time.process_time() - started)
    return 0


def _leave_this_machine() -> Path:
    """Drop what would make upstream's values depend on who builds and where; return a home folder that stands for anyone's.

    Variables of one's own pass through, because recipes of one's own may read them.
    """
    for name in list(os.environ):
        if name in MACHINE_VARIABLES or name.startswith(MACHINE_PREFIXES):
            del os.environ[name]
    home = Path.cwd() / "home"
    home.mkdir()
    os.environ["HOME"] = str(home)
    return home


def _claim_stdout() -> TextIO:
    """Keep stdout for events; whatever else prints there goes to stderr."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return events


def _send(events: TextIO, **event: Any) -> None:
    events.write(json.dumps(event, ensure_ascii=False) + "\n")
    events.flush()


def _versions() -> dict[str, str]:
    import importlib.metadata
    import platform

    import torch

    versions = {"python": platform.python_version(), "torch": torch.__version__}
    try:
        versions["transformers"] = importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError:
        versions["transformers"] = "not installed"
    return versions


if __name__ == "__main__":
    sys.exit(main())
