from hypothesis import given, settings
from hypothesis import strategies as st

from autorecipe.estimate.memory import MemoryModel
from autorecipe.schema import Batch, Layout, ModelShape
from autorecipe.schema.estimate import ExecutionPolicy, Recompute

SHAPE = ModelShape(
    num_layers=32,
    hidden_size=2048,
    ffn_hidden_size=6144,
    num_attention_heads=32,
    num_query_groups=8,
    kv_channels=64,
    vocab_size=128256,
    seq_length=4096,
    num_moe_experts=64,
    moe_router_topk=4,
    moe_ffn_hidden_size=1024,
    moe_layer_pattern=(True,) * 32,
)
axes = st.sampled_from([1, 2, 4, 8])
layouts = st.builds(
    lambda tp, pp, vp, cp, ep: Layout(tp=tp, pp=pp, vp=vp if pp > 1 else 1, cp=cp, ep=ep, sequence_parallel=tp > 1),
    axes,
    axes,
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 4]),
    axes,
)
recomputes = st.sampled_from(
    [Recompute(), Recompute(granularity="full"), Recompute(granularity="selective", modules=frozenset({"moe_act", "core_attn"}))]
)


def peak(layout, *, mbs=1, seq=4096, world=2048, recompute=None):
    policy = ExecutionPolicy(recompute=recompute or Recompute())
    return MemoryModel(SHAPE, policy=policy).peak_bytes(
        layout, Batch(global_batch_size=8192, micro_batch_size=mbs, seq_length=seq), world
    )


@settings(max_examples=60, deadline=None)
@given(layout=layouts, recompute=recomputes)
def test_more_tokens_never_need_less_memory(layout, recompute):
    base = peak(layout, recompute=recompute)
    assert peak(layout, mbs=2, recompute=recompute) >= base
    assert peak(layout, seq=8192, recompute=recompute) >= base


@settings(max_examples=60, deadline=None)
@given(layout=layouts)
def test_more_gpus_never_need_more_memory_each(layout):
    assert peak(layout, world=4096) <= peak(layout, world=2048)


@settings(max_examples=60, deadline=None)
@given(layout=layouts)
def test_the_search_form_equals_the_breakdown(layout):
    batch = Batch(global_batch_size=8192, micro_batch_size=1, seq_length=4096)
    model = MemoryModel(SHAPE, policy=ExecutionPolicy())
    stages = model.estimate(layout=layout, batch=batch, world_size=2048)
    assert abs(model.peak_bytes(layout, batch, 2048) - max(stage.peak_bytes for stage in stages)) < 1
