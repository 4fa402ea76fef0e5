"""The override grammar against Hydra's own parser, and round trips."""

import math
import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autorecipe.catalog.store import open_catalog
from autorecipe.config.diff import diff_configs
from autorecipe.config.explain import explain_field
from autorecipe.config.grammar import GrammarError, parse_assignment, parse_plain, parse_with_hydra, render_value
from autorecipe.config.keys import KeyKind, locate_key
from autorecipe.config.overrides import parse_overrides, render_override
from autorecipe.config.resolve import resolve_config
from autorecipe.errors import UsageError

CATALOG = open_catalog()
SCHEMA = CATALOG.schema()
RECIPE = CATALOG.load("llama3_8b_pretrain_config")
PATHS = sorted(SCHEMA)

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=True),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=30),
)
WORDS = st.text(string.ascii_letters + string.digits + "_-. :,=[]{}()\\/", min_size=1, max_size=10)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=8,
)
PLAIN_KEYS = st.from_regex(r"[a-z_]{1,6}(\.[a-z_0-9]{1,6}){0,2}", fullmatch=True)
PLAIN_VALUES = st.one_of(
    st.text("0123456789abcdefINFnultrse_./-+eE ", max_size=12),
    st.text("Etm*|()2,. -_", max_size=12).map('"{}"'.format),
    st.text("abnulINF_-1,", max_size=12).map("[{}]".format),
)


def same(left, right):
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left) and math.isnan(right):
        return True
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return left == right


@given(key=PLAIN_KEYS, value=PLAIN_VALUES, prefix=st.sampled_from(["", "+", "++"]))
@example(key="a", value="-0", prefix="")
@example(key="a", value="1e5", prefix="")
@example(key="a", value="00", prefix="")
@example(key="a", value="-inf", prefix="")
@example(key="a", value="nan/", prefix="")
@example(key="a.0", value="1", prefix="")
@example(key="a", value='""', prefix="")
@example(key="a", value="[]", prefix="+")
@example(key="a", value="[nan,a-b]", prefix="")
@settings(max_examples=250, deadline=None)
def test_the_short_path_gives_what_hydra_gives(key, value, prefix):
    text = f"{prefix}{key}={value}"
    plain = parse_plain(text)
    if plain is None:
        return
    full = parse_with_hydra(text)
    assert (plain.operation, plain.key, plain.has_value) == (full.operation, full.key, full.has_value)
    assert same(plain.value, full.value)


@given(value=VALUES)
@example(value="it's")
@example(value="back\\slash")
@example(value="end\\")
@example(value="\\'")
@example(value="null")
@example(value="1_000")
@example(value={"a b": [1, {"c": None}]})
@example(value={"NULL": 1, "true": 2})
@example(value={"1_0": 1})
@example(value={"7": 1})
@settings(max_examples=200, deadline=None)
def test_rendering_round_trips(value):
    try:
        rendered = render_value(value)
    except GrammarError:
        return  # a key or value that the grammar cannot express is refused, not mangled
    try:
        parsed = parse_assignment(f"env_vars={rendered}")
    except GrammarError as error:
        pytest.fail(f"{rendered}: {error}")
    assert same(parsed.value, value), rendered


@given(text=st.one_of(st.text(max_size=40), st.builds("{}={}".format, st.sampled_from(PATHS), st.text(max_size=20))))
@settings(max_examples=200, deadline=None)
def test_no_string_crashes_and_none_is_accepted_without_a_declared_key(text):
    try:
        overrides = parse_overrides([text], SCHEMA)
    except UsageError as error:
        assert error.problems
        return
    for override in overrides:
        assert locate_key(override.path.removesuffix("._class"), SCHEMA).kind is not KeyKind.UNKNOWN
        assert override.path.startswith(override.text.lstrip("+~").split("=", 1)[0].split("@")[0].strip())


LEGAL = {"bool": True, "int": 3, "float": 0.5, "str": "some text", "none": None}


@given(path=st.sampled_from([path for path in PATHS if locate_key(path, SCHEMA).kind is KeyKind.FIELD]))
@settings(max_examples=80, deadline=None)
def test_a_value_of_the_declared_type_is_accepted_and_one_of_no_type_is_not(path):
    spec = locate_key(path, SCHEMA).spec
    for member in spec.members():
        if member.kind in LEGAL:
            assert parse_overrides([render_override(path, LEGAL[member.kind])], SCHEMA)[0].path == path
        if member.kind == "literal":
            for choice in member.choices:
                assert parse_overrides([render_override(path, choice)], SCHEMA)[0].value == choice
    kinds = {member.kind for member in spec.members()}
    if kinds <= {"bool", "int", "float", "none", "literal"}:
        with pytest.raises(UsageError, match=r"wrong-type"):
            parse_overrides([f"{path}=[not,a,scalar]"], SCHEMA)
    assert explain_field(path, SCHEMA).legal


MOVES = st.lists(
    st.sampled_from(
        [
            "model.tensor_model_parallel_size=2",
            "train.train_iters=10",
            "dataset.seq_length=512",
            "model.seq_length=7",
            "optimizer.weight_decay=0.5",
            "mixed_precision=fp16_mixed",
            "ddp.grad_reduce_in_fp32=false",
            "+env_vars.A=1",
            "scheduler.lr_decay_style=WSD",
            "rng.te_rng_tracker=true",
        ]
    ),
    max_size=6,
    unique=True,
)


@given(overrides=MOVES, world_size=st.sampled_from([None, 1, 8]))
@settings(max_examples=40, deadline=None)
def test_nothing_differs_from_itself_and_every_value_has_an_origin(overrides, world_size):
    first = resolve_config(RECIPE, SCHEMA, overrides, world_size=world_size)
    second = resolve_config(RECIPE, SCHEMA, overrides, world_size=world_size)
    assert diff_configs(first, second, SCHEMA) == ()
    assert set(first.origins) == set(first.values)


@given(overrides=MOVES, other=MOVES)
@settings(max_examples=40, deadline=None)
def test_a_difference_is_the_same_from_both_sides(overrides, other):
    first = resolve_config(RECIPE, SCHEMA, overrides)
    second = resolve_config(RECIPE, SCHEMA, other)
    there = {(change.path, change.layer) for change in diff_configs(first, second, SCHEMA) if not change.inert}
    back = {(change.path, change.layer) for change in diff_configs(second, first, SCHEMA) if not change.inert}
    assert there == back


@given(overrides=MOVES)
@settings(max_examples=25, deadline=None)
def test_the_order_of_independent_overrides_does_not_matter(overrides):
    forward = resolve_config(RECIPE, SCHEMA, overrides)
    backward = resolve_config(RECIPE, SCHEMA, overrides[::-1])
    assert forward.values == backward.values
