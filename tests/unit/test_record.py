"""Records behave as standard dataclasses do, before and after their constructor is compiled."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import pytest

from autorecipe import record


def declare_all(decorate: Callable[..., Any], field: Callable[..., Any]) -> dict[str, Any]:
    @decorate(frozen=True, kw_only=True)
    class Named:
        a: int
        b: str = "b"
        c: dict[str, int] = field(default_factory=dict)
        kind: ClassVar[str] = "named"

        @cached_property
        def twice(self) -> int:
            return 2 * self.a

    @decorate(frozen=True)
    class Placed:
        x: int
        y: int = field(default=2)

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("negative")

    @decorate(frozen=True)
    class Child(Placed):
        y: int = 5
        z: tuple[int, ...] = ()

    @decorate
    class Mutable:
        items: list[int] = field(default_factory=list)
        name: str = ""

    @decorate(frozen=True)
    class Single:
        value: int

    @decorate(frozen=True)
    class Empty:
        pass

    @decorate(frozen=True)
    class Own:
        value: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

        def __hash__(self) -> int:
            return 7

    @decorate(frozen=True)
    class Partly:
        a: int
        b: dict[str, int] = field(default_factory=dict, compare=False)

    return {item.__name__: item for item in (Named, Placed, Child, Mutable, Single, Empty, Own, Partly)}


STANDARD = declare_all(dataclasses.dataclass, dataclasses.field)
OURS = declare_all(record.declare, record._Default)

CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Named", (), {"a": 1}),
    ("Named", (), {"c": {"k": 1}, "a": 1, "b": "x"}),
    ("Named", (), {}),
    ("Named", (), {"b": "x", "c": {}}),
    ("Named", (), {"a": 1, "wrong": 2}),
    ("Named", (), {"wrong": 2}),
    ("Named", (1,), {}),
    ("Placed", (1,), {}),
    ("Placed", (1, 3), {}),
    ("Placed", (1,), {"y": 4}),
    ("Placed", (1,), {"x": 4}),
    ("Placed", (1, 2, 3), {}),
    ("Placed", (), {"y": 4, "x": 1}),
    ("Placed", (-1,), {}),
    ("Child", (1,), {}),
    ("Child", (1, 2, (3,)), {}),
    ("Child", (-1,), {}),
    ("Mutable", (), {}),
    ("Mutable", ([1], "n"), {}),
    ("Single", (1,), {}),
    ("Single", (), {}),
    ("Empty", (), {}),
    ("Empty", (1,), {}),
    ("Own", (1,), {}),
    ("Partly", (1,), {"b": {"k": 1}}),
]


def outcome(classes: dict[str, Any], name: str, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    try:
        made = classes[name](*args, **given)
    except (TypeError, ValueError) as error:
        return type(error)
    values = {item.name: getattr(made, item.name) for item in dataclasses.fields(made)}
    return values, repr(made).rsplit(".", 1)[-1], dataclasses.asdict(made), made == classes[name](*args, **given)


@pytest.fixture(params=["called", "compiled"])
def ours(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    if request.param == "called":
        return OURS
    monkeypatch.setattr(record, "COMPILED_AFTER", 1)
    fresh = declare_all(record.declare, record._Default)
    for kind in fresh.values():
        with pytest.raises(TypeError):
            kind(*range(9))  # the first call, right or wrong, brings the compiled constructor
        assert inspect.unwrap(kind.__init__).__code__.co_filename == "<string>"
    return fresh


@pytest.mark.parametrize(("name", "args", "given"), CALLS)
def test_constructors_agree(ours: dict[str, Any], name: str, args: tuple[Any, ...], given: dict[str, Any]) -> None:
    assert outcome(ours, name, args, given) == outcome(STANDARD, name, args, given)


@pytest.mark.parametrize("name", STANDARD)
def test_the_standard_functions_see_the_same_class(name: str) -> None:
    ours, standard = OURS[name], STANDARD[name]
    assert dataclasses.is_dataclass(ours)
    read = [
        [(item.name, item.type, item.default, item.default_factory) for item in dataclasses.fields(kind)]
        for kind in (ours, standard)
    ]
    assert read[0] == read[1]
    assert ours.__dataclass_params__.frozen == standard.__dataclass_params__.frozen
    assert ours.__match_args__ == standard.__match_args__
    assert (ours.__hash__ is None) == (standard.__hash__ is None)
    parameters = [[(item.name, item.kind) for item in inspect.signature(kind).parameters.values()] for kind in (ours, standard)]
    assert parameters[0] == parameters[1]


def test_frozen_records_refuse_assignment_and_hash_by_value() -> None:
    one, two = OURS["Child"](1, 2), OURS["Child"](1, y=2)
    assert one == two and hash(one) == hash(two) and len({one, two}) == 1
    assert one != OURS["Placed"](1, 2)
    assert hash(OURS["Single"](3)) == hash(STANDARD["Single"](3))
    assert hash(OURS["Own"](3)) == 7
    assert OURS["Partly"](1, {"k": 1}) == OURS["Partly"](1) and hash(OURS["Partly"](1, {"k": 1})) == hash(OURS["Partly"](1))
    assert OURS["Partly"](1) != OURS["Partly"](2)
    with pytest.raises(dataclasses.FrozenInstanceError, match="'x'"):
        one.x = 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.x
    changed = OURS["Mutable"]()
    changed.name = "new"
    assert changed == OURS["Mutable"](name="new")


def test_replace_keeps_the_rest_and_no_cached_value() -> None:
    before = OURS["Named"](a=1)
    assert before.twice == 2
    for after in (record.change(before, a=4), dataclasses.replace(before, a=4)):
        assert (after.a, after.b, after.twice) == (4, "b", 8)
    assert record.change(STANDARD["Single"](1), value=2) == STANDARD["Single"](2)
    with pytest.raises(TypeError, match="wrong"):
        record.change(before, wrong=1)
    with pytest.raises(ValueError, match="negative"):
        record.change(OURS["Placed"](1), x=-1)


def test_factories_make_a_value_for_each_instance(ours: dict[str, Any]) -> None:
    assert ours["Mutable"]().items is not ours["Mutable"]().items


def test_a_shared_mutable_default_is_refused() -> None:
    for default in ([], {}, set(), dataclasses.field(default=1)):
        with pytest.raises(TypeError, match="default_factory"):
            record.declare(type("Wrong", (), {"__annotations__": {"x": "list"}, "x": default}))


@record.dataclass(frozen=True)
class Portable:
    a: int
    b: tuple[int, ...] = ()


def test_instances_travel() -> None:
    one = Portable(1, (2,))
    assert pickle.loads(pickle.dumps(one)) == one == copy.deepcopy(one) == copy.copy(one)
    match one:
        case Portable(a, b):
            assert (a, b) == (1, (2,))


def test_a_standard_dataclass_may_inherit_from_a_record() -> None:
    @dataclasses.dataclass(frozen=True)
    class Below(Portable):
        c: int = 3

    assert repr(Below(1, (), 4)).endswith("Below(a=1, b=(), c=4)")


def test_field_names() -> None:
    assert record.field_names(Portable(1)) == ("a", "b")
    assert record.field_names(STANDARD["Single"](1)) == ("value",)
    assert record.field_names(3) is None


def test_the_constructor_changes_under_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "COMPILED_AFTER", 50)
    kind = declare_all(record.declare, record._Default)["Child"]
    wrong: list[Any] = []

    def make() -> None:
        for number in range(300):
            one = kind(number, z=(number,))
            if (one.x, one.y, one.z) != (number, 5, (number,)):
                wrong.append(one)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong
    assert kind.__init__.__code__.co_filename == "<string>"


def test_annotations_resolve() -> None:
    assert inspect.get_annotations(Portable, eval_str=True)["a"] is int
