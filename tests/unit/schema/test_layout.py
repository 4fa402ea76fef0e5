import pytest
from hypothesis import given
from hypothesis import strategies as st

from autorecipe.schema import Layout

sizes = st.sampled_from([1, 2, 3, 4, 6, 8])


@given(sizes, sizes, sizes, sizes, sizes)
def test_minimum_world_is_the_smallest_that_fits(tp, pp, cp, ep, etp):
    layout = Layout(tp=tp, pp=pp, cp=cp, ep=ep, etp=etp)
    smallest = next(world for world in range(1, 100_000) if layout.fits_world(world))
    assert layout.minimum_world_size == smallest


@given(sizes, sizes, sizes, sizes, sizes, st.integers(1, 4))
def test_axes_multiply_to_the_world(tp, pp, cp, ep, etp, times):
    layout = Layout(tp=tp, pp=pp, cp=cp, ep=ep, etp=etp)
    world = layout.minimum_world_size * times
    assert tp * pp * cp * layout.data_parallel_size(world) == world
    assert pp * ep * etp * layout.expert_data_parallel_size(world) == world


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (Layout(), "TP1 PP1 CP1"),
        (Layout(tp=2, pp=4, vp=2, ep=8, sequence_parallel=True), "TP2 PP4 VP2 CP1 EP8 ETP1 SP"),
    ],
)
def test_render(layout, text):
    assert layout.render() == text
