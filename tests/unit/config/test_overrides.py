import pytest

from autorecipe.config.grammar import Operation
from autorecipe.config.overrides import parse_overrides, render_overrides
from autorecipe.errors import UsageError


def values(schema, *texts):
    return {item.path: item.value for item in parse_overrides(texts, schema)}


def problems(schema, *texts):
    with pytest.raises(UsageError) as caught:
        parse_overrides(texts, schema)
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("model.num_layers=2", 2),
        ("optimizer.lr=3e-4", 3e-4),
        ("optimizer.lr=1", 1),
        ("model.sequence_parallel=true", True),
        ("model.sequence_parallel=False", False),
        ("model.vocab_size=null", None),
        ("checkpoint.save=/data/run-1/ckpt", "/data/run-1/ckpt"),
        ("logger.wandb_exp_name='two words, and more'", "two words, and more"),
        ('logger.wandb_exp_name="it\'s"', "it's"),
        ("model.recompute_modules=[core_attn,mlp]", ["core_attn", "mlp"]),
        ("model.window_size=[128,0]", [128, 0]),
        ("dataset.blend=[[/data/a,/data/b],null]", [["/data/a", "/data/b"], None]),
        ("dataset.dataset_kwargs={pad_to_max_length:true}", {"pad_to_max_length": True}),
        ("model.params_dtype=bf16", "torch.bfloat16"),
        ("model.attention_backend=flash", "AttnBackend.flash"),
        ("model.activation_func=silu", "torch.nn.functional:silu"),
        ("model.moe_aux_loss_coeff=[0.1,1]", [0.1, 1]),
        ("mixed_precision=bf16_mixed", "bf16_mixed"),
        ("comm_overlap=null", None),
        ("checkpoint.load=", ""),
    ],
)
def test_values_take_the_type_of_the_field(schema, text, value):
    (found,) = values(schema, text).values()
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "operation"),
    [("+env_vars.A=1", Operation.ADD), ("++model.num_layers=1", Operation.FORCE_ADD), ("~env_vars.A", Operation.DELETE)],
)
def test_prefixes(schema, text, operation):
    assert parse_overrides([text], schema)[0].operation is operation


def test_keys_inside_a_dictionary_field_are_free(schema):
    assert values(schema, "env_vars.NCCL_DEBUG=INFO", "dataset.dataset_kwargs.a.b=[1]") == {
        "env_vars.NCCL_DEBUG": "INFO",
        "dataset.dataset_kwargs.a.b": [1],
    }


def test_a_dictionary_given_to_a_section_sets_its_fields(schema):
    assert values(schema, "ddp={overlap_grad_reduce:true,bucket_size:1}") == {
        "ddp.overlap_grad_reduce": True,
        "ddp.bucket_size": 1,
    }


@pytest.mark.parametrize(
    ("text", "suggested"),
    [
        ("model.tensor_model_paralel_size=2", "model.tensor_model_parallel_size"),
        ("tensor_model_parallel_size=2", "model.tensor_model_parallel_size"),
        ("train.lr=1", "optimizer.lr"),
        ("model.tp=2", "model.tensor_model_parallel_size"),
        ("ddp={overlap_grad_reduc:true}", "ddp.overlap_grad_reduce"),
        ("+model.num_layer=2", "model.num_layers"),
        ("++model.num_layer=2", "model.num_layers"),
        ("~model.num_layer", "model.num_layers"),
        ("model.num_layers.x=1", "model.num_layers"),
    ],
)
def test_an_unknown_key_fails_with_near_misses_whatever_its_prefix(schema, text, suggested):
    (problem,) = problems(schema, text)
    assert problem.code == "unknown-key"
    assert f"'{suggested}'" in problem.message


@pytest.mark.parametrize(
    ("text", "legal", "fix"),
    [
        ("model.num_layers=two", "an integer", None),
        ("model.num_layers=2.0", "an integer", "model.num_layers=2"),
        ("model.num_layers=true", "an integer", "model.num_layers=1"),
        ("model.num_layers=null", "an integer", None),
        ("model.sequence_parallel=1", "true or false", "model.sequence_parallel=true"),
        ("model.sequence_parallel=yes", "true or false", "model.sequence_parallel=true"),
        ("scheduler.lr_decay_style=Cosine", "one of constant, linear, cosine", "scheduler.lr_decay_style=cosine"),
        ("model.recompute_granularity=none", "full", "model.recompute_granularity=null"),
        ("model.recompute_modules=core_attn", "a list", "model.recompute_modules=[core_attn]"),
        ("logger.wandb_exp_name=123", "a string or null", "logger.wandb_exp_name='123'"),
        ("model.window_size=[1,2,3]", "a list of 2 items", None),
        ("env_vars.A=[1]", "a string", None),
        ("model.params_dtype=int3", "a dtype", None),
        ("model.attention_backend=flsh", "flash", None),
        ("model.transformer_layer_spec=x", "an activation name", None),
        ("model=3", "a dictionary of its fields", None),
        ("comm_overlap=bf16", "null", None),
    ],
)
def test_a_wrong_type_says_what_is_legal(schema, text, legal, fix):
    (problem,) = problems(schema, text)
    assert problem.code == "wrong-type"
    assert legal in problem.message
    if fix is not None:
        assert fix in problem.hint


@pytest.mark.parametrize(
    "text", ["dataset.split=99,1,0", "model.num_layers=range(1,3)", "model@x=1", "model.num_layers", "a b=1", ""]
)
def test_text_outside_the_grammar_is_refused(schema, text):
    (problem,) = problems(schema, text)
    assert problem.code == "override-syntax"
    assert problem.hint


def test_the_hint_for_a_comma_can_be_run(schema):
    (problem,) = problems(schema, "dataset.split=99,1,0")
    fixed = problem.hint.partition('"')[2].rpartition('"')[0]
    assert values(schema, fixed) == {"dataset.split": "99,1,0"}


def test_every_problem_is_reported_at_once(schema):
    found = problems(schema, "model.num_layer=2", "model.num_layers=x", "a=1,2", "train.train_iters=5", "zzz=1")
    assert [problem.code for problem in found] == ["unknown-key", "wrong-type", "override-syntax", "unknown-key"]


def test_rendered_overrides_parse_to_the_same(schema):
    texts = ["+env_vars.A='x y'", "~env_vars.B", "model.recompute_modules=[a,b]", "optimizer.lr=1e-05", "model.vocab_size=null"]
    parsed = parse_overrides(texts, schema)
    again = parse_overrides(render_overrides(parsed), schema)
    assert [(item.path, item.value, item.operation) for item in again] == [
        (item.path, item.value, item.operation) for item in parsed
    ]
