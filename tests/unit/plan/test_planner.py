import itertools
import math

import pytest

from autorecipe.api.plan import PlanQuestion, explain_layout, parse_layout, plan_curve, plan_run, prepare_request
from autorecipe.config.overrides import parse_overrides
from autorecipe.errors import UsageError
from autorecipe.plan.explain import find_refusal, score
from autorecipe.plan.search import Coster, pareto_front, search
from autorecipe.plan.settings import render_override
from autorecipe.plan.space import recompute_options
from autorecipe.plan.splits import choose_split, render_pipeline_layout
from autorecipe.schema import Severity
from autorecipe.schema.estimate import Verdict
from autorecipe.schema.layout import Layout
from autorecipe.schema.plan import Candidate, Scaling

DENSE = PlanQuestion(recipe="llama3_8b_pretrain_config", num_gpus=8, gpu="h100", max_micro_batch_size=2)
MOE = PlanQuestion(recipe="qwen3_30b_a3b_pretrain_config", num_gpus=16, gpu="h100", max_micro_batch_size=2)


def brute_force(request):
    """Every combination of axis values, each judged on its own by the slow path."""
    shape, world = request.shape, request.cluster.num_gpus
    coster = Coster(request)
    best = math.inf
    powers = [2**power for power in range(int(math.log2(world)) + 1)]
    experts = [size for size in range(1, (shape.num_moe_experts or 1) + 1) if (shape.num_moe_experts or 1) % size == 0]
    for tp, pp, cp, vp, ep in itertools.product(powers, powers, powers, range(1, 17), experts):
        if tp * pp * cp > world or (pp == 1 and vp > 1) or (tp > request.cluster.gpus_per_node):
            continue
        split = choose_split(shape.num_layers, pp, vp, shape.mtp_num_layers)
        if split is None:
            continue
        for etp in {1, tp} if shape.is_moe else {1}:
            layout = Layout(tp=tp, pp=pp, vp=vp, cp=cp, ep=ep, etp=etp, sequence_parallel=tp > 1)
            for mbs in (1, 2):
                for recompute in recompute_options(shape, request.policy):
                    candidate = Candidate(layout=layout, micro_batch_size=mbs, recompute=recompute, split=split)
                    if find_refusal(request, candidate):
                        continue
                    scored = score(request, candidate, coster)
                    if scored.verdict is Verdict.FITS:
                        best = min(best, scored.seconds)
    return best


@pytest.mark.parametrize("question", [DENSE, MOE], ids=["dense", "moe"])
def test_search_finds_what_brute_force_finds(question):
    request, _ = prepare_request(question)
    assert search(request).fitting[0].seconds == pytest.approx(brute_force(request), rel=1e-9)


@pytest.mark.parametrize("question", [DENSE, MOE], ids=["dense", "moe"])
def test_choices_pass_the_rules_and_keep_convergence(question):
    plan = plan_run(question, top=3)
    assert len(plan.choices) == 3
    for choice in plan.choices:
        assert not [finding for finding in choice.findings if finding.severity is Severity.ERROR]
        assert set(choice.layers.values()) <= {"execution", "fingerprint"}
        layout = choice.candidate.layout
        assert layout.fits_world(question.num_gpus)
        accumulated = choice.num_microbatches * choice.data_parallel_size * choice.candidate.micro_batch_size
        assert accumulated == plan.request.batch.global_batch_size
    seconds = [choice.step_seconds for choice in plan.choices]
    assert seconds == sorted(seconds)


def test_overrides_are_legal_in_the_grammar():
    from autorecipe.catalog.store import open_catalog

    plan = plan_run(PlanQuestion(recipe="deepseek_v3_pretrain_config", num_gpus=256, gpu="h100", max_micro_batch_size=1), top=1)
    choice = plan.choices[0] if plan.choices else plan.nearest
    texts = [render_override(path, value) for path, value in choice.overrides.items()]
    parsed = parse_overrides(texts, open_catalog().schema())
    assert [item.path for item in parsed] == list(choice.overrides)


def test_pareto_front_is_not_beaten():
    request, _ = prepare_request(DENSE)
    fitting = search(request).fitting
    front = pareto_front(fitting)
    for item in front:
        assert not [other for other in fitting if other.seconds < item.seconds and other.peak < item.peak]


def test_nothing_fits_says_what_would():
    question = PlanQuestion(recipe="llama3_70b_pretrain_config", num_gpus=8, gpu="h100", max_micro_batch_size=1)
    plan = plan_run(question, top=1)
    assert not plan.choices
    assert plan.nearest is not None
    counts = [way.overrides["gpus"] for way in plan.ways_out if "gpus" in way.overrides]
    assert len(counts) == 1
    bigger = PlanQuestion(recipe=question.recipe, num_gpus=counts[0], gpu="h100", max_micro_batch_size=1)
    assert plan_run(bigger, top=1).choices


def test_explain_names_the_reason():
    choice, refusal = explain_layout(MOE, "TP1 PP1 EP8 MBS1")
    assert not refusal
    assert any(line.startswith("EP=8 not 16") for line in choice.reasons)
    choice, refusal = explain_layout(MOE, "TP3")
    assert choice is None
    assert "smallest world" in refusal or "not a multiple" in refusal


def test_layout_text_names_every_bad_word():
    with pytest.raises(UsageError) as caught:
        parse_layout("TP2 PQ4 EPx")
    assert len(caught.value.problems) == 2


def test_strong_scaling_keeps_the_batch_and_weak_scaling_does_not():
    strong = plan_curve(DENSE, gpu_counts=[8, 16], scaling=Scaling.STRONG)
    weak = plan_curve(DENSE, gpu_counts=[8, 16], scaling=Scaling.WEAK)
    assert [point.global_batch_size for point in strong] == [512, 512]
    assert [point.global_batch_size for point in weak] == [512, 1024]
    assert strong[0].efficiency == 1.0


def test_unknown_gpu_and_count_are_both_named():
    with pytest.raises(UsageError) as caught:
        plan_run(PlanQuestion(recipe="llama3_8b_pretrain_config", num_gpus=0, gpu="h10"))
    assert len(caught.value.problems) == 2


def test_model_without_recipe_is_planned():
    plan = plan_run(PlanQuestion(model="Qwen/Qwen3-8B", num_gpus=8, gpu="h100", max_micro_batch_size=1), top=1)
    assert plan.choices


@pytest.mark.parametrize(("layers", "pp", "vp"), [(61, 16, 1), (61, 8, 2), (94, 16, 1), (40, 16, 1)])
def test_uneven_split_covers_every_layer(layers, pp, vp):
    split = choose_split(layers, pp, vp, 0)
    assert sum(split.explicit) == layers
    assert len(split.explicit) == pp * vp
    assert split.explicit[0] <= max(split.explicit)
    text = render_pipeline_layout(split, mtp_layers=0)
    assert text.startswith("E")
    assert text.endswith("L")
    assert text.count("|") == pp * vp - 1
