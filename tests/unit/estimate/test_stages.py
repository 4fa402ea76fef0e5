import pytest

from autorecipe.estimate.pipeline_layout import parse_pipeline_layout
from autorecipe.estimate.stages import chunk_sizes, in_flight
from autorecipe.schema.estimate import StageSplit


def test_embedding_and_loss_can_count_as_layers():
    assert chunk_sizes(126, 8, 4, StageSplit(embedding_counts=True, loss_counts=True)) == (3, *(4,) * 30, 3)


def test_first_and_last_stage_sizes_are_kept_and_the_rest_is_even():
    assert chunk_sizes(61, 4, 1, StageSplit(first=16, last=13)) == (16, 16, 16, 13)


def test_one_forward_one_backward_holds_fewer_micro_batches_on_later_stages():
    assert [in_flight(4, 1, stage, 32) for stage in range(4)] == [(4,), (3,), (2,), (1,)]
    assert in_flight(4, 1, 0, 2) == (2,)


def test_interleaving_holds_more_of_the_first_chunks():
    assert in_flight(4, 2, 0, 32) == (7, 4)
    assert in_flight(4, 2, 3, 32) == (4, 1)


@pytest.mark.parametrize(
    ("text", "layers", "mtp"),
    [("Et|t*2|(tt|)*2L", (1, 2, 2, 2, 0), None), ("Et*3|(tt|)*2m|L", (3, 2, 2, 0, 0), 3), ("Ettt|tttL", (3, 3), None)],
)
def test_pipeline_layouts_are_read(text, layers, mtp):
    parsed = parse_pipeline_layout(text)
    assert parsed is not None
    assert (parsed.layers, parsed.mtp_chunk) == (layers, mtp)


def test_a_layout_that_cannot_be_read_is_none():
    assert parse_pipeline_layout("E?t") is None
    assert parse_pipeline_layout(3) is None
