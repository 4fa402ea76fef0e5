import pytest
from hypothesis import given
from hypothesis import strategies as st

from autorecipe.launch.arithmetic import check_allocation, scale_weakly, share_allocation
from autorecipe.schema.batch import Batch
from autorecipe.schema.launch import Allocation
from autorecipe.schema.layout import Layout

axis = st.sampled_from([1, 2, 4, 8])


@given(tp=axis, pp=axis, cp=axis, ep=axis, etp=axis, nodes=st.integers(1, 16), per_node=axis)
def test_an_allocation_is_accepted_exactly_when_both_meshes_are_whole(tp, pp, cp, ep, etp, nodes, per_node):
    layout = Layout(tp=tp, pp=pp, cp=cp, ep=ep, etp=etp)
    allocation = Allocation(num_nodes=nodes, gpus_per_node=per_node)
    problems = check_allocation(layout, allocation, recipe="r")
    assert bool(problems) != layout.fits_world(nodes * per_node)


def test_more_gpus_only_add_data_parallelism():
    layout = Layout(tp=4, pp=4, vp=5, cp=2)
    batch = Batch(global_batch_size=512, micro_batch_size=1, seq_length=8192)
    assert check_allocation(layout, Allocation(num_nodes=8, gpus_per_node=8), recipe="r") == []
    shares = share_allocation(layout, batch, 64)
    assert (shares.data_parallel_size, shares.num_microbatches) == (2, 256)
    assert 80 / 4 / 5 == 4 and shares.num_microbatches % layout.pp == 0


def test_halving_the_gpus_breaks_the_expert_mesh_first():
    layout = Layout(tp=2, pp=16, ep=64)
    problems = check_allocation(layout, Allocation(num_nodes=64, gpus_per_node=8), recipe="deepseek_v3_pretrain_config")
    assert [problem.code for problem in problems] == ["launch-expert-mesh"]
    assert "PP x EP x ETP = 1024 does not divide 512" in problems[0].message


def test_both_meshes_can_take_half_of_qwen3_235b():
    shares = share_allocation(Layout(tp=4, pp=16, cp=2, ep=8), None, 128)
    assert (shares.data_parallel_size, shares.expert_data_parallel_size) == (1, 1)


@pytest.mark.parametrize(("gpus", "expected"), [(16, 1024), (32, 2048), (8, 512), (24, 1536)])
def test_a_benchmark_on_another_count_trains_on_another_global_batch(gpus, expected):
    scaled = scale_weakly(canonical_gpus=16, requested_gpus=gpus, global_batch_size=1024)
    assert scaled.effective_global_batch_size == expected


def test_a_batch_that_does_not_scale_to_a_whole_number_is_said_so():
    assert scale_weakly(canonical_gpus=16, requested_gpus=5, global_batch_size=8).effective_global_batch_size is None


def test_no_hosts_are_no_allocation():
    assert check_allocation(Layout(), Allocation(num_nodes=0, gpus_per_node=8), recipe="r")[0].code == "launch-allocation"
