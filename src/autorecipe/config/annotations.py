"""Type annotations of upstream fields, given as text, and the check of a value against one.

The schema of a release carries annotations such as `Optional[Literal['nccl', 'ucc']]` or `dict[str, int]`. They are read
without importing anything: unknown class names become `object` types, which accept what a command line can express for
them. Start reading at `parse_annotation`.
"""

from __future__ import annotations

import functools
from typing import Any

from autorecipe.record import dataclass
from autorecipe.schema.value import FieldValue

DTYPES = {
    "fp32": "float32",
    "float32": "float32",
    "float": "float32",
    "32": "float32",
    "fp16": "float16",
    "float16": "float16",
    "half": "float16",
    "16": "float16",
    "16-mixed": "float16",
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "bf16-mixed": "bfloat16",
    "fp8": "float8_e4m3fn",
    "float8_e4m3fn": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
    "uint8": "uint8",
    "int8": "int8",
}
"""Names that upstream resolves to a torch dtype (megatron/bridge/utils/activation_map.py @ 0.6.2), plus torch's own aliases."""

ENUMS: dict[str, tuple[str, ...]] = {
    "AttnBackend": ("flash", "fused", "unfused", "local", "auto"),
    "CudaGraphScope": (
        "full_iteration",
        "attn",
        "mlp",
        "moe",
        "moe_router",
        "moe_preprocess",
        "mamba",
        "full_iteration_inference",
    ),
    "CudaGraphModule": ("attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba"),
    "InferenceCudaGraphScope": ("none", "layer", "block"),
    "Signals": ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2"),
}
"""Members of the enums that fields use (megatron/core/transformer/enums.py @ 0.19.2)."""

CALLABLES = {
    "gelu": "torch._C._nn:gelu",
    "relu": "torch.nn.functional:relu",
    "silu": "torch.nn.functional:silu",
    "sigmoid": "torch.nn.functional:sigmoid",
    "tanh": "torch:_VariableFunctionsClass.tanh",
    "relu2": "megatron.core.activations:squared_relu",
    "squared_relu": "megatron.core.activations:squared_relu",
    "gelu_pytorch_tanh": "megatron.core.activations:fast_gelu",
    "fast_gelu": "megatron.core.activations:fast_gelu",
    "quick_gelu": "megatron.core.fusions.fused_bias_geglu:quick_gelu",
}
"""Activation names that upstream accepts as text for `activation_func` (megatron/bridge/utils/activation_map.py @ 0.6.2), in
the catalog's spelling; no other callable can be given on a command line."""


@dataclass(frozen=True)
class TypeSpec:
    """One parsed annotation.

    Attributes:
        kind: `bool`, `int`, `float`, `str`, `none`, `any`, `dtype`, `callable`, `literal`, `enum`, `list`, `tuple`, `set`,
            `dict`, `union` or `object` (a class that is not read).
        arguments: element types (`list`, `set`, `tuple`), key and value types (`dict`), or members (`union`).
        choices: legal values of a `literal`, member names of an `enum`.
        name: class name of an `enum` or `object`.
    """

    kind: str
    arguments: tuple[TypeSpec, ...] = ()
    choices: tuple[Any, ...] = ()
    name: str = ""

    def members(self) -> tuple[TypeSpec, ...]:
        """Return the members of a union, or the type itself."""
        return self.arguments if self.kind == "union" else (self,)

    def first(self, *kinds: str) -> TypeSpec | None:
        """Return the first member of one of these kinds."""
        return next((member for member in self.members() if member.kind in kinds), None)


@dataclass(frozen=True)
class Checked:
    """Result of a check: whether the value is legal, and the value in the catalog's spelling."""

    legal: bool
    value: FieldValue = None


@functools.lru_cache(maxsize=4096)
def parse_annotation(text: str) -> TypeSpec:
    """Parse an annotation; what cannot be read becomes an `object` type, never an error.

    Args:
        text: such as `Optional[int]`, `<class 'int'>`, `str | dict[str, Any] | None`, `AttnBackend`.
    """
    from autorecipe.config.annotation_reader import read_annotation  # Python's parser, which only overrides need

    return read_annotation(text)


def check_value(spec: TypeSpec, value: FieldValue) -> Checked:
    """Check a value that came from an override.

    Args:
        spec: parsed annotation.
        value: None, bool, int, float, str, list or dict.

    Returns:
        whether it is legal, and the value spelt as the catalog does (`bf16` -> `torch.bfloat16`, `flash` ->
        `AttnBackend.flash`, `silu` -> `torch.nn.functional:silu`).
    """
    if spec.kind == "union":
        results = [check_value(member, value) for member in spec.arguments]
        return next((result for result in results if result.legal), Checked(False))
    if spec.kind == "any":
        return Checked(True, value)
    if spec.kind == "none":
        return Checked(value is None)
    if spec.kind in ("list", "tuple", "set"):
        return _check_sequence(spec, value)
    if spec.kind == "dict":
        return _check_dict(spec, value)
    return _check_scalar(spec, value)


