"""Where a value that was given does not act, or acts elsewhere: one entry per trap of upstream's order of application.

Resolution reproduces each of them and says so; `explain` and `config schema` show them with the field.
"""

from __future__ import annotations

from collections.abc import Sequence

from autorecipe.record import dataclass


@dataclass(frozen=True, kw_only=True)
class Trap:
    """One trap.

    Attributes:
        id: stable id, as the notes of a resolved run spell it.
        paths: paths (or prefixes ending in `.`) on which it is met.
        rules: ids of upstream constraints behind it.
        when: what is typed.
        effect: what happens instead.
        remedy: what to type.
        source: upstream `file:line`.
    """

    id: str
    paths: tuple[str, ...]
    rules: tuple[str, ...]
    when: str
    effect: str
    remedy: str
    source: str

    def concerns(self, path: str) -> bool:
        """Return whether the trap is met at this path."""
        return any(path.startswith(known) if known.endswith(".") else path == known for known in self.paths)


PRECISION_FIELDS = (
    "fp32",
    "fp16",
    "bf16",
    "params_dtype",
    "pipeline_dtype",
    "autocast_dtype",
    "autocast_enabled",
    "grad_reduce_in_fp32",
    "fp8",
    "fp8_recipe",
    "first_last_layers_bf16",
    "fp8_margin",
    "fp8_amax_history_len",
    "fp8_amax_compute_algo",
    "fp8_wgrad",
    "fp8_dot_product_attention",
    "fp8_multi_head_attention",
    "fp8_param",
    "fp8_param_gather",
    "fp4",
    "fp4_recipe",
    "fp4_param",
    "fp4_param_gather",
    "loss_scale",
    "initial_loss_scale",
    "min_loss_scale",
    "loss_scale_window",
    "hysteresis",
    "num_layers_at_start_in_bf16",
    "num_layers_at_end_in_bf16",
    "reuse_grad_buf_for_mxfp8_param_ag",
)
"""Fields of MixedPrecisionConfig (megatron/bridge/training/mixed_precision.py:34 @ 0.6.2)."""

PRECISION_TARGETS = ("model", "optimizer", "ddp")
"""Sections that a precision preset writes to."""

OVERLAP_MODEL_FIELDS = (
    "tp_comm_overlap",
    "tp_comm_bootstrap_backend",
    "overlap_p2p_comm",
    "batch_p2p_comm",
    "defer_embedding_wgrad_compute",
    "wgrad_deferral_limit",
    "overlap_moe_expert_parallel_comm",
    "delay_wgrad_compute",
)
OVERLAP_DDP_FIELDS = (
    "bucket_size",
    "overlap_grad_reduce",
    "overlap_param_gather",
    "overlap_param_gather_with_optimizer_step",
    "align_param_gather",
    "delay_wgrad_compute",
)
"""Fields that a comm_overlap section writes to model, ddp and optimizer (megatron/bridge/training/comm_overlap.py @ 0.6.2)."""

