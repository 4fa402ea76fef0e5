"""The convergence contract of a cohort: which paths every member shares, in which dimension, with which value.

A contract file is YAML:

    name: bounded-pretraining
    values:                       # path -> value every member must have; "*" means the first member's value
      train.global_batch_size: 256
      dataset.seq_length: 4096
      optimizer.lr: "*"
    ignore: [logger.log_interval] # paths that the contract leaves open
    token_checkpoints: [1.0e9]    # processed tokens at which members are compared

Without a file the first member's own values are the contract. Start reading at `DIMENSIONS`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from autorecipe.config.annotations import check_value, describe_type
from autorecipe.config.keys import CLASS_MARK, KeyKind, locate_key
from autorecipe.config.layers import layer_of, starts_new_experiment
from autorecipe.config.overrides import render_for_message, unknown_key
from autorecipe.errors import Problem, UsageError, unknown_name
from autorecipe.record import dataclass, field
from autorecipe.schema.field import ConfigSchema
from autorecipe.schema.value import FieldValue

SAME = "*"
"""Value in a contract that stands for: the same in every member, whatever it is."""

DIMENSIONS: Mapping[str, str] = {
    "seeds": r"rng\.(seed|data_parallel_random_init)|dataset\.(random_seed|seed|blend_seed)",
    "sequence": r"dataset\.(seq_length|offline_packing_specs\.(packed_sequence_size|max_single_sequence_length))",
    "global batch": r"train\.(global_batch_size|rampup_batch_size|step_batch_size_schedule|decrease_batch_size_if_needed)",
    "step horizon": r"train\.(train_iters|train_samples|num_epochs|iterations_to_skip)|scheduler\.max_steps",
    "token checkpoints": r"checkpoint\.save_interval",
    "starting point": r"checkpoint\.(pretrained_checkpoint|ckpt_step|finetune|load_optim|load_rng)",
    "schedule": r"scheduler\.(?!_class$|lr_decay_steps$|lr_warmup_steps$|wd_incr_steps$|wsd_decay_steps$|max_lr$|min_lr$)\w+",
    "precision": r"mixed_precision\.(?!_class$)\w+|ddp\.(grad_reduce_in_fp32|megatron_fsdp_\w+_dtype)"
    r"|optimizer\.(\w+_dtype|use_precision_aware_optimizer|loss_scale|initial_loss_scale|min_loss_scale|hysteresis)"
    r"|model\.(fp32_residual_connection|fp16_lm_cross_entropy|attention_softmax_in_fp32|moe_router_dtype|logit_dtype)",
    "optimizer": r"optimizer\.(optimizer|lr|min_lr|decoupled_\w+|adam_\w+|sgd_\w+|lion_\w+|muon_\w+|adaptive_muon_\w+|soap_\w+"
    r"|clip_grad|grad_norm_skip_threshold|apply_wd_to_qk_layernorm)|train\.skip_sync_grad_norm_across_mp",
    "routing": r"model\.(moe_router_(?!fusion$|padding\w*$|dtype$)\w+|moe_aux_loss_coeff|moe_z_loss_coeff|moe_input_jitter_eps"
    r"|moe_expert_\w*capacity_factor|moe_token_drop\w+|moe_pad_expert_input_to_capacity|moe_enable_routing_replay)",
    "objective": r"model\.(calculate_per_token_loss|mtp_loss_scaling_factor|hidden_dropout|attention_dropout|freeze_\w+)"
    r"|peft(\..+)?",
    "tokenizer": r"tokenizer\.(?!_class$|rank$|tensor_model_parallel_size$|trust_remote_code$)\w+|derived\.padded_vocab_size",
    "preprocessing": r"dataset\.(preprocessing\S*|reset_position_ids|reset_attention_mask|eod_mask_loss|inter_document_masking"
    r"|add_extra_token_to_sequence|enable_\w+packing|packing_buffer_size|offline_packing_specs\.(?!packed|max_single)\w+"
    r"|pad_to_max_length|pad_to_multiple_of|dataset_kwargs\S*|hf_processor\w+|defer_in_batch_packing_to_step)",
    "data selection": r"dataset\.(_class|blend\w*|data_path|split|mock|path|dataset_root|hf_dataset\S*|source\S*"
    r"|max_train_samples|dataloader_type|data_sharding|drop_last|shuffle_buffer_size|task_encoder\S*|mid_level_dataset_surplus)",
}
"""What a cohort of model-verification runs shares, by dimension; the first expression that matches a whole path counts."""

SECTION_DIMENSIONS = {
    "dataset": "data selection",
    "ddp": "precision",
    "optimizer": "optimizer",
    "train": "step horizon",
    "checkpoint": "starting point",
    "env_vars": "environment",
}
"""Dimension of the remaining convergence paths of a section; `model` is the architecture, which members need not share."""

OPEN_PATHS = frozenset(
    {
        "checkpoint.load",  # each member resumes from its own folder
        "optimizer.weight_decay",  # does not act
        "optimizer.bf16",  # follows mixed_precision, as do the next two
        "optimizer.fp16",
        "optimizer.fp8_recipe",
        "dataset.sequence_length",  # a copy of dataset.seq_length
        "scheduler.max_lr",
        "scheduler.min_lr",
        "scheduler.lr_decay_steps",  # computed from the schedule and the batch, as are the next three
        "scheduler.lr_warmup_steps",
        "scheduler.wd_incr_steps",
        "scheduler.wsd_decay_steps",
    }
)

_COMPILED = {name: re.compile(expression) for name, expression in DIMENSIONS.items()}

KEYS = ("name", "values", "ignore", "token_checkpoints")


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What every member of a cohort shares.

    Attributes:
        name: name of the contract.
        values: path -> value that every member must have; `*` for the first member's.
        ignore: paths that are left open.
        token_checkpoints: processed tokens at which members are compared.
    """

    name: str = "the first member's own values"
    values: Mapping[str, FieldValue] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    token_checkpoints: tuple[int, ...] = ()


