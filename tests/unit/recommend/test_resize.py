"""The planner's search as recommend uses it."""

import pytest

from autorecipe.api.plan import PlanQuestion, prepare_request
from autorecipe.catalog.hardware import load_gpus
from autorecipe.estimate.time import TimeModel
from autorecipe.plan.search import search
from autorecipe.plan.space import find_refusal
from autorecipe.recommend.habits import Habits, valid_ep, valid_tp
from autorecipe.recommend.resize import NO_DIFFERENCE, NotResized, recompute_choices, resize_recipe
from autorecipe.record import replace
from autorecipe.schema.estimate import Recompute, Verdict
from autorecipe.schema.hardware import Cluster
from autorecipe.schema.layout import Layout
from autorecipe.schema.plan import Candidate


def request_of(recipe, gpus, gpu="h100", **options):
    return prepare_request(PlanQuestion(recipe=recipe, num_gpus=gpus, gpu=gpu, **options))[0]


def habits_of(request, tokens_per_rank=8192):
    return Habits(shipped=request.layout, seq_length=request.batch.seq_length, tokens_per_rank=tokens_per_rank)


@pytest.mark.parametrize(
    ("recipe", "gpus", "tokens_per_rank"),
    [
        ("llama3_8b_16k_pretrain_config", 4, 8192),
        ("deepseek_v3_pretrain_config", 256, 8192),
        ("llama3_70b_pretrain_config", 64, 8192),
        ("qwen3_30b_a3b_pretrain_config", 24, 8192),
    ],
)
def test_what_is_chosen_is_legal_fits_and_is_as_fast_as_what_a_colleague_would_take(recipe, gpus, tokens_per_rank):
    request = request_of(recipe, gpus)
    found = resize_recipe(request, habits_of(request, tokens_per_rank))
    candidate = found.candidate
    assert find_refusal(request, candidate) == ""
    assert candidate.micro_batch_size <= request.batch.micro_batch_size
    assert habits_of(request, tokens_per_rank).likes_context(candidate.layout.cp)
    assert found.reason.code in ("rule.search-fastest", "rule.search-near", "rule.search-only", "rule.search-lean")
    assert found.reason.facts["layout"].startswith(candidate.layout.render())


def test_of_equally_fast_layouts_the_one_nearest_to_the_recipe_is_taken(monkeypatch):
    request = request_of("llama3_8b_pretrain_config", 8)
    seconds = {1: 10.0, 2: 10.2, 4: 10.4, 8: 12.0}
    monkeypatch.setattr(TimeModel, "seconds_of", lambda self, layout, *rest: seconds[layout.tp] + 0.001 * layout.pp)
    # On 8 H100 an 8B model needs TP x PP x CP of at least 1, so each TP has a layout that fits.
    for shipped, chosen in ((Layout(), 1), (Layout(tp=2, sequence_parallel=True), 2), (Layout(tp=4, sequence_parallel=True), 4)):
        asked = replace(request, layout=shipped)
        found = resize_recipe(asked, habits_of(asked))
        assert (found.verdict, found.candidate.layout.tp) == (Verdict.FITS, chosen)
    far = replace(request, layout=Layout(tp=8, sequence_parallel=True))
    found = resize_recipe(far, habits_of(far))
    assert found.candidate.layout.tp == 4  # TP=8 is nearer and 20% slower
    assert found.reason.code == "rule.search-near"
    assert found.reason.facts["slower"] <= 100 * (NO_DIFFERENCE - 1)


def test_where_none_is_sure_to_fit_the_leanest_is_taken():
    request = request_of("llama3_70b_sft_config", 16)
    found = resize_recipe(request, habits_of(request))
    assert (found.verdict, found.reason.code) == (Verdict.AT_RISK, "rule.search-lean")
    least = min(item.peak for item in search(request, keep=10**6).at_risk)
    fits = [item for item in search(request).at_risk if item.candidate.layout == found.candidate.layout]
    assert min(item.peak for item in fits) <= 1.5 * least


def test_what_cannot_fit_is_not_made_to():
    request = request_of("llama31_405b_pretrain_config", 8)
    assert resize_recipe(request, habits_of(request)) is NotResized.TOO_BIG


def test_what_the_full_rules_refuse_is_not_taken():
    request = request_of("llama3_8b_16k_pretrain_config", 4)
    first = resize_recipe(request, habits_of(request))
    asked = []

    def objects(candidate):
        asked.append(candidate)
        return candidate.layout == first.candidate.layout

    second = resize_recipe(request, habits_of(request), objects=objects)
    assert second.candidate.layout != first.candidate.layout
    assert find_refusal(request, second.candidate) == ""
    assert len(asked) == len(set(map(Candidate.render, asked)))  # each is checked once
    assert resize_recipe(request, habits_of(request), objects=lambda candidate: True) is NotResized.REFUSED


def test_a_recipe_that_recomputes_goes_on_recomputing():
    request = request_of("llama3_8b_pretrain_config", 8)
    assert recompute_choices(request)[0] == Recompute()
    full = Recompute(granularity="full", method="uniform", num_layers=1)
    keeps = replace(request, policy=replace(request.policy, recompute=full))
    assert recompute_choices(keeps) == (full,)
    own = Recompute(granularity="selective", modules=frozenset({"core_attn"}))
    some = replace(request, policy=replace(request.policy, recompute=own))
    assert recompute_choices(some) == (own, full)


def test_context_parallelism_is_for_long_sequences():
    short, long = (Habits(shipped=Layout(), seq_length=tokens, tokens_per_rank=8192) for tokens in (8192, 32768))
    assert [cp for cp in (1, 2, 4, 8) if short.likes_context(cp)] == [1]
    assert [cp for cp in (1, 2, 4, 8) if long.likes_context(cp)] == [4, 8]
    own = Habits(shipped=Layout(cp=2), seq_length=8192, tokens_per_rank=8192)
    assert [cp for cp in (1, 2, 4) if own.likes_context(cp)] == [1, 2]


def test_tensor_parallelism_stays_in_the_host_and_within_the_kv_groups():
    shape = request_of("llama3_8b_pretrain_config", 8).shape
    assert valid_tp(shape, limit=16) == (1, 2, 4, 8)
    assert valid_tp(shape, limit=2) == (1, 2)
    rack = Cluster(gpu=load_gpus()["gb200"], num_gpus=64, gpus_per_node=4)
    assert rack.nvlink_reach == 72
    assert Cluster(gpu=load_gpus()["h100"], num_gpus=64, gpus_per_node=8).nvlink_reach == 8
    habits = Habits(shipped=Layout(), seq_length=8192, tokens_per_rank=8192)
    assert habits.tensor_parallel_limit(shape, rack, strictly=True) == 8
    assert habits.tensor_parallel_limit(shape, rack, strictly=False) == 72


def test_expert_parallelism_divides_the_experts():
    shape = request_of("qwen3_30b_a3b_pretrain_config", 16).shape
    assert valid_ep(shape, 24) == (1, 2, 4, 8, 16)
