import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autorecipe.api.plan import PlanQuestion, explain_layout, parse_layout, plan_curve, plan_run, prepare_request
from autorecipe.catalog.hardware import load_gpus
from autorecipe.config.overrides import parse_overrides
from autorecipe.errors import UsageError
from autorecipe.estimate.pipeline_layout import parse_pipeline_layout
from autorecipe.plan.coster import Coster
from autorecipe.plan.search import search
from autorecipe.plan.settings import candidate_overrides, render_override
from autorecipe.plan.space import Space, find_refusal, recompute_options
from autorecipe.plan.splits import choose_split, head_layers, render_pipeline_layout
from autorecipe.record import replace
from autorecipe.schema import Batch, Cluster, ModelShape, Severity
from autorecipe.schema.estimate import ExecutionPolicy, StageSplit, Verdict
from autorecipe.schema.layout import Layout
from autorecipe.schema.plan import Candidate, PlanRequest, Scaling

DENSE = PlanQuestion(recipe="llama3_8b_pretrain_config", num_gpus=8, gpu="h100", max_micro_batch_size=2)
MOE = PlanQuestion(recipe="qwen3_30b_a3b_pretrain_config", num_gpus=16, gpu="h100", max_micro_batch_size=2)


def brute_force(request, sizes=(1, 2)):
    """Every combination of axis values, each judged on its own: (candidates that fit, candidates that may fit)."""
    shape, world = request.shape, request.cluster.num_gpus
    coster, space = Coster(request), Space(request)
    head = round(head_layers(shape, request.batch.seq_length), 2)
    divisors = [size for size in range(1, world + 1) if world % size == 0]
    experts = [size for size in range(1, (shape.num_moe_experts or 1) + 1) if (shape.num_moe_experts or 1) % size == 0]
    fits, may_fit = [], []
    for tp, pp, cp, vp, ep in itertools.product(divisors, divisors, divisors, range(1, 17), experts):
        if tp * pp * cp > world or pp > shape.num_layers or (pp == 1 and vp > 1):
            continue
        if cp & (cp - 1) or shape.num_attention_heads % tp:
            continue
        split = choose_split(shape.num_layers, pp, vp, shape.mtp_num_layers, head)
        if split is None:
            continue
        for etp in {1, tp} if shape.is_moe else {1}:
            if (shape.moe_ffn_hidden_size or 0) % etp:
                continue
            layout = Layout(tp=tp, pp=pp, vp=vp, cp=cp, ep=ep, etp=etp, sequence_parallel=tp > 1)
            for size in sizes:
                for recompute in recompute_options(shape, request.policy):
                    candidate = Candidate(layout=layout, micro_batch_size=size, recompute=recompute, split=split)
                    if find_refusal(request, candidate, space):
                        break
                    scored = coster.score(candidate)
                    if scored.verdict is Verdict.FITS:
                        fits.append(scored)
                        break
                    if scored.verdict is Verdict.AT_RISK:
                        may_fit.append(scored)
    return fits, may_fit


@pytest.mark.parametrize("question", [DENSE, MOE], ids=["dense", "moe"])
def test_search_finds_what_brute_force_finds(question):
    request, _ = prepare_request(question)
    found = search(request)
    fits, may_fit = brute_force(replace(request, layout=None))
    assert found.fitting[0].seconds == pytest.approx(min(scored.seconds for scored in fits), rel=1e-9)
    assert (found.count.fitting, found.count.at_risk) == (len(fits), len(may_fit))


@st.composite
def small_requests(draw):
    """Small models on few GPUs with little memory, so that some layouts fit and some do not."""
    is_moe = draw(st.booleans())
    layers = draw(st.integers(2, 7))
    shape = ModelShape(
        num_layers=layers,
        hidden_size=512,
        ffn_hidden_size=draw(st.sampled_from([1024, 1536])),
        num_attention_heads=8,
        num_query_groups=draw(st.sampled_from([2, 4, 8])),
        kv_channels=64,
        vocab_size=draw(st.sampled_from([1024, 64000])),
        seq_length=1024,
        num_moe_experts=draw(st.sampled_from([4, 6, 8])) if is_moe else None,
        moe_router_topk=2 if is_moe else None,
        moe_ffn_hidden_size=draw(st.sampled_from([256, 384])) if is_moe else None,
        moe_layer_pattern=(False, *(True,) * (layers - 1)) if is_moe else (),
        mtp_num_layers=draw(st.integers(0, 1)) if is_moe else 0,
    )
    gpu = replace(load_gpus()["h100"], memory_bytes=draw(st.integers(1_500, 6_000)) * 10**6, gpus_per_node=4)
    world = draw(st.sampled_from([4, 6, 8]))
    return PlanRequest(
        shape=shape,
        batch=Batch(global_batch_size=draw(st.sampled_from([8, 24])), micro_batch_size=1, seq_length=8192),
        policy=ExecutionPolicy(cross_entropy=draw(st.sampled_from(["unfused", "te"]))),
        cluster=Cluster(gpu=gpu, num_gpus=world, gpus_per_node=4),
        max_micro_batch_size=4,
    )


