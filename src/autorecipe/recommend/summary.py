"""The first lines of an answer: does it run there, with which layout, does it fit, and what else the asker must know at once."""

from __future__ import annotations

from collections.abc import Sequence

from autorecipe.recommend.candidates import fits_its_name
from autorecipe.recommend.habits import CP_ABOVE_TOKENS
from autorecipe.recommend.sizing import LARGEST_WORLD, Sizer, size_recipe
from autorecipe.schema.evidence import Evidence
from autorecipe.schema.hardware import Cluster, Gpu
from autorecipe.schema.plan import Candidate as LayoutCandidate
from autorecipe.schema.recipe import Mode, RecipeKind
from autorecipe.schema.recommendation import Candidate, Question, Sizing, Statement, Verdict


def state_shorter(sizer: Sizer, sizing: Sizing, cluster: Cluster) -> list[Statement]:
    """Say whether a sequence of 8K tokens would fit where the recipe's longer one does not."""
    if sizing.verdict is not Verdict.DOES_NOT_FIT or (sizing.seq_length or 0) <= CP_ABOVE_TOKENS:
        return []
    short = size_recipe(Sizer(sizer.config, seq_length=CP_ABOVE_TOKENS), cluster, recipe_gpus=None)
    if short.verdict is Verdict.DOES_NOT_FIT:
        return []
    facts = {"tokens": CP_ABOVE_TOKENS, "gpus": short.num_gpus, "gpu": short.gpu, "layout": short.layout.render()}
    return [Statement(code="summary.shorter", facts=facts, evidence=Evidence.DERIVED)]


def summarize(
    pick: Candidate,
    sizing: Sizing,
    gpu: Gpu,
    *,
    question: Question,
    modality: str,
    runners_up: Sequence[Candidate],
    shorter: Sequence[Statement],
) -> tuple[Statement, ...]:
    """Return the first lines of an answer.

    Args:
        pick: the recipe.
        sizing: how it will run, or that it does not.
        gpu: asked for.
        question: as completed.
        modality: text, vlm, audio, omni or diffusion.
        runners_up: other recipes, of which one may need fewer GPUs.
        shorter: what `state_shorter` says.
    """
    facts = {"name": pick.name, "gpus": sizing.num_gpus, "gpu": sizing.gpu, "layout": sizing.layout.render()}
    found: list[Statement] = []
    if pick.kind is RecipeKind.BENCHMARK:
        if not fits_its_name(pick.layout, pick.gpus) and pick.gpus == sizing.num_gpus and pick.gpu_type == sizing.gpu:
            broken = {"layout": sizing.shipped.render(), "minimum": sizing.shipped.minimum_world_size}
            return (
                Statement(code="summary.benchmark-broken", facts=facts | broken),
                Statement(code="summary.benchmark-broken-next", facts=facts),
            )
        if sizing.verdict is Verdict.DOES_NOT_FIT or pick.gpus != sizing.num_gpus or pick.gpu_type != sizing.gpu:
            model = pick.canonical_name.split("_pretrain_")[0].split("_sft_")[0].split("_peft_")[0]
            needs = {"model": model, "needed": pick.gpus, "needed_gpu": pick.gpu_type}
            return (Statement(code="summary.benchmark-no-fit", facts=facts | needs),)
        found.append(Statement(code="summary.benchmark", facts=facts))
    elif sizing.verdict is Verdict.DOES_NOT_FIT:
        code = "summary.no-fit" if sizing.needed_gpus else "summary.no-fit-unknown"
        needed = _describe(sizing.needed) if sizing.needed else ""
        found.append(
            Statement(code=code, facts=facts | {"needed": sizing.needed_gpus, "needed_layout": needed, "limit": LARGEST_WORLD})
        )
        found += shorter
    else:
        code = "summary.as-shipped" if sizing.verdict is Verdict.AS_SHIPPED else "summary.resized"
        if sizing.verdict is Verdict.RESIZED and sizing.layout == sizing.shipped:
            code = "summary.resized-same-layout"
        extra = {"shipped": sizing.shipped.render(), "dp": sizing.data_parallel_size}
        found.append(Statement(code=code, facts=facts | extra))
    found += _memory(sizing)
    if sizing.memory is not None and modality not in ("text", ""):
        code = "summary.memory-diffusion" if modality == "diffusion" else "summary.memory-language"
        found.append(Statement(code=code, facts={"modality": modality}))
    if sizing.idle_gpus:
        asked = (sizing.num_gpus or 0) + sizing.idle_gpus
        found.append(
            Statement(code="summary.idle", facts={"idle": sizing.idle_gpus, "asked": asked, "gbs": pick.global_batch_size})
        )
    world = (sizing.num_gpus or 0) + sizing.idle_gpus
    if sizing.verdict is not Verdict.AS_SHIPPED and not sizing.shipped.fits_world(world):
        needs = {
            "minimum": sizing.shipped.minimum_world_size,
            "layout": sizing.shipped.render(),
            "seq_length": pick.seq_length,
            "gpus": pick.gpus,
            "gpu": pick.gpu_type,
        }
        if pick.gpus is not None:
            found.append(Statement(code="summary.shipped-needs", facts=needs))
    home = sizing.shipped_memory
    if home is not None and home.verdict.value == "OOM" and pick.gpus is not None and pick.kind is RecipeKind.LIBRARY:
        oom = {"gpus": pick.gpus, "gpu": gpu.name, "peak": home.peak_bytes, "capacity": home.capacity_bytes}
        found.append(Statement(code="summary.shipped-oom", facts=oom, evidence=home.evidence))
    if sizing.verdict is Verdict.DOES_NOT_FIT and question.mode is Mode.SFT:
        smaller = [item for item in runners_up if item.mode is Mode.PEFT and item.kind is RecipeKind.LIBRARY]
        if smaller:
            found.append(Statement(code="summary.peft-instead", facts={"name": smaller[0].name, "gpus": smaller[0].minimum_gpus}))
    return tuple(found)


def _describe(candidate: LayoutCandidate) -> str:
    recompute = candidate.recompute.render()
    return candidate.layout.render() + (f", recompute={recompute}" if recompute != "none" else "")


def _memory(sizing: Sizing) -> list[Statement]:
    fit = sizing.memory
    if fit is None:
        return [] if sizing.verdict is Verdict.DOES_NOT_FIT else [Statement(code="summary.memory-unknown")]
    code = {"FITS": "fits", "AT RISK": "at-risk", "OOM": "oom"}[fit.verdict.value]
    facts = {
        "peak": fit.peak_bytes,
        "low": fit.device_bytes[0],
        "high": fit.device_bytes[1],
        "capacity": fit.capacity_bytes,
        "source": fit.capacity_fact,
        "evidence": fit.evidence.value,
    }
    return [Statement(code=f"summary.memory.{code}", facts=facts, evidence=fit.evidence)]
