"""A small recipe and schema with the shapes of the real ones."""

import pytest

from autorecipe.catalog.store import open_catalog
from autorecipe.schema import ConfigField, ConfigSchema, Mode, Recipe, RecipeKind

TYPES = {
    "env_vars": ("dict[str, str | int | float | bool]", {}),
    "model.num_layers": ("int", 0),
    "model.hidden_size": ("int", 0),
    "model.ffn_hidden_size": ("Optional[int]", None),
    "model.kv_channels": ("Optional[int]", None),
    "model.num_attention_heads": ("int", 0),
    "model.num_query_groups": ("Optional[int]", None),
    "model.seq_length": ("int", 1024),
    "model.vocab_size": ("Optional[int]", None),
    "model.make_vocab_size_divisible_by": ("int", 128),
    "model.tensor_model_parallel_size": ("int", 1),
    "model.pipeline_model_parallel_size": ("int", 1),
    "model.virtual_pipeline_model_parallel_size": ("Optional[int]", None),
    "model.context_parallel_size": ("int", 1),
    "model.expert_model_parallel_size": ("int", 1),
    "model.expert_tensor_parallel_size": ("Optional[int]", None),
    "model.sequence_parallel": ("bool", False),
    "model.num_moe_experts": ("Optional[int]", None),
    "model.moe_ffn_hidden_size": ("Optional[int]", None),
    "model.moe_router_load_balancing_type": ("Union[str, List[str]]", "aux_loss"),
    "model.moe_aux_loss_coeff": ("Union[float, List[float]]", 0.0),
    "model.moe_router_force_load_balancing": ("bool", False),
    "model.recompute_modules": ("Optional[List[str]]", None),
    "model.recompute_granularity": ("Optional[Literal['full', 'selective']]", None),
    "model.attention_backend": ("AttnBackend", "AttnBackend.auto"),
    "model.activation_func": ("Callable[[torch.Tensor], torch.Tensor]", "torch._C._nn:gelu"),
    "model.transformer_layer_spec": ("Union[megatron.core.transformer.spec_utils.ModuleSpec, Callable[[], int]]", None),
    "model.params_dtype": ("dtype", "torch.float32"),
    "model.pipeline_dtype": ("Optional[torch.dtype]", None),
    "model.bf16": ("bool", False),
    "model.fp16": ("bool", False),
    "model.fp8": ("Optional[str]", None),
    "model.window_size": ("Optional[Tuple[int, int]]", None),
    "model.calculate_per_token_loss": ("bool", False),
    "model.overlap_p2p_comm": ("bool", False),
    "model.batch_p2p_comm": ("bool", True),
    "model.use_te_rng_tracker": ("bool", False),
    "model.num_layers_in_first_pipeline_stage": ("Optional[int]", None),
    "model.num_layers_in_last_pipeline_stage": ("Optional[int]", None),
    "model.q_lora_rank": ("int", 512),
    "train.micro_batch_size": ("int | None", None),
    "train.global_batch_size": ("int | None", None),
    "train.train_iters": ("int | None", None),
    "train.train_samples": ("int | None", None),
    "train.eval_iters": ("int | None", None),
    "validation.eval_iters": ("int | None", 100),
    "validation.eval_global_batch_size": ("int | None", None),
    "validation.eval_micro_batch_size": ("int | None", None),
    "optimizer.lr": ("float | None", None),
    "optimizer.min_lr": ("float | None", None),
    "optimizer.weight_decay": ("float", 0.01),
    "optimizer.bf16": ("bool", False),
    "optimizer.use_distributed_optimizer": ("bool", False),
    "optimizer.overlap_param_gather": ("bool", False),
    "ddp.grad_reduce_in_fp32": ("bool", False),
    "ddp.use_distributed_optimizer": ("bool", False),
    "ddp.overlap_grad_reduce": ("bool", False),
    "ddp.overlap_param_gather": ("bool", False),
    "ddp.bucket_size": ("Optional[int]", None),
    "ddp.average_in_collective": ("bool", False),
    "ddp.use_megatron_fsdp": ("bool", False),
    "ddp.data_parallel_sharding_strategy": ("str", "no_shard"),
    "dist.use_megatron_fsdp": ("bool", False),
    "scheduler.lr_decay_style": ("Literal['constant', 'linear', 'cosine', 'inverse-square-root', 'WSD']", "linear"),
    "scheduler.lr_decay_iters": ("int | None", None),
    "scheduler.lr_decay_samples": ("int | None", None),
    "scheduler.lr_wsd_decay_iters": ("int | None", None),
    "scheduler.lr_warmup_iters": ("int", 0),
    "scheduler.lr_warmup_samples": ("int", 0),
    "scheduler.lr_warmup_fraction": ("float | None", None),
    "scheduler.max_steps": ("int | None", None),
    "scheduler.start_weight_decay": ("float | None", None),
    "scheduler.end_weight_decay": ("float | None", None),
    "dataset.seq_length": ("int", "<required>"),
    "dataset.sequence_length": ("int", "<required>"),
    "dataset.random_seed": ("int", "<required>"),
    "dataset.split": ("Optional[str]", None),
    "dataset.dataset_kwargs": ("dict[str, Any] | None", None),
    "dataset.blend": ("Optional[Tuple[List[str], Optional[List[float]]]]", None),
    "tokenizer.vocab_size": ("int | None", None),
    "rng.seed": ("int", 1234),
    "rng.te_rng_tracker": ("bool", False),
    "logger.log_interval": ("int", 100),
    "logger.wandb_exp_name": ("str | None", None),
    "checkpoint.save": ("str | None", None),
    "checkpoint.load": ("str | None", None),
    "comm_overlap.tp_comm_overlap": ("bool", "<required>"),
    "comm_overlap.overlap_grad_reduce": ("Optional[bool]", None),
    "comm_overlap.overlap_param_gather": ("Optional[bool]", None),
    "comm_overlap.bucket_size": ("Optional[int]", None),
    "mixed_precision.bf16": ("bool", False),
    "mixed_precision.params_dtype": ("Optional[torch.dtype]", None),
    "mixed_precision.pipeline_dtype": ("Optional[torch.dtype]", None),
    "mixed_precision.grad_reduce_in_fp32": ("bool", True),
    "mixed_precision.fp8_param": ("Optional[bool]", None),
    "mixed_precision.fp8_param_gather": ("bool", False),
    "peft.dim": ("int", 32),
}

