"""`dataclass`, `field` and `replace` that need no compiler.

The standard decorator writes six methods per class as text and compiles them, some 0.6 ms; an answer imports ninety classes.
Here the methods are ordinary functions that know the names of the fields, so a class costs some 0.02 ms and a start a third
less; only the constructor of a class that is made hundreds of times is compiled (docs/decisions/0003-records.md).

A type checker sees the standard functions; `dataclasses.fields`, `replace`, `asdict` and `is_dataclass` work on the classes.
Leaves out what the project does not use: `order`, `init`, and options of single fields beyond default and comparison. Classes
with `slots` take the standard decorator. Start at `declare`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn

_NONE: Any = object()
_SET = object.__setattr__

COMPILED_AFTER = 200
"""Instances of a class after which its constructor is compiled: loops of a planner are as fast as with the standard decorator."""


class _Default:
    """Stands in a class body for a field: its default, or what makes one for each instance, and whether it is compared."""

    def __init__(self, *, default: Any = _NONE, default_factory: Callable[[], Any] = _NONE, compare: bool = True) -> None:
        self.default = default
        self.default_factory = default_factory
        self.compare = compare


class _Shape:
    """What the methods of one class know.

    Attributes:
        types: annotation by field, in order.
        positional: fields that may be given without their name.
        defaults: value by field.
        factories: maker of a value by field.
        ignored: fields that comparison and hash leave out.
        frozen: whether assigning is refused.
        key: instance -> something that compares and hashes like the tuple of its values.
    """

    def __init__(self, parents: list[_Shape]) -> None:
        self.types: dict[str, Any] = {}
        self.positional: tuple[str, ...] = ()
        self.defaults: dict[str, Any] = {}
        self.factories: dict[str, Callable[[], Any]] = {}
        self.ignored: set[str] = set()
        self.frozen = False
        self.key: Callable[[object], Any] = _no_values
        for parent in parents:
            self.types |= parent.types
            self.positional += tuple(name for name in parent.positional if name not in self.positional)
            self.defaults |= parent.defaults
            self.factories |= parent.factories
            self.ignored |= parent.ignored


def declare(cls: type | None = None, /, *, frozen: bool = False, kw_only: bool = False) -> Any:
    """Make a class a dataclass.

    Args:
        cls: class with annotated fields.
        frozen: whether assigning to a field is refused; only then do instances have a hash.
        kw_only: whether its own fields must be given by name.

    Raises:
        TypeError: a field whose default is a list, dictionary or set.
    """
    if cls is None:
        return lambda decorated: declare(decorated, frozen=frozen, kw_only=kw_only)
    shape = _Shape([vars(base)["__record__"] for base in reversed(cls.__mro__[1:]) if "__record__" in vars(base)])
    own = [(name, kind) for name, kind in vars(cls).get("__annotations__", {}).items() if "ClassVar" not in str(kind)]
    for name, kind in own:
        shape.types[name] = kind
        _read_default(cls, shape, name)
    if not kw_only:
        shape.positional += tuple(name for name, _ in own if name not in shape.positional)
    shape.frozen = frozen
    shape.key = _make_key(tuple(name for name in shape.types if name not in shape.ignored))
    methods: dict[str, Any] = {
        "__record__": shape,
        "__init__": _make_init(cls, shape),
        "__repr__": _represent,
        "__eq__": _equal,
        "__hash__": _hash if frozen else None,
        "__match_args__": shape.positional,
        "__signature__": _Signature(),
        "__dataclass_fields__": _StandardFields(),
        "__dataclass_params__": _StandardParameters(),
    }
    if frozen:
        methods |= {"__setattr__": _refuse_assignment, "__delattr__": _refuse_deletion}
    for name, method in methods.items():
        if name not in vars(cls) or (name == "__hash__" and vars(cls)[name] is None):
            setattr(cls, name, method)
    return cls


def change(instance: Any, /, **changes: Any) -> Any:
    """Return a copy of a dataclass instance with some fields changed."""
    shape = getattr(type(instance), "__record__", None)
    if shape is None:
        import dataclasses

        return dataclasses.replace(instance, **changes)
    values = vars(instance)
    return type(instance)(**{**{name: values[name] for name in shape.types}, **changes})


def field_names(value: object) -> tuple[str, ...] | None:
    """Return the names of the fields of a dataclass instance, or None for any other value."""
    shape = getattr(type(value), "__record__", None)
    if shape is not None:
        return tuple(shape.types)
    if not hasattr(type(value), "__dataclass_fields__"):
        return None
    import dataclasses

    return tuple(item.name for item in dataclasses.fields(value))  # type: ignore[arg-type]


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import replace as replace
else:
    dataclass, field, replace = declare, _Default, change


def _read_default(cls: type, shape: _Shape, name: str) -> None:
    shape.defaults.pop(name, None)
    shape.factories.pop(name, None)
    shape.ignored.discard(name)
    if name not in vars(cls):
        return
    default = vars(cls)[name]
    if isinstance(default, _Default):
        if not default.compare:
            shape.ignored.add(name)
        if default.default_factory is not _NONE:
            shape.factories[name] = default.default_factory
        if default.default is _NONE:
            delattr(cls, name)
            return
        default = default.default
        setattr(cls, name, default)
    if default.__class__.__hash__ is None or type(default).__module__ == "dataclasses":
        raise TypeError(f"{cls.__qualname__}.{name}: use field(default_factory=...) of autorecipe.record for this default")
    shape.defaults[name] = default


def _make_init(cls: type, shape: _Shape) -> Callable[..., None]:
    names, defaults, factories = shape.types.keys(), shape.defaults, shape.factories
    is_finished = hasattr(cls, "__post_init__")
    made = 0

    def __init__(self: Any, /, *args: Any, **given: Any) -> None:
        nonlocal made
        made += 1
        if made == COMPILED_AFTER and vars(cls)["__init__"] is __init__:
            setattr(cls, "__init__", _compile_init(shape, is_finished=is_finished))  # noqa: B010 - mypy knows no such assignment
        if args:
            given = _bind(self, args, given)
        if given.keys() != names:
            fresh = {name: make() for name, make in factories.items() if name not in given}
            given = {**defaults, **fresh, **given}
            if given.keys() != names:
                _refuse_arguments(self, given)
        for name, value in given.items():
            _SET(self, name, value)
        if is_finished:
            self.__post_init__()

    return __init__


def _compile_init(shape: _Shape, *, is_finished: bool) -> Callable[..., None]:
    """Write the constructor as the standard decorator does: for a class that is made in a loop the compiler pays."""
    named = [name for name in shape.types if name not in shape.positional]
    world: dict[str, Any] = {"_set": _SET, "_NONE": _NONE}
    parameters, lines = ["self"], []
    for name in (*shape.positional, *named):
        if name in named and "*" not in parameters:
            parameters.append("*")
        value = name
        if name in shape.defaults:
            world[f"_default_{name}"] = shape.defaults[name]
            parameters.append(f"{name}=_default_{name}")
        elif name in shape.factories:
            world[f"_make_{name}"] = shape.factories[name]
            parameters.append(f"{name}=_NONE")
            value = f"_make_{name}() if {name} is _NONE else {name}"
        else:
            parameters.append(name)
        lines.append(f"    _set(self, {name!r}, {value})")
    lines.append("    self.__post_init__()" if is_finished else "    return None")
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines), world)  # names of fields, from the source of the class
    made: Callable[..., None] = world["__init__"]
    return made


def _bind(instance: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    positional = instance.__record__.positional
    named: dict[str, Any] = dict(zip(positional, args, strict=False))
    if len(args) > len(positional):
        raise TypeError(f"{type(instance).__qualname__}() takes {len(positional)} positional arguments, {len(args)} were given")
    for name in named.keys() & given.keys():
        raise TypeError(f"{type(instance).__qualname__}() got multiple values for argument {name!r}")
    return {**named, **given}


def _refuse_arguments(instance: Any, given: Mapping[str, Any]) -> NoReturn:
    names = instance.__record__.types
    unexpected = [repr(name) for name in given if name not in names]
    missing = [repr(name) for name in names if name not in given]
    said = ["got unexpected " + ", ".join(unexpected)] if unexpected else []
    said += ["lacks " + ", ".join(missing)] if missing else []
    raise TypeError(f"{type(instance).__qualname__}() {' and '.join(said)}")


def _no_values(instance: object) -> tuple[()]:
    return ()


def _make_key(names: tuple[str, ...]) -> Callable[[object], Any]:
    if len(names) > 1:
        return attrgetter(*names)
    return (lambda instance: (getattr(instance, names[0]),)) if names else _no_values


@recursive_repr()
def _represent(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__record__.types)})"


def _equal(self: Any, other: Any) -> Any:
    return self.__record__.key(self) == self.__record__.key(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(self.__record__.key(self))


def _refuse_assignment(self: Any, name: str, value: object) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: Any, name: str) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


class _Standard:
    """What the standard functions look for on a class, made from its shape when they do."""

    def __init__(self) -> None:
        self.made: Any = None

    def __get__(self, instance: object, owner: Any) -> Any:
        if self.made is None:
            self.made = self.make(owner.__record__)
        return self.made

    def make(self, shape: _Shape) -> Any:
        """Return the standard object."""
        raise NotImplementedError


class _StandardFields(_Standard):
    """`__dataclass_fields__`."""

    def make(self, shape: _Shape) -> Any:
        """Let the standard decorator make them for a class of the same fields."""
        import dataclasses

        made: Any = dataclasses.make_dataclass("Fields", _standard(shape), init=False, repr=False, eq=False)
        return made.__dataclass_fields__


class _StandardParameters(_Standard):
    """`__dataclass_params__`."""

    def make(self, shape: _Shape) -> Any:
        """Let the standard decorator make them for a class without fields."""
        import dataclasses

        made: Any = dataclasses.make_dataclass("Parameters", (), frozen=shape.frozen)
        return made.__dataclass_params__


class _Signature(_Standard):
    """`__signature__`, which tools read instead of the shared constructor's."""

    def make(self, shape: _Shape) -> Any:
        """Return the signature of a constructor with these fields."""
        import inspect

        named = [name for name in shape.types if name not in shape.positional]
        return inspect.Signature(
            [
                inspect.Parameter(
                    name,
                    inspect.Parameter.POSITIONAL_OR_KEYWORD if name in shape.positional else inspect.Parameter.KEYWORD_ONLY,
                    default=shape.defaults.get(name, shape.factories.get(name, inspect.Parameter.empty)),
                    annotation=shape.types[name],
                )
                for name in (*shape.positional, *named)
            ]
        )


def _standard(shape: _Shape) -> list[Any]:
    import dataclasses

    fields = []
    for name, kind in shape.types.items():
        options: dict[str, Any] = {"kw_only": name not in shape.positional, "compare": name not in shape.ignored}
        if name in shape.defaults:
            options["default"] = shape.defaults[name]
        elif name in shape.factories:
            options["default_factory"] = shape.factories[name]
        fields.append((name, kind, dataclasses.field(**options)))
    return fields
