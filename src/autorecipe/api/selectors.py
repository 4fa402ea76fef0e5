"""Recipes selected: a model and a mode, or a model, task, GPU count and type, precision: upstream's selectors."""

from __future__ import annotations

from autorecipe.catalog.store import Catalog, open_catalog
from autorecipe.errors import Problem, UsageError, near_misses
from autorecipe.schema.recipe import RecipeKind


def select_recipe(*, model: str, mode: str, release: str | None = None) -> str:
    """Return the library recipe that `--model NAME --mode MODE` selects, as upstream's launcher does.

    Raises:
        UsageError: no such recipe, with near misses.
    """
    task = "peft" if mode in ("lora", "dora", "peft") else mode
    return open_catalog(release).summary(f"{model}_{task}_config").name


def select_benchmark(
    *, model: str, task: str, gpus: int, gpu: str, precision: str, variant: str = "", release: str | None = None
) -> tuple[str, tuple[str, ...]]:
    """Return the benchmark recipe that selectors mean, and what to know about it.

    The exact count is taken where there is a recipe for it, else the nearest count of the same model, task, GPU and precision.

    Raises:
        UsageError: no benchmark recipe of that kind at all.
    """
    catalog = open_catalog(release)
    mode = "peft" if task == "lora" else task
    of_model = [
        item
        for item in catalog.summaries()
        if item.kind is RecipeKind.BENCHMARK and item.name.startswith(f"{model}_{mode}_") and item.mode == mode
    ]
    fitting = [
        item
        for item in of_model
        if item.gpu_type == gpu and item.precision == precision and (item.variant or "") == variant and item.gpus
    ]
    if not fitting:
        combinations = sorted({f"{item.gpus} x {item.gpu_type} {item.precision}" for item in of_model if item.gpus})
        hint = f"there are: {', '.join(combinations)}" if combinations else _other_models(catalog, model, mode)
        label = f"{model} {task} on {gpu} in {precision}" + (f", variant {variant}" if variant else "")
        raise UsageError(Problem(code="no-benchmark", message=f"no benchmark recipe for {label}", hint=hint))
    best = min(fitting, key=lambda item: (abs((item.gpus or 0) - gpus), item.gpus or 0))
    if best.gpus == gpus:
        return best.name, ()
    counts = ", ".join(str(item.gpus) for item in sorted(fitting, key=lambda item: item.gpus or 0))
    return best.name, (f"note: no recipe for exactly {gpus} GPUs (there are: {counts}); {best.name} is resized",)


def _other_models(catalog: Catalog, model: str, mode: str) -> str:
    stems = sorted(
        {
            item.name.split(f"_{mode}_")[0]
            for item in catalog.summaries()
            if item.kind is RecipeKind.BENCHMARK and item.mode == mode
        }
    )
    return f"models with a {mode} benchmark: {', '.join(near_misses(model, stems) or stems)}"
