"""The resizing rules with the numbers of one case, as statements.

Sources: design rules of Megatron Bridge's recipe recommender; Megatron-LM megatron/core/parallel_state.py for the meshes.
Leaves out: whether a configuration breaks a rule (see `autorecipe.rules`).
"""

from __future__ import annotations

from autorecipe.recommend.habits import CP_ABOVE_TOKENS, valid_ep, valid_tp
from autorecipe.recommend.sizing import Sizer
from autorecipe.schema.evidence import Evidence
from autorecipe.schema.hardware import Cluster
from autorecipe.schema.model import ModelShape
from autorecipe.schema.recommendation import Sizing, Statement

ENFORCED = Evidence.ENFORCED_UPSTREAM


def state_rules(sizer: Sizer, sizing: Sizing, cluster: Cluster) -> tuple[Statement, ...]:
    """Return the rules that apply to a sized recipe, in the order in which they are decided."""
    shape = sizer.inputs.shape if sizer.inputs else None
    found = [sizing.reason] if sizing.reason else []
    found += [*_tensor(shape, sizing, cluster), *_pipeline(sizing), *_experts(shape, sizing), *_context(sizer, sizing)]
    found += _world(sizing, is_moe=shape is not None and shape.is_moe)
    found += _batch(sizer, sizing)
    return tuple(found)


def _tensor(shape: ModelShape | None, sizing: Sizing, cluster: Cluster) -> list[Statement]:
    found = []
    layout = sizing.layout
    if shape is not None:
        legal = valid_tp(shape, limit=max(8, cluster.nvlink_reach, layout.tp))
        facts = {"groups": shape.num_query_groups, "valid": list(legal), "tp": layout.tp}
        code = "rule.tp" if shape.num_query_groups % layout.tp == 0 else "rule.tp-replicated"
        found.append(Statement(code=code, facts=facts, evidence=ENFORCED))
    limit = cluster.nvlink_reach
    code = "rule.tp-domain" if cluster.gpu.has_rack_scale_nvlink else "rule.tp-node"
    facts = {"limit": limit, "tp": layout.tp, "gpu": cluster.gpu.name, "per_node": cluster.gpus_per_node}
    found.append(Statement(code=code, facts=facts, evidence=Evidence.PUBLISHED))
    if layout.tp > 1:
        code = "rule.sp-on" if layout.sequence_parallel else "rule.sp-off"
        found.append(Statement(code=code, facts={"tp": layout.tp}, evidence=Evidence.PUBLISHED))
    else:
        found.append(Statement(code="rule.sp-none", evidence=Evidence.PUBLISHED))
    return found


def _pipeline(sizing: Sizing) -> list[Statement]:
    layout = sizing.layout
    if layout.pp == 1:
        return [Statement(code="rule.pp-none", evidence=Evidence.PUBLISHED)]
    microbatches = sizing.num_microbatches
    facts: dict[str, object] = {"pp": layout.pp, "vp": layout.vp, "microbatches": microbatches}
    if microbatches:
        facts["bubble"] = round(100 * (layout.pp - 1) / (layout.vp * microbatches), 1)
        return [Statement(code="rule.pp-bubble", facts=facts, evidence=Evidence.DERIVED)]
    return [Statement(code="rule.pp", facts=facts, evidence=Evidence.PUBLISHED)]


def _experts(shape: ModelShape | None, sizing: Sizing) -> list[Statement]:
    if shape is None or not shape.is_moe:
        return []
    layout, experts = sizing.layout, shape.num_moe_experts or 1
    legal = [ep for ep in valid_ep(shape, sizing.num_gpus or experts) if ep & (ep - 1) == 0]
    facts = {"experts": experts, "ep": layout.ep, "each": experts // layout.ep, "valid": legal, "tp": layout.tp}
    return [Statement(code="rule.ep", facts=facts, evidence=ENFORCED)]


def _context(sizer: Sizer, sizing: Sizing) -> list[Statement]:
    layout, tokens = sizing.layout, sizing.seq_length
    if tokens is None:
        return []
    comm = sizer.config.get("model.cp_comm_type", None)
    facts = {"tokens": tokens, "cp": layout.cp, "each": tokens // layout.cp, "comm": comm or "p2p", "limit": CP_ABOVE_TOKENS}
    if layout.cp > 1:
        return [Statement(code="rule.cp", facts=facts, evidence=Evidence.PUBLISHED)]
    code = "rule.cp-missing" if tokens > CP_ABOVE_TOKENS else "rule.cp-none"
    return [Statement(code=code, facts=facts, evidence=Evidence.PUBLISHED)]


def _world(sizing: Sizing, *, is_moe: bool) -> list[Statement]:
    layout, world = sizing.layout, sizing.num_gpus
    facts: dict[str, object] = {
        "pp": layout.pp,
        "tp": layout.tp,
        "cp": layout.cp,
        "ep": layout.ep,
        "etp": layout.etp,
        "minimum": layout.minimum_world_size,
        "world": world,
    }
    found = [Statement(code="rule.world-moe" if is_moe else "rule.world", facts=facts, evidence=ENFORCED)]
    if world is None or not layout.fits_world(world):
        return found
    dense = facts | {"dp": layout.data_parallel_size(world)}
    found.append(Statement(code="rule.dp", facts=dense, evidence=ENFORCED))
    if is_moe:
        expert = facts | {"edp": layout.expert_data_parallel_size(world)}
        found.append(Statement(code="rule.edp", facts=expert, evidence=ENFORCED))
    return found


def _batch(sizer: Sizer, sizing: Sizing) -> list[Statement]:
    batch = sizer.batch
    if batch is None or sizing.num_microbatches is None:
        return []
    facts = {
        "gbs": batch.global_batch_size,
        "mbs": sizing.micro_batch_size,
        "dp": sizing.data_parallel_size,
        "accumulation": sizing.num_microbatches,
        "tokens": batch.global_batch_size * batch.seq_length,
    }
    return [Statement(code="rule.batch", facts=facts, evidence=ENFORCED)]