def _check_scalar(spec: TypeSpec, value: FieldValue) -> Checked:
    if spec.kind == "bool":
        return Checked(isinstance(value, bool), value)
    if spec.kind == "int":
        return Checked(isinstance(value, int) and not isinstance(value, bool), value)
    if spec.kind == "float":
        return Checked(isinstance(value, int | float) and not isinstance(value, bool), value)
    if spec.kind == "str":
        return Checked(isinstance(value, str), value)
    if spec.kind == "literal":
        legal = any(value == choice and type(value) is type(choice) for choice in spec.choices)
        return Checked(legal, value)
    if spec.kind == "dtype":
        if isinstance(value, dict) and value.get("_call_") is False:  # Bridge's own way to write one
            value = value.get("_target_")
        name = DTYPES.get(str(value).removeprefix("torch.")) if isinstance(value, str | int) else None
        return Checked(name is not None and not isinstance(value, bool), f"torch.{name}")
    if spec.kind == "enum":
        name = str(value).rsplit(".", 1)[-1] if isinstance(value, str) else ""
        return Checked(name in spec.choices, f"{spec.name}.{name}")
    if spec.kind == "callable":
        name = value.removeprefix("torch.nn.functional.").removeprefix("torch.") if isinstance(value, str) else ""
        if name in CALLABLES:
            return Checked(True, CALLABLES[name])
        return Checked(value in CALLABLES.values() if isinstance(value, str) else False, value)
    # A class that is not read: a scalar cannot build one, a mapping with `_target_` can.
    return Checked(isinstance(value, dict) and "_target_" in value, value)


def _check_sequence(spec: TypeSpec, value: FieldValue) -> Checked:
    if not isinstance(value, list | tuple):
        return Checked(False)
    items = list(value)
    if spec.kind == "tuple" and spec.arguments:
        if len(items) != len(spec.arguments):
            return Checked(False)
        results = [check_value(argument, item) for argument, item in zip(spec.arguments, items, strict=True)]
    elif spec.arguments:
        results = [check_value(spec.arguments[0], item) for item in items]
    else:
        return Checked(True, items)
    return Checked(all(result.legal for result in results), [result.value for result in results])


def _check_dict(spec: TypeSpec, value: FieldValue) -> Checked:
    if not isinstance(value, dict):
        return Checked(False)
    if len(spec.arguments) != 2:
        return Checked(True, value)
    results = {key: check_value(spec.arguments[1], item) for key, item in value.items()}
    legal = all(result.legal for result in results.values()) and all(check_value(spec.arguments[0], key).legal for key in value)
    return Checked(legal, {key: result.value for key, result in results.items()})


def describe_type(spec: TypeSpec) -> str:
    """Say in words what is legal for a type, such as `an integer or null`."""
    if spec.kind == "union":
        texts = [describe_type(member) for member in spec.arguments if member.kind != "none"]
        if any(member.kind == "none" for member in spec.arguments):
            texts.append("null")
        return " or ".join(texts)
    if spec.kind in ("literal", "enum"):
        choices = ", ".join(str(choice) for choice in spec.choices)
        return f"one of {choices}" if len(spec.choices) > 1 else choices
    if spec.kind in ("list", "set") and spec.arguments:
        return f"a list whose items are {describe_type(spec.arguments[0])}"
    if spec.kind == "tuple" and spec.arguments:
        return f"a list of {len(spec.arguments)} items: {', '.join(describe_type(item) for item in spec.arguments)}"
    if spec.kind == "dict" and len(spec.arguments) == 2 and spec.arguments[1].kind != "any":
        return f"a dictionary with values {describe_type(spec.arguments[1])}"
    return {
        "bool": "true or false",
        "int": "an integer",
        "float": "a number",
        "str": "a string",
        "none": "null",
        "any": "anything",
        "dtype": "a dtype such as bf16, fp16, fp32",
        "callable": f"an activation name ({', '.join(CALLABLES)})",
        "list": "a list",
        "tuple": "a list",
        "set": "a list",
        "dict": "a dictionary",
    }.get(spec.kind, f"a {spec.name.rsplit('.', 1)[-1]} (cannot be written as text; {{_target_: ...}} builds one)")
