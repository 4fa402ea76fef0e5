"""The lazy decorator gives what the standard one gives, whatever is asked for first."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import autorecipe.lazyclass


def make(decorate: Callable[..., Any], **options: Any) -> Any:
    class Point:
        x: int
        y: int = 2
        tags: tuple[str, ...] = dataclasses.field(default=(), repr=False)

        def norm(self) -> int:
            return self.x + self.y

    return decorate(**options)(Point)


FROZEN = {"frozen": True, "kw_only": True}
USES: dict[str, Callable[[Any], Any]] = {
    "repr": lambda cls: repr(cls(x=1)),
    "equal": lambda cls: (cls(x=1) == cls(x=1), cls(x=1) == cls(x=2)),
    "fields": lambda cls: [(item.name, item.default) for item in dataclasses.fields(cls)],
    "replace": lambda cls: dataclasses.replace(cls(x=1), y=5).norm(),
    "is": dataclasses.is_dataclass,
    "signature": lambda cls: str(inspect.signature(cls)),
    "match": lambda cls: cls.__match_args__,
    "default": lambda cls: cls(x=1).tags,
    "wrong": lambda cls: failure(lambda: cls(nothing=1)),
    "subclass": lambda cls: repr(type("Below", (cls,), {})(x=4)),
    "super": lambda cls: repr(type("Below", (cls,), {"__init__": lambda self: cls.__init__(self, x=9)})()),
    "derived": lambda cls: [
        item.name for item in dataclasses.fields(dataclasses.make_dataclass("More", [("z", int, 0)], bases=(cls,)))
    ],
}


def failure(call: Callable[[], object]) -> str:
    with pytest.raises(Exception) as caught:
        call()
    return f"{caught.type.__name__}: {caught.value}"


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("options", [{}, {"order": True}, {"kw_only": True}], ids=str)
def test_each_first_use_gives_what_the_standard_decorator_gives(use: str, options: dict[str, Any]) -> None:
    assert USES[use](make(autorecipe.lazyclass.dataclass, **options)) == USES[use](make(dataclasses.dataclass, **options))


@pytest.mark.parametrize("use", [use for use in USES if use != "derived"])
def test_frozen_classes_too(use: str) -> None:
    assert USES[use](make(autorecipe.lazyclass.dataclass, **FROZEN)) == USES[use](make(dataclasses.dataclass, **FROZEN))


def test_a_frozen_instance_stays_frozen_and_hashable() -> None:
    cls = make(autorecipe.lazyclass.dataclass, **FROZEN)
    one = cls(x=1)
    for change in (lambda: setattr(one, "x", 2), lambda: setattr(one, "new", 2), lambda: delattr(one, "x")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    assert hash(one) == hash(cls(x=1))
    assert len({one, cls(x=1), cls(x=2)}) == 2


def test_an_instance_that_was_never_initialised_is_frozen_and_compares() -> None:
    cls = make(autorecipe.lazyclass.dataclass, **FROZEN)
    one, two = cls.__new__(cls), cls.__new__(cls)
    for item in (one, two):
        item.__dict__.update(x=1, y=2, tags=())
    assert one == two
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.x = 3


@autorecipe.lazyclass.dataclass(frozen=True)
class Sent:
    """At module level, so that it can be pickled."""

    name: str


def test_pickling_works() -> None:
    assert pickle.loads(pickle.dumps(Sent("a"))) == Sent("a")


def test_methods_of_the_class_itself_are_kept() -> None:
    @autorecipe.lazyclass.dataclass
    class Own:
        x: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    assert repr(Own(1)) == "own"
    assert Own(1) == 7


def test_a_class_that_nobody_uses_stays_unwritten() -> None:
    cls = make(autorecipe.lazyclass.dataclass, **FROZEN)
    assert type(cls.__dict__["__init__"]).__name__ == "_Method"
    cls(x=1)
    assert inspect.isfunction(cls.__dict__["__init__"])
