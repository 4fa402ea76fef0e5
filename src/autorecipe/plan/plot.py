"""Memory against speed of every Pareto choice, as a picture."""

from __future__ import annotations

from pathlib import Path

from autorecipe.errors import EnvironmentProblem, Problem
from autorecipe.schema.plan import Plan
from autorecipe.units import GIB


def draw_plan(plan: Plan, path: Path) -> None:
    """Write a PNG with the Pareto front, the ranked choices and the recipe's own layout.

    Raises:
        EnvironmentProblem: matplotlib is not installed.
    """
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise EnvironmentProblem(
            Problem(message="plots need matplotlib, which is not installed", hint="pip install 'autorecipe[plot]'")
        ) from None
    figure, axes = pyplot.subplots(figsize=(9, 5.5), dpi=120)
    front = plan.pareto
    axes.plot([c.peak_bytes / GIB for c in front], [c.tokens_per_second_per_gpu for c in front], "o-", label="Pareto front")
    for number, choice in enumerate(plan.choices, 1):
        # The number itself is the marker, beside the front's own, so that choices on the front stay visible.
        place = axes.annotate(
            str(number),
            (choice.peak_bytes / GIB, choice.tokens_per_second_per_gpu),
            textcoords="offset points",
            xytext=(7 * number, 5),
            fontsize=9,
            fontweight="bold",
        )
        axes.plot(*place.xy, "k.", label=f"{number}: {choice.candidate.render()}")
    if plan.shipped is not None:
        axes.plot(plan.shipped.peak_bytes / GIB, plan.shipped.tokens_per_second_per_gpu, "s", label="recipe as shipped")
    capacity = plan.request.cluster.gpu.usable_memory[1] / GIB
    axes.axvline(capacity, linestyle="--", linewidth=1, color="grey", label=f"GPU memory {capacity:.0f} GiB")
    axes.set_xlabel("predicted peak allocated on the worst rank (GiB)")
    axes.set_ylabel("predicted tokens/s/GPU")
    axes.set_title(f"{plan.request.cluster.num_gpus} x {plan.request.cluster.gpu.title}")
    axes.legend(fontsize=7, loc="lower right")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)