@functools.lru_cache(maxsize=8192)
def dimension_of(path: str) -> str:
    """Return the dimension of the contract that a path belongs to; empty where it belongs to none.

    Only paths that make another experiment belong to one, and the checkpoint interval; a path of the convergence layer that
    no expression names falls into the dimension of its section, so that nothing but the architecture is left out.
    """
    named = next((name for name, expression in _COMPILED.items() if expression.fullmatch(path)), "")
    if path == "checkpoint.save_interval":
        return named
    if not starts_new_experiment(path, layer_of(path)[0]):
        return ""
    if named or path in OPEN_PATHS or path.endswith(CLASS_MARK):
        return named
    return SECTION_DIMENSIONS.get(path.split(".", 1)[0], "") if "." in path else ""


def parse_contract(text: str, schema: ConfigSchema, *, name: str) -> Contract:
    """Parse a contract file.

    Args:
        text: YAML.
        schema: schema of the release; paths and types are checked against it.
        name: file name, for messages.

    Raises:
        UsageError: every unknown key and path (with near misses), wrong type and wrong token count at once.
    """
    import yaml

    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(Problem(code="contract", path=name, message=f"is not YAML: {str(error).splitlines()[0]}")) from None
    if not isinstance(content, dict):
        raise UsageError(Problem(code="contract", path=name, message="is not a mapping", hint=f"its keys are {', '.join(KEYS)}"))
    problems = [
        unknown_name("contract key", str(key), KEYS, hint=f"its keys are {', '.join(KEYS)}") for key in content if key not in KEYS
    ]
    values, wrong = _read_values(content.get("values") or {}, schema)
    problems += wrong
    ignore = content.get("ignore") or []
    if not isinstance(ignore, list):
        problems.append(Problem(code="contract", path="ignore", message="is not a list of paths"))
        ignore = []
    problems += [unknown_key(str(path), schema) for path in ignore if locate_key(str(path), schema).kind is KeyKind.UNKNOWN]
    checkpoints, wrong = _read_checkpoints(content.get("token_checkpoints") or [])
    problems += wrong
    if problems:
        raise UsageError(problems)
    return Contract(
        name=str(content.get("name") or name),
        values=values,
        ignore=tuple(str(path) for path in ignore),
        token_checkpoints=checkpoints,
    )


def _read_values(given: Any, schema: ConfigSchema) -> tuple[dict[str, FieldValue], list[Problem]]:
    if not isinstance(given, dict):
        return {}, [Problem(code="contract", path="values", message="is not a mapping of paths to values")]
    values: dict[str, FieldValue] = {}
    problems: list[Problem] = []
    for key, value in given.items():
        located = locate_key(str(key), schema)
        if located.kind in (KeyKind.UNKNOWN, KeyKind.SECTION):
            problems.append(unknown_key(str(key), schema))
            continue
        if value == SAME:
            values[str(key)] = SAME
            continue
        checked = check_value(located.spec, value)
        if not checked.legal:
            message = f"{render_for_message(value)} is not {describe_type(located.spec)}"
            problems.append(Problem(code="wrong-type", path=str(key), message=message))
            continue
        values[str(key)] = checked.value
    return values, problems


def _read_checkpoints(given: Any) -> tuple[tuple[int, ...], list[Problem]]:
    items = given if isinstance(given, list) else [given]
    whole = [
        int(item)
        for item in items
        if isinstance(item, int | float) and not isinstance(item, bool) and item > 0 and item == int(item)
    ]
    if len(whole) != len(items):
        return (), [Problem(code="contract", path="token_checkpoints", message=f"{given!r} is not a list of whole token counts")]
    return tuple(sorted(whole)), []
