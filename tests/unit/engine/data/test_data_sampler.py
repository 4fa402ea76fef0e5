import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autorecipe.engine.data.sampler import EndlessSampler, SequentialSampler, ShuffledSampler
from autorecipe.errors import UsageError


@given(micro=st.integers(1, 4), ranks=st.integers(1, 4), blocks=st.integers(1, 6), rest=st.integers(0, 3), done=st.integers(0, 5))
def test_ranks_together_read_every_sample_once_in_order(micro: int, ranks: int, blocks: int, rest: int, done: int) -> None:
    block = micro * ranks
    total, consumed = blocks * block + min(rest, block - 1), min(done, blocks - 1) * block
    per_rank = [
        list(
            SequentialSampler(
                total_samples=total,
                consumed_samples=consumed,
                micro_batch_size=micro,
                data_parallel_rank=rank,
                data_parallel_size=ranks,
            )
        )
        for rank in range(ranks)
    ]
    merged = [index for step in zip(*per_rank, strict=True) for batch in step for index in batch]
    assert merged == list(range(consumed, blocks * block))


@given(micro=st.integers(1, 3), ranks=st.integers(1, 3), total=st.integers(9, 40), sharding=st.booleans())
def test_one_epoch_reads_each_sample_at_most_once_on_equally_many_batches(
    micro: int, ranks: int, total: int, sharding: bool
) -> None:
    epochs = [
        list(
            ShuffledSampler(
                total_samples=total,
                consumed_samples=0,
                micro_batch_size=micro,
                data_parallel_rank=rank,
                data_parallel_size=ranks,
                data_sharding=sharding,
            )
        )
        for rank in range(ranks)
    ]
    seen = [index for epoch in epochs for batch in epoch for index in batch]
    assert len(seen) == len(set(seen))
    assert {len(epoch) for epoch in epochs} == {total // (micro * ranks)}


@given(micro=st.integers(1, 3), ranks=st.integers(1, 2), sharding=st.booleans(), steps=st.integers(0, 25))
def test_a_resumed_stream_goes_on_where_it_stopped_across_epochs(micro: int, ranks: int, sharding: bool, steps: int) -> None:
    def stream(consumed: int) -> EndlessSampler:
        return EndlessSampler(
            epochs=ShuffledSampler(
                total_samples=14,
                consumed_samples=consumed,
                micro_batch_size=micro,
                data_parallel_rank=ranks - 1,
                data_parallel_size=ranks,
                data_sharding=sharding,
            )
        )

    whole = list(itertools.islice(stream(0), 40))
    resumed = list(itertools.islice(stream(steps * micro * ranks), 40 - steps))
    assert whole[steps:] == resumed


def test_exhausted_data_says_what_to_do() -> None:
    with pytest.raises(UsageError, match="none is left"):
        SequentialSampler(total_samples=8, consumed_samples=8, micro_batch_size=1, data_parallel_rank=0, data_parallel_size=1)