TRAPS: tuple[Trap, ...] = (
    Trap(
        id="TRAP-SEQ",
        paths=("model.seq_length", "dataset.sequence_length", "dataset.seq_length"),
        rules=("BR-ORDER-07",),
        when="model.seq_length (or dataset.sequence_length) is overridden alone",
        effect="it is reset: dataset.seq_length owns the sequence and is copied over it",
        remedy="set dataset.seq_length",
        source="Megatron-Bridge:scripts/training/recipe_runner.py:486, training/config.py:298",
    ),
    Trap(
        id="TRAP-MP",
        paths=tuple(f"{section}.{name}" for section in PRECISION_TARGETS for name in PRECISION_FIELDS),
        rules=("BR-ORDER-01",),
        when="a precision field of model, optimizer or ddp is overridden while mixed_precision is set",
        effect="the preset overwrites it at start, with a debug log line only",
        remedy="put the field on a mixed_precision object, or set mixed_precision=null",
        source="Megatron-Bridge:src/megatron/bridge/training/mixed_precision.py:155",
    ),
    Trap(
        id="TRAP-MPNAME",
        paths=tuple(f"mixed_precision.{name}" for name in PRECISION_FIELDS),
        rules=("BR-ORDER-03",),
        when="mixed_precision.FIELD is overridden while mixed_precision is the name of a preset",
        effect="Megatron Bridge refuses the override",
        remedy="replace the name by an object: mixed_precision={_target_: ...MixedPrecisionConfig, ...}",
        source="Megatron-Bridge:src/megatron/bridge/training/utils/omegaconf_utils.py:186",
    ),
    Trap(
        id="TRAP-OVL",
        paths=tuple(
            [f"model.{name}" for name in OVERLAP_MODEL_FIELDS]
            + [f"{section}.{name}" for section in ("ddp", "optimizer") for name in OVERLAP_DDP_FIELDS]
        ),
        rules=("BR-OVL-02", "BR-OVL-03"),
        when="an overlap field of ddp, optimizer or model is overridden while comm_overlap is set",
        effect="comm_overlap overwrites it at start",
        remedy="set the field of the same name on comm_overlap",
        source="Megatron-Bridge:src/megatron/bridge/training/comm_overlap.py:578",
    ),
    Trap(
        id="TRAP-SYNC",
        paths=(
            "ddp.use_distributed_optimizer",
            "optimizer.use_distributed_optimizer",
            "ddp.overlap_param_gather",
            "optimizer.overlap_param_gather",
        ),
        rules=("BR-OVL-06",),
        when="one of ddp and optimizer is switched off alone",
        effect="either one on turns both on",
        remedy="set both to false",
        source="Megatron-Bridge:src/megatron/bridge/training/config.py:2117",
    ),
    Trap(
        id="TRAP-WD",
        paths=("optimizer.weight_decay", "scheduler.start_weight_decay", "scheduler.end_weight_decay"),
        rules=("BR-WD-01",),
        when="optimizer.weight_decay is overridden alone",
        effect="it does not act: the scheduler writes start_weight_decay..end_weight_decay into every group each step",
        remedy="set scheduler.start_weight_decay and scheduler.end_weight_decay",
        source="Megatron-Bridge:src/megatron/bridge/training/optim.py:347",
    ),
    Trap(
        id="TRAP-WARMUP",
        paths=("train.train_iters", "scheduler.lr_warmup_iters", "scheduler.lr_decay_iters", "scheduler.max_steps"),
        rules=("BR-SCHED-05", "BR-SCHED-06"),
        when="train_iters is shortened while the recipe's warmup stays",
        effect="warmup is capped at decay - 1, so the learning rate still ramps at the end and never decays",
        remedy="set scheduler.max_steps to the full length, or scheduler.lr_warmup_iters and lr_decay_iters too",
        source="Megatron-Bridge:src/megatron/bridge/training/config.py:1802",
    ),
    Trap(
        id="TRAP-SAMPLES",
        paths=("train.train_samples", "train.train_iters", "train.num_epochs"),
        rules=("BR-TRAIN-01", "BR-TRAIN-02", "BR-SCHED-04"),
        when="train.train_samples is set on a recipe that has train.train_iters",
        effect="Megatron Bridge refuses two lengths of one run",
        remedy="add train.train_iters=null, scheduler.lr_decay_iters=null and scheduler.lr_warmup_iters=0",
        source="Megatron-Bridge:src/megatron/bridge/training/config.py:481",
    ),
    Trap(
        id="TRAP-EVAL",
        paths=tuple(f"{s}.{n}" for s in ("train", "validation") for n in ("eval_iters", "eval_interval", "skip_train")),
        rules=(),
        when="the deprecated copy on train is set",
        effect="it overwrites the field of the same name on validation",
        remedy="set the validation field and leave the train field null",
        source="Megatron-Bridge:src/megatron/bridge/training/config.py:1516",
    ),
    Trap(
        id="TRAP-SP",
        paths=("model.sequence_parallel",),
        rules=("BR-SP-01",),
        when="sequence_parallel is on with a tensor parallel size of 1",
        effect="it is cleared silently",
        remedy="raise model.tensor_model_parallel_size, or leave it off",
        source="Megatron-Bridge:src/megatron/bridge/models/transformer_config.py:176",
    ),
    Trap(
        id="TRAP-GRAPH",
        paths=("model.cuda_graph_modules", "model.cuda_graph_scope"),
        rules=("BR-CG-02",),
        when="CUDA graph modules are given while model.cuda_graph_impl is none",
        effect="they are cleared: nothing is captured",
        remedy="set model.cuda_graph_impl=transformer_engine",
        source="Megatron-Bridge:src/megatron/bridge/utils/cuda_graph.py:138",
    ),
    Trap(
        id="TRAP-ETP",
        paths=("model.expert_tensor_parallel_size",),
        rules=("BR-ETP-01",),
        when="expert_tensor_parallel_size is unset",
        effect="it is 1 when EP > 1 and TP otherwise (Megatron-LM takes TP in both cases)",
        remedy="set it when comparing with Megatron-LM",
        source="Megatron-Bridge:src/megatron/bridge/models/transformer_config.py:88",
    ),
    Trap(
        id="TRAP-VOCAB",
        paths=(
            "model.vocab_size",
            "model.should_pad_vocab",
            "model.make_vocab_size_divisible_by",
            "tokenizer.use_tokenizer_vocab_size",
            "derived.padded_vocab_size",
        ),
        rules=("BR-VOCAB-02",),
        when="the vocabulary size comes from the tokenizer",
        effect="it is padded to a multiple of make_vocab_size_divisible_by x TP, so the softmax width changes with TP",
        remedy="pin model.vocab_size and set tokenizer.use_tokenizer_vocab_size=false",
        source="Megatron-Bridge:src/megatron/bridge/training/setup.py:681",
    ),
    Trap(
        id="TRAP-SEED",
        paths=("rng.seed", "dataset.random_seed"),
        rules=(),
        when="rng.seed is changed alone",
        effect="dataset.random_seed keeps its own value, so the data order does not change",
        remedy="set dataset.random_seed too",
        source="Megatron-Bridge:src/megatron/bridge/data/utils.py",
    ),
    Trap(
        id="TRAP-FSDP",
        paths=("ddp.use_megatron_fsdp", "dist.use_megatron_fsdp", "ddp.data_parallel_sharding_strategy"),
        rules=("BR-FSDP-01",),
        when="use_megatron_fsdp is switched on with data_parallel_sharding_strategy left at no_shard",
        effect="nothing is sharded",
        remedy="set ddp.data_parallel_sharding_strategy=optim_grads_params",
        source="Megatron-Bridge:src/megatron/bridge/training/config.py:1065",
    ),
    Trap(
        id="TRAP-GBS",
        paths=("train.global_batch_size",),
        rules=("BR-BENCH-02",),
        when="a benchmark recipe runs on another GPU count",
        effect="the global batch is scaled with the data-parallel size unless it is overridden",
        remedy="set train.global_batch_size",
        source="Megatron-Bridge:scripts/training/run_recipe.py:368",
    ),
    Trap(
        id="TRAP-LOAD",
        paths=("checkpoint.load", "checkpoint.save", "checkpoint.pretrained_checkpoint"),
        rules=("BR-CKPT-01",),
        when="checkpoint.load and checkpoint.save name one folder that holds another run",
        effect="the run resumes silently, ahead of pretrained_checkpoint",
        remedy="remove the folder (nemo_experiments by default) or set checkpoint.load=null",
        source="Megatron-Bridge:src/megatron/bridge/training/checkpointing.py",
    ),
    Trap(
        id="TRAP-SFTCP",
        paths=("model.calculate_per_token_loss", "ddp.average_in_collective"),
        rules=("BR-ORDER-08",),
        when="a fine-tuning run uses context parallelism",
        effect="calculate_per_token_loss is switched on and average_in_collective off",
        remedy="nothing: the loss would be wrong otherwise",
        source="Megatron-Bridge:scripts/training/recipe_runner.py:368",
    ),
    Trap(
        id="TRAP-PACK",
        paths=("dataset.offline_packing_specs.packed_sequence_size", "dataset.offline_packing_specs.pad_seq_to_mult"),
        rules=("BR-ORDER-09",),
        when="offline packing is on",
        effect="packed_sequence_size follows dataset.seq_length, pad_seq_to_mult follows TP, CP and SP: packs change with layout",
        remedy="fix dataset.offline_packing_specs.pad_seq_to_mult to a common multiple of the layouts compared",
        source="Megatron-Bridge:scripts/training/recipe_runner.py:467",
    ),
    Trap(
        id="TRAP-LAYOUT",
        paths=(
            "model.pipeline_model_parallel_layout",
            "model.num_layers_in_first_pipeline_stage",
            "model.num_layers_in_last_pipeline_stage",
        ),
        rules=("BR-ORDER-10",),
        when="PP or VP is overridden on a recipe with an uneven split of layers",
        effect="the recipe's split is rebuilt, or stage counts that do not fit are cleared",
        remedy="set the layout with the pipeline size",
        source="Megatron-Bridge:scripts/training/recipe_runner.py:423",
    ),
    Trap(
        id="TRAP-MOCK",
        paths=("dataset.mock", "dataset.blend", "dataset.blend_per_split", "dataset.data_path", "dataset.split"),
        rules=(),
        when="a pretraining dataset has no data path",
        effect="the run trains on mock data without a message, and dataset.split becomes 1,1,1",
        remedy="set dataset.blend or dataset.data_path",
        source="Megatron-LM:megatron/core/datasets/blended_megatron_dataset_config.py",
    ),
    Trap(
        id="TRAP-ENV",
        paths=("env_vars", "env_vars."),
        rules=("BR-ORDER-05",),
        when="a variable of env_vars is already exported",
        effect="the exported value wins",
        remedy="unset it in the shell or the launcher",
        source="Megatron-Bridge:src/megatron/bridge/training/config.py:1989",
    ),
)
"""Every trap, in the order in which resolution meets them."""