@settings(max_examples=12, deadline=None)
@given(request=small_requests())
def test_search_equals_brute_force_on_small_spaces(request):
    found = search(request, keep=10_000)
    sizes = [size for size in (1, 2, 3, 4) if request.batch.global_batch_size % size == 0]
    fits, may_fit = brute_force(request, sizes)
    assert sorted(scored.seconds for scored in found.fitting) == pytest.approx(sorted(scored.seconds for scored in fits))
    assert sorted(scored.peak for scored in found.at_risk) == pytest.approx(sorted(scored.peak for scored in may_fit))
    front = {(scored.seconds, scored.peak) for scored in found.pareto}
    for scored in fits:
        beaten = [one for one in fits if one.seconds <= scored.seconds and one.peak <= scored.peak]
        is_best = all((one.seconds, one.peak) == (scored.seconds, scored.peak) for one in beaten)
        assert ((scored.seconds, scored.peak) in front) == is_best
    coster = Coster(request)
    lightest = coster.time_model(recompute_options(request.shape, request.policy)[0], fsdp=False)
    for scored in fits + may_fit:
        layout, tokens = scored.candidate.layout, coster.tokens(scored.candidate.layout, scored.candidate.micro_batch_size)
        assert lightest.bound_of(layout, scored.num_microbatches, coster.world, tokens) <= scored.seconds
    few = search(request, keep=2)
    assert [scored.seconds for scored in few.fitting] == [scored.seconds for scored in found.fitting[:2]]
    assert [scored.seconds for scored in few.at_risk] == [scored.seconds for scored in found.at_risk[:2]]
    assert few.pareto == found.pareto


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


@pytest.mark.parametrize("recipe", ["qwen3_30b_a3b_sft_config", "llama3_70b_peft_config"])
def test_a_missing_checkpoint_is_noted_and_drops_no_layout(recipe):
    plan = plan_run(PlanQuestion(recipe=recipe, num_gpus=16, gpu="h100", max_micro_batch_size=1), top=1)
    assert plan.choices
    assert any("checkpoint.pretrained_checkpoint" in note for note in plan.notes)


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


def test_sizes_below_one_are_all_named():
    with pytest.raises(UsageError) as caught:
        plan_run(replace(DENSE, max_micro_batch_size=0, seq_length=0, gpus_per_node=-1))
    assert [problem.path for problem in caught.value.problems] == ["--gpus-per-node", "--seq-length", "--max-micro-batch-size"]
    with pytest.raises(UsageError, match="at least 1"):
        plan_run(DENSE, top=0)


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
    assert parse_pipeline_layout(text).layers == split.explicit


def test_output_layer_and_prediction_depths_lighten_the_last_stage():
    # A 671B mixture of experts: output layer, one prediction depth and its output layer weigh as much as 3.6 layers.
    split = choose_split(61, 16, 1, 1, 3.6)
    assert split.explicit[-1] <= 1
    assert max(split.explicit[:-1]) == 4
    assert split.mtp_chunk == 15
    assert render_pipeline_layout(split, mtp_layers=1).endswith("mL")
    # A head of a tenth of a layer is no reason to leave the even split.
    assert choose_split(32, 4, 2, 0, 0.1) == StageSplit()


@settings(max_examples=200, deadline=None)
@given(
    layers=st.integers(2, 100),
    pp=st.sampled_from([2, 3, 4, 8, 16]),
    vp=st.sampled_from([1, 2, 3, 4, 8]),
    head=st.floats(0, 6),
)
def test_no_split_makes_the_slowest_stage_slower_than_an_even_one(layers, pp, vp, head):
    split = choose_split(layers, pp, vp, 0, head)
    if split is None or not split.explicit:
        return
    stages = [sum(split.explicit[stage::pp]) for stage in range(pp)]
    assert sum(stages) == layers
    slowest = max(*stages[:-1], stages[-1] + head)
    assert slowest <= max(-(-layers // pp), layers // pp + head) + 1e-9


def test_the_recipes_own_split_of_layers_is_no_change():
    counts_embedding = PlanQuestion(recipe="qwen3_235b_a22b_pretrain_config", num_gpus=256, gpu="h100")
    in_writing = PlanQuestion(recipe="deepseek_v3_pretrain_config", num_gpus=1024, gpu="h100")
    for question in (counts_embedding, in_writing):
        request, base = prepare_request(question)
        own = Candidate(
            layout=request.layout,
            micro_batch_size=request.batch.micro_batch_size,
            recompute=request.policy.recompute,
            split=request.policy.split,
        )
        assert own.split != StageSplit()
        assert candidate_overrides(own, request.shape, base) == {}
        even = candidate_overrides(replace(own, split=StageSplit()), request.shape, base)
        assert set(even) & {"model.pipeline_model_parallel_layout", "model.account_for_embedding_in_pipeline_split"}


def test_only_wanted_layouts_and_recomputation_are_costed():
    request, _ = prepare_request(DENSE)
    full = recompute_options(request.shape, request.policy)[-1]
    found = search(request, admit=lambda cell: cell.layout.tp == 2, recompute=(full,))
    assert found.fitting
    assert {item.candidate.layout.tp for item in found.fitting} == {2}
    assert {item.candidate.recompute for item in found.fitting} == {full}


def test_layers_stay_even_where_they_divide_and_that_is_asked_for():
    request, _ = prepare_request(DENSE)
    assert Space(request).splits(4, 1)[0].explicit  # the output layer weighs as much as some decoder layers
    assert Space(replace(request, even_stages=True)).splits(4, 1) == (StageSplit(),)
    assert Space(replace(request, even_stages=True)).splits(3, 1)[0].explicit
