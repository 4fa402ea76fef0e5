"""Rules about Megatron-Core's configuration classes, tried on the installed release itself.

A rule's bad example must be refused by the classes, its good one accepted, as far as the release has the fields.
"""

import dataclasses

import pytest

from autorecipe.rules.registry import all_rules
from autorecipe.rules.situation import read_situation
from autorecipe.schema import Severity, Stage

pytest.importorskip("megatron.core", reason="Megatron-Core is not installed")

import torch
from megatron.core import __version__ as CORE
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.optimizer.optimizer_config import OptimizerConfig
from megatron.core.transformer.enums import AttnBackend
from megatron.core.transformer.transformer_config import TransformerConfig

CLASSES = {"model": TransformerConfig, "ddp": DistributedDataParallelConfig, "optimizer": OptimizerConfig}
FIELDS = {section: {field.name for field in dataclasses.fields(kind)} for section, kind in CLASSES.items()}
BASE = {
    "num_layers": 8,
    "hidden_size": 64 * 48,
    "num_attention_heads": 48,
    "bf16": True,
    "params_dtype": torch.bfloat16,
    "pipeline_dtype": torch.bfloat16,
}
VALUES = {
    "torch.bfloat16": torch.bfloat16,
    "torch.float32": torch.float32,
    "torch.nn.functional:silu": torch.nn.functional.silu,
    "torch.nn.functional:gelu": torch.nn.functional.gelu,
    "torch.nn.functional:relu": torch.nn.functional.relu,
    "x:quick_gelu": torch.nn.functional.hardswish,
    "AttnBackend.flash": AttnBackend.flash,
}
NEEDS_TRANSFORMER_ENGINE = {"MDL014", "MOE006", "MOE027", "MOE036", "MOE044", "OPT013", "PRC017", "REC013"}
"""Their good examples are accepted only where Transformer Engine is installed."""

NEEDS_MORE_FIELDS = {"MDL039", "MOE037", "MOE020", "MOE046", "PAR007", "PRC003"}
"""Their good examples break another constraint that the example does not speak of."""


def rules_of_core():
    for rule in all_rules():
        by_core = any(alias.startswith("MC-") for alias in rule.aliases)
        if by_core and rule.stage is Stage.FINALIZE and rule.severity is Severity.ERROR and CORE in rule.core:
            values = read_situation(rule.bad).config.values
            known = [path for path in values if path.partition(".")[0] in CLASSES]
            if known and all(path.partition(".")[2] in FIELDS[path.partition(".")[0]] for path in known):
                yield rule


def build(example):
    parts = {section: {} for section in CLASSES}
    for path, value in read_situation(example).config.values.items():
        section, _, name = path.partition(".")
        if section in parts and name in FIELDS[section]:
            parts[section][name] = VALUES.get(value, value) if isinstance(value, str) else value
    if parts["model"].get("fp16"):
        parts["model"].setdefault("bf16", False)
    TransformerConfig(**(BASE | parts["model"]))
    for section in ("ddp", "optimizer"):
        if parts[section]:
            CLASSES[section](**parts[section])


@pytest.mark.parametrize("rule", rules_of_core(), ids=lambda rule: rule.id)
def test_core_refuses_what_the_rule_refuses(rule):
    if not read_situation(rule.bad).packages:
        with pytest.raises((AssertionError, ValueError, TypeError, NotImplementedError, ImportError)):
            build(rule.bad)
    if rule.id not in NEEDS_TRANSFORMER_ENGINE | NEEDS_MORE_FIELDS:
        build(rule.bad.merged(rule.good))


def test_a_fair_number_of_rules_is_tried():
    assert len(list(rules_of_core())) > 60