_GRAMMAR_TRAPS = (
    Trap(
        id="TRAP-DELETE",
        paths=(),
        rules=(),
        when="a declared field is deleted with ~KEY",
        effect="Megatron Bridge restores it: the override has no effect",
        remedy="set it to null",
        source="Megatron-Bridge:src/megatron/bridge/training/utils/omegaconf_utils.py:66",
    ),
    Trap(
        id="TRAP-NEWKEY",
        paths=(),
        rules=("BR-ORDER-04",),
        when="a new key of a dictionary field is set without a plus sign",
        effect="autorecipe accepts it, Megatron Bridge refuses it",
        remedy="write +KEY=VALUE",
        source="Megatron-Bridge:src/megatron/bridge/training/utils/omegaconf_utils.py:186",
    ),
)
"""Traps of the override grammar itself, met at any path."""

_BY_ID = {trap.id: trap for trap in (*TRAPS, *_GRAMMAR_TRAPS)}


def get_trap(trap_id: str) -> Trap:
    """Return a trap by its id."""
    return _BY_ID[trap_id]


def all_traps() -> Sequence[Trap]:
    """Return every trap, those of the grammar last."""
    return tuple(_BY_ID.values())


def traps_of(path: str) -> Sequence[Trap]:
    """Return the traps that are met at a path."""
    return tuple(trap for trap in TRAPS if trap.concerns(path))
