import json

import pytest

from autorecipe.config.diff import diff_configs
from autorecipe.config.documents import parse_document, undeclared_keys
from autorecipe.config.resolve import resolve_config
from autorecipe.errors import UsageError
from autorecipe.schema.value import to_jsonable

BRIDGE_YAML = """
_target_: megatron.bridge.training.config.ConfigContainer
comm_overlap: null
mixed_precision: bf16_mixed
model:
  _target_: megatron.bridge.models.gpt_provider.GPTModelProvider
  activation_func: {_call_: false, _target_: torch.nn.functional.silu}
  attention_backend:
    _args_: [5]
    _call_: true
    _name_: auto
    _target_: megatron.core.transformer.enums.AttnBackend
  params_dtype: {_call_: false, _target_: torch.float32}
  bf16: false
  num_layers: 4
  seq_length: 99
dataset:
  _target_: megatron.bridge.training.config.GPTDatasetConfig
  seq_length: 512
ddp: {grad_reduce_in_fp32: false}
env_vars: {}
"""


def test_what_show_writes_reads_back_without_a_difference(make_recipe, schema):
    config = resolve_config(make_recipe(mixed_precision="bf16_mixed"), schema, ["optimizer.weight_decay=3"])
    text = json.dumps(to_jsonable(config))
    again = parse_document(text, name="run.json", schema=schema)
    assert diff_configs(config, again, schema) == ()
    assert again.notes == config.notes


def test_bridges_own_yaml_is_resolved(schema):
    config = parse_document(BRIDGE_YAML, name="ConfigContainer.yaml", schema=schema)
    assert config.get("model._class") == "GPTModelProvider"
    assert config.get("model.activation_func") == "torch.nn.functional:silu"
    assert config.get("model.attention_backend") == "AttnBackend.auto"
    assert config.get("model.params_dtype") == "torch.bfloat16"
    assert config.get("model.seq_length") == 512
    assert config.get("ddp.grad_reduce_in_fp32") is True
    assert config.get("env_vars") == {}
    assert undeclared_keys(config, schema) == ()


def test_flat_keys_are_accepted(schema):
    config = parse_document("model.num_layers: 4\ntypo.key: 1\n", name="flat.yaml", schema=schema)
    assert config.get("model.num_layers") == 4
    assert undeclared_keys(config, schema) == ("typo.key",)


@pytest.mark.parametrize("text", ["", "[1]", "{", "a: [", '{"values": {}, "origins": {"a": {}}}'])
def test_what_is_no_configuration_is_refused(schema, text):
    with pytest.raises(UsageError):
        parse_document(text, name="x.yaml", schema=schema)
