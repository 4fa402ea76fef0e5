"""What must be said of a benchmark recipe: exact count, canonical only unchanged, weak scaling, fixed LoRA."""

from __future__ import annotations

from autorecipe.launch.arithmetic import scale_weakly
from autorecipe.recommend.candidates import rank_candidates
from autorecipe.recommend.commands import render_selector
from autorecipe.recommend.models import ModelIndex
from autorecipe.record import replace
from autorecipe.schema.evidence import Evidence
from autorecipe.schema.recipe import Mode, RecipeKind
from autorecipe.schema.recommendation import Candidate, Question, Sizing, Statement
from autorecipe.schema.run import RunConfig


def state_benchmark(pick: Candidate, sizing: Sizing, question: Question, index: ModelIndex, config: RunConfig) -> list[Statement]:
    """Return the remarks that belong to a benchmark recipe."""
    summary = index.recipes[pick.name]
    model = summary.model
    found = []
    if pick.gpus is not None:
        nodes = -(-pick.gpus // sizing.gpus_per_node)
        facts: dict[str, object] = {"gpus": pick.gpus, "nodes": nodes, "per_node": sizing.gpus_per_node}
        found.append(Statement(code="bench.exact", facts=facts, evidence=Evidence.PUBLISHED))
    found.append(Statement(code="bench.canonical", evidence=Evidence.PUBLISHED))
    alike = [
        item
        for item in index.of_model(model)
        if item.kind is RecipeKind.BENCHMARK
        and item.mode is pick.mode
        and item.gpu_type == pick.gpu_type
        and item.precision == summary.precision
    ]
    asked = question.num_gpus
    batch = pick.global_batch_size
    if asked and pick.gpus and asked != pick.gpus and batch:
        scaled = scale_weakly(canonical_gpus=pick.gpus, requested_gpus=asked, global_batch_size=batch)
        facts = {
            "gpus": pick.gpus,
            "asked": asked,
            "gpu": pick.gpu_type,
            "precision": pick_precision(pick, index),
            "model": model,
        }
        if pick.gpus < asked:
            others = [item.name for item in alike if item.gpus == asked]
            other: dict[str, object] = {"other": min(others, key=lambda name: (len(name), name))} if others else {}
            found.append(Statement(code="bench.use-other" if others else "bench.use-fewer", facts=facts | other))
        runs = pick.layout is not None and pick.layout.fits_world(asked)
        if scaled.effective_global_batch_size is not None and runs:
            more = {"gbs": batch, "scaled": scaled.effective_global_batch_size}
            found.append(Statement(code="bench.weak-scaling", facts=facts | more, evidence=Evidence.ENFORCED_UPSTREAM))
    counts = sorted({item.gpus for item in alike if item.gpus is not None})
    found.append(
        Statement(
            code="bench.other-counts", facts={"gpu": pick.gpu_type, "precision": pick_precision(pick, index), "counts": counts}
        )
    )
    if config.get("model.moe_router_force_load_balancing", None) is True:
        found.append(Statement(code="kind.forced-balance", facts={"name": pick.name}, evidence=Evidence.MEASURED))
    library = rank_candidates(index, [model], replace(question, benchmark=False, mode=pick.mode, precision=None))
    if library:
        if pick.mode is Mode.PEFT:
            found.append(Statement(code="bench.peft", facts={"library": library[0].name}, evidence=Evidence.ENFORCED_UPSTREAM))
        found.append(Statement(code="bench.train-with", facts={"library": library[0].name}))
    task = {Mode.PRETRAIN: "pretrain", Mode.SFT: "sft", Mode.PEFT: "lora", None: "pretrain"}[pick.mode]
    selector = render_selector(
        family=summary.family,
        model=model,
        task=task,
        gpus=asked if asked and pick.layout is not None and pick.layout.fits_world(asked) else pick.gpus or 8,
        gpu=pick.gpu_type or sizing.gpu,
        precision=_precision_option(summary.precision),
    )
    found.append(Statement(code="bench.selector", facts={"command": " ".join(selector.replace("\\\n", " ").split())}))
    return found


def pick_precision(pick: Candidate, index: ModelIndex) -> str:
    """Return the precision id of a recipe's name."""
    return index.recipes[pick.name].precision or "bf16"


def _precision_option(precision: str | None) -> str:
    """Return the selector launcher's spelling of a precision id."""
    return {"fp8cs": "fp8_cs", "fp8mx": "fp8_mx", "fp8sc": "fp8_sc"}.get(precision or "bf16", precision or "bf16")