PRECISION = {
    **dict.fromkeys(["fp32", "fp16", "autocast_enabled", "first_last_layers_bf16"], False),
    **dict.fromkeys(["fp8_dot_product_attention", "fp8_multi_head_attention", "fp4_param_gather"], False),
    **dict.fromkeys(["autocast_dtype", "fp8", "fp4", "fp4_param", "loss_scale"]),
    **dict.fromkeys(["num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16", "fp8_margin"], 0),
    "reuse_grad_buf_for_mxfp8_param_ag": False,
    "fp8_recipe": "tensorwise",
    "fp4_recipe": "nvfp4",
    "fp8_amax_history_len": 1,
    "fp8_amax_compute_algo": "most_recent",
    "fp8_wgrad": True,
    "initial_loss_scale": 4294967296,
    "min_loss_scale": 1.0,
    "loss_scale_window": 1000,
    "hysteresis": 2,
}
TYPES |= {f"mixed_precision.{name}": ("Any", default) for name, default in PRECISION.items()}

OPTIONAL = ("comm_overlap.", "mixed_precision.", "peft.")


@pytest.fixture(scope="session")
def schema():
    return ConfigSchema(
        release="0.6.2",
        fields={
            path: ConfigField(path=path, type=kind, default=default, layer=None, reason="")
            for path, (kind, default) in TYPES.items()
        },
        presets=open_catalog("0.6.2").schema().presets,
    )


@pytest.fixture(scope="session")
def make_recipe():
    def build(*, name="toy_pretrain_config", kind=RecipeKind.LIBRARY, mode=Mode.PRETRAIN, gpus=None, drop=(), **changes):
        fields = {path: default for path, (_, default) in TYPES.items() if not path.startswith(OPTIONAL)}
        fields |= {f"{section}._class": "Toy" for section in ("model", "train", "optimizer", "ddp", "dataset", "scheduler")}
        fields |= {
            "model.num_layers": 4,
            "model.hidden_size": 256,
            "model.num_attention_heads": 8,
            "train.micro_batch_size": 2,
            "train.global_batch_size": 32,
            "train.train_iters": 1000,
            "optimizer.lr": 3e-4,
            "optimizer.weight_decay": 0.1,
            "scheduler.start_weight_decay": 0.033,
            "scheduler.end_weight_decay": 0.033,
            "scheduler.lr_warmup_iters": 100,
            "dataset.seq_length": 4096,
            "dataset.sequence_length": 4096,
            "dataset.random_seed": 1234,
            "model.seq_length": 4096,
            "comm_overlap": None,
            "peft": None,
            "mixed_precision": None,
        }
        fields |= {path.replace("__", "."): value for path, value in changes.items()}
        for path in drop:
            fields.pop(path, None)
        return Recipe(
            name=name,
            release="0.6.2",
            kind=kind,
            mode=mode,
            alias_of=None,
            family="toy",
            modality="text",
            hf_model_ids=(),
            gpus=gpus,
            gpu_type=None,
            precision=None,
            variant=None,
            forward_step="gpt_step",
            status="ok",
            error="",
            source="",
            fields=fields,
        )

    return build
