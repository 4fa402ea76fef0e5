"""Packed rows: boundaries are asked of the host, and rotated in one piece as Megatron-Core rotates them one by one."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from autorecipe.engine import compat

HOST = [0, 5, 12, 16]
POSITIONS = torch.tensor([*range(5), *range(7), *range(4)])


@pytest.fixture(scope="module", autouse=True)
def _core() -> None:
    compat.prepare()


def describe() -> Any:
    from autorecipe.engine.modules.packing import describe_packs

    return describe_packs(torch.tensor(HOST, dtype=torch.int32), HOST, POSITIONS)


def test_boundaries_come_from_the_host_where_it_knows_them() -> None:
    from autorecipe.engine.modules.packing import read_boundaries

    packed = describe()
    assert (packed.max_seqlen_q, packed.max_seqlen_kv, packed.qkv_format) == (7, 7, "thd")
    assert read_boundaries(packed) is HOST
    assert read_boundaries(SimpleNamespace(cu_seqlens_q=torch.tensor([0, 3]))) == [0, 3]


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotation_by_position_is_rotation_sequence_by_sequence(interleaved: bool) -> None:
    from megatron.core.models.common.embeddings.rope_utils import _apply_rotary_pos_emb_thd
    from megatron.core.transformer import attention

    packed = describe()
    generator = torch.Generator().manual_seed(0)
    queries, freqs = torch.randn(16, 3, 8, generator=generator), torch.randn(7, 1, 1, 8, generator=generator)
    config = SimpleNamespace(rotary_interleaved=interleaved, multi_latent_attention=False, apply_rope_fusion=False)
    alone = SimpleNamespace(size=lambda: 1, rank=lambda: 0)
    expected = _apply_rotary_pos_emb_thd(
        queries, torch.tensor(HOST, dtype=torch.int32), freqs, rotary_interleaved=interleaved, cp_group=alone
    )
    found = attention.apply_rotary_pos_emb(queries, freqs, config, cu_seqlens=packed.cu_seqlens_q, cp_group=alone)
    assert torch.equal(found, expected)
