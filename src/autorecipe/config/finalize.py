"""What upstream derives or corrects when it validates a configuration: model, data-parallel and evaluation settings.

Source: megatron/bridge/training/config.py (validate) and models/transformer_config.py (finalize) @ 0.6.2. Leaves out: the
schedule (see `schedule`) and every check (see the rules).
"""

from __future__ import annotations

import math

from autorecipe.config.state import Resolution, show
from autorecipe.schema.run import OriginKind

DERIVED = OriginKind.DERIVED


def set_data_parallel_size(state: Resolution) -> None:
    """Set `data_parallel_size` = world / (TP x PP x CP) where the GPU count is known and divides."""
    if state.world_size is None:
        return
    model = math.prod(state.size(f"model.{axis}_parallel_size") for axis in ("tensor_model", "pipeline_model", "context"))
    if state.world_size % model == 0:
        detail = f"{state.world_size} GPUs / {model} (TP x PP x CP)"
        state.replace("data_parallel_size", state.world_size // model, kind=DERIVED, detail=detail)


def finalize_model(state: Resolution) -> None:
    """Apply the model's own finalisation: pipeline dtype, sequence parallelism, expert tensor size, implied widths."""
    tp, ep = state.size("model.tensor_model_parallel_size"), state.size("model.expert_model_parallel_size")
    if state.size("model.pipeline_model_parallel_size") > 1 and state.get("model.pipeline_dtype") is None:
        dtype = state.get("model.params_dtype")
        if dtype is not None:
            state.replace("model.pipeline_dtype", dtype, kind=DERIVED, detail="PP > 1 takes model.params_dtype")
    if state.get("model.sequence_parallel") is True and tp == 1:
        state.overrule(
            "model.sequence_parallel",
            False,
            trap="TRAP-SP",
            kind=DERIVED,
            detail="sequence parallelism needs TP > 1",
        )
    if state.has("model.expert_tensor_parallel_size") and state.get("model.expert_tensor_parallel_size") is None:
        value, why = (1, f"unset with EP={ep}") if ep > 1 else (tp, "unset with EP=1: takes TP")
        state.replace("model.expert_tensor_parallel_size", value, kind=DERIVED, detail=why)
    _fill_widths(state)
    _fill_defaults(state)
    in_batch = state.get("dataset.enable_in_batch_packing") is True
    if in_batch and state.size("model.pipeline_model_parallel_size") > 1 and state.has("model.variable_seq_lengths"):
        detail = "in-batch packing with PP > 1"
        state.overrule("model.variable_seq_lengths", True, trap="TRAP-PACK", kind=DERIVED, detail=detail)


def _fill_widths(state: Resolution) -> None:
    hidden, heads = state.get("model.hidden_size"), state.get("model.num_attention_heads")
    if _unset(state, "model.ffn_hidden_size") and isinstance(hidden, int):
        state.replace("model.ffn_hidden_size", 4 * hidden, kind=DERIVED, detail="4 x hidden_size")
    if _unset(state, "model.kv_channels") and isinstance(hidden, int) and isinstance(heads, int) and heads > 0:
        state.replace("model.kv_channels", hidden // heads, kind=DERIVED, detail="hidden_size / num_attention_heads")
    if _unset(state, "model.num_query_groups") and isinstance(heads, int):
        state.replace("model.num_query_groups", heads, kind=DERIVED, detail="one KV head per attention head")
    if state.get("model.num_moe_experts") and _unset(state, "model.moe_ffn_hidden_size"):
        ffn = state.get("model.ffn_hidden_size")
        if isinstance(ffn, int):
            state.replace("model.moe_ffn_hidden_size", ffn, kind=DERIVED, detail="takes ffn_hidden_size")


def _fill_defaults(state: Resolution) -> None:
    """Defaults that Megatron-Core fills in for unset fields (transformer_config.py, model_parallel_config.py)."""
    pp = state.size("model.pipeline_model_parallel_size")
    if _unset(state, "model.microbatch_group_size_per_vp_stage"):
        state.replace("model.microbatch_group_size_per_vp_stage", pp, kind=DERIVED, detail="unset: takes PP")
    dtype = state.get("model.params_dtype")
    if _unset(state, "model.autocast_dtype") and dtype is not None:
        state.replace("model.autocast_dtype", dtype, kind=DERIVED, detail="unset: takes model.params_dtype")
    if _unset(state, "model.recompute_modules"):
        state.replace("model.recompute_modules", ["core_attn"], kind=DERIVED, detail="unset: core attention")
    sms = {state.get(f"model.{name}") for name in ("moe_deepep_num_sms", "moe_hybridep_num_sms")} - {None}
    if _unset(state, "model.moe_flex_dispatcher_num_sms") and len(sms) == 1:
        detail = "unset: takes the deprecated SM count of its backend"
        state.replace("model.moe_flex_dispatcher_num_sms", sms.pop(), kind=DERIVED, detail=detail)
    padding = "model.moe_router_padding_for_quantization"
    if state.get("model.moe_router_padding_for_fp8") is True and state.has(padding):
        state.replace(padding, True, kind=DERIVED, detail="model.moe_router_padding_for_fp8 (deprecated) turns it on")
    std = state.get("model.init_method_std")
    if _unset(state, "model.embedding_init_method_std") and std is not None:
        state.replace("model.embedding_init_method_std", std, kind=DERIVED, detail="unset: takes init_method_std")


def finalize_dataset(state: Resolution) -> None:
    """A pretraining dataset without any data path trains on mock data, silently."""
    paths = ("dataset.blend", "dataset.blend_per_split", "dataset.data_path")
    if not state.has("dataset.mock") or any(state.get(path) is not None for path in paths):
        return
    detail = "dataset.blend, blend_per_split and data_path are unset: mock data"
    state.replace("dataset.mock", True, kind=DERIVED, detail=detail)
    state.overrule("dataset.split", "1,1,1", trap="TRAP-MOCK", kind=DERIVED, detail=detail)


def _unset(state: Resolution, path: str) -> bool:
    return state.has(path) and state.get(path) is None


def sync_distributed_optimizer(state: Resolution) -> None:
    """Megatron FSDP switches, then the pairs of ddp and optimizer: either one on turns both on."""
    if state.get("dist.use_megatron_fsdp") is True or state.get("ddp.use_megatron_fsdp") is True:
        _apply_fsdp(state)
    for field in ("use_distributed_optimizer", "overlap_param_gather"):
        pair = [f"ddp.{field}", f"optimizer.{field}"]
        if any(state.get(path) is True for path in pair):
            on = [path for path in pair if state.get(path) is True]
            for path in pair:
                if state.has(path) and state.get(path) is not True:
                    state.overrule(
                        path,
                        True,
                        trap="TRAP-SYNC",
                        kind=DERIVED,
                        detail=f"{on[0]} is on, and either one turns both on",
                        remedy=f"set {pair[0]}=false {pair[1]}=false",
                    )


def _apply_fsdp(state: Resolution) -> None:
    detail = "Megatron FSDP needs it"
    for path in (
        "dist.use_megatron_fsdp",
        "ddp.use_megatron_fsdp",
        "ddp.use_distributed_optimizer",
        "optimizer.use_distributed_optimizer",
    ):
        if state.has(path):
            state.overrule(path, True, trap="TRAP-SYNC", kind=DERIVED, detail=detail)
    if state.get("optimizer.use_precision_aware_optimizer") is True and state.has("ddp.megatron_fsdp_use_decoupled_grad"):
        state.replace("ddp.megatron_fsdp_use_decoupled_grad", True, kind=DERIVED, detail="precision-aware optimizer with FSDP")
    symmetric = state.get("ddp.disable_symmetric_registration") is not True
    if state.get("ddp.average_in_collective") is True and symmetric:
        state.replace("ddp.average_in_collective", False, kind=DERIVED, detail="not supported with symmetric registration")
    for section in ("ddp", "optimizer"):
        path = f"{section}.reuse_grad_buf_for_mxfp8_param_ag"
        if state.get(path) is True:
            state.replace(path, False, kind=DERIVED, detail="not implemented for Megatron FSDP")
    if state.get("ddp.nccl_ub") is True and state.has("ddp.fsdp_manual_registration"):
        state.replace("ddp.fsdp_manual_registration", True, kind=DERIVED, detail="ddp.nccl_ub with FSDP")
    strategy = state.get("ddp.data_parallel_sharding_strategy")
    if strategy in (None, "no_shard"):
        state.note(
            "TRAP-FSDP", f"use_megatron_fsdp is on, but data_parallel_sharding_strategy is {show(strategy)}: nothing is sharded"
        )


def sync_runtime(state: Resolution) -> None:
    """RNG trackers, evaluation copies and batch defaults, CPU initialisation."""
    trackers = ("rng.te_rng_tracker", "model.use_te_rng_tracker")
    if any(state.get(path) is True for path in trackers):
        for path in trackers:
            if state.has(path):
                state.replace(path, True, kind=DERIVED, detail="either tracker on turns both on")
    for field in ("eval_iters", "eval_interval", "skip_train"):
        copy = state.get(f"train.{field}")
        if copy is not None and state.has(f"validation.{field}"):
            state.overrule(
                f"validation.{field}",
                copy,
                trap="TRAP-EVAL",
                kind=DERIVED,
                detail=f"train.{field}={show(copy)} (deprecated) is copied over it",
                remedy=f"set train.{field}=null",
            )
    for field in ("global_batch_size", "micro_batch_size"):
        path, size = f"validation.eval_{field}", state.get(f"train.{field}")
        if _unset(state, path) and size is not None:
            state.replace(path, size, kind=DERIVED, detail=f"takes train.{field}")
    lazy = state.get("dist.lazy_mpu_init") is True
    if lazy and state.has("model.use_cpu_initialization"):
        state.replace("model.use_cpu_initialization", True, kind=DERIVED, detail="dist.lazy_mpu_init")
    _note_seeds(state)


def _note_seeds(state: Resolution) -> None:
    seed, data_seed = state.get("rng.seed"), state.get("dataset.random_seed")
    if "rng.seed" in state.typed and "dataset.random_seed" not in state.typed and data_seed is not None and data_seed != seed:
        state.note(
            "TRAP-SEED",
            f"rng.seed={show(seed)} does not move dataset.random_seed={show(data_seed)}: the data order stays",
            remedy=f"set dataset.random_seed={show(seed)} too where the order should move",
        )


def pad_vocabulary(state: Resolution) -> None:
    """Set `derived.padded_vocab_size`: the width of the output layer, where it can be known."""
    vocab = state.get("model.vocab_size")
    multiple = state.get("model.make_vocab_size_divisible_by") or 128
    tp = state.size("model.tensor_model_parallel_size")
    from_tokenizer = vocab is None or state.get("tokenizer.use_tokenizer_vocab_size") is True
    size = state.get("tokenizer.vocab_size") if from_tokenizer else vocab
    if not isinstance(size, int) or isinstance(size, bool) or not isinstance(multiple, int):
        return
    if not from_tokenizer:
        detail = "model.vocab_size is explicit, so nothing is padded"
        state.replace("derived.padded_vocab_size", size, kind=DERIVED, detail=detail)
        return
    step = multiple * tp
    padded = math.ceil(size / step) * step
    detail = f"the tokenizer's {size}, padded to a multiple of {multiple} x TP {tp}"
    state.replace("derived.padded_vocab_size", padded, kind=DERIVED, detail=detail)
