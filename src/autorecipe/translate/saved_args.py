"""Reading the arguments out of a Megatron-LM checkpoint file without torch, and without running what the file says.

`torch.save` writes a zip with one pickle. Only plain containers, `argparse.Namespace` and names are built from it; every
other class becomes an inert mark that keeps its name, and tensors are skipped. A distributed checkpoint keeps the arguments in
`common.pt`, from core 0.19 on as one object in its own files, which `.metadata` locates. Start reading at `load_saved_args`.
"""

from __future__ import annotations

import argparse
import collections
import io
import pickle
import signal
import zipfile
from pathlib import Path
from typing import Any

from autorecipe.errors import Problem, UsageError
from autorecipe.schema.value import FieldValue

_INDEX = ".metadata"
_COMMON = "common_state/shard_"
"""Key of the object with all that is no tensor. Source: megatron/core/dist_checkpointing/serialization.py @ core 0.19.2."""

_FILES = ("common.pt", "model_optim_rng.pt", _INDEX)
"""Where arguments are; of several in the last folder the first that is there."""

_MAX_PICKLE_BYTES = 512 * 2**20
_PLAIN = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "list"): list,
    ("builtins", "dict"): dict,
    ("builtins", "tuple"): tuple,
}
_DTYPES = {"float32": "fp32", "float": "fp32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "uint8": "fp8"}


class Mark:
    """Stands for an object that is not built: its class's name, and what it was made from."""

    module = ""
    name = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        """Ignore items: the container is not built."""

    def append(self, item: Any) -> None:
        """Ignore items: the container is not built."""

    def extend(self, items: Any) -> None:
        """Ignore items: the container is not built."""


class _SafeNamespace(argparse.Namespace):
    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("argparse", "Namespace"):
            return _SafeNamespace
        plain = _PLAIN.get((module, name))
        return plain if plain is not None else type("Mark", (Mark,), {"module": module, "name": name})

    def persistent_load(self, pid: Any) -> Any:
        return None


def load_saved_args(path: Path) -> dict[str, FieldValue]:
    """Return the saved arguments of a checkpoint file, by destination.

    Args:
        path: `common.pt` or `.metadata` of a distributed checkpoint, `model_optim_rng.pt` of a legacy one, or a folder with one.

    Raises:
        UsageError: no such file, not written by `torch.save`, or no arguments inside.
    """
    file = _find_file(path)
    if file.name == _INDEX:
        content = _common_state(file)
    elif zipfile.is_zipfile(file):
        content = _read_archive(file, file)
    else:
        raise UsageError(
            Problem(
                code="not-a-checkpoint",
                path=str(file),
                message="is not a zip as torch.save writes it since torch 1.6",
                hint="save the arguments as YAML where torch is installed, then use --yaml FILE: "
                'python -c "import torch,yaml;yaml.safe_dump({k:v for k,v in '
                "vars(torch.load('common.pt',weights_only=False)['args']).items()"
                " if isinstance(v,(int,float,str,list,type(None)))},open('args.yaml','w'))\"",
            )
        )
    saved = content.get("args") if isinstance(content, dict) else content
    if not isinstance(saved, argparse.Namespace):
        message = "holds no Megatron-LM arguments (key `args`)"
        raise UsageError(Problem(code="no-saved-args", path=str(file), message=message))
    return {dest: _plain(value) for dest, value in vars(saved).items()}


def _read_archive(source: Path | io.BytesIO, file: Path) -> Any:
    with zipfile.ZipFile(source) as archive:
        member = next((info for info in archive.infolist() if info.filename.endswith("data.pkl")), None)
        if member is None or member.file_size > _MAX_PICKLE_BYTES:
            raise UsageError(Problem(code="not-a-checkpoint", path=str(file), message="holds no data.pkl of a readable size"))
        data = archive.read(member)
    return _unpickle(data, file)


def _unpickle(data: bytes, file: Path) -> Any:
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except Exception as error:  # a pickle can fail in any way; the file is the user's
        message = f"cannot be read: {type(error).__name__}: {error}"
        raise UsageError(Problem(code="not-a-checkpoint", path=str(file), message=message)) from error


def _common_state(index: Path) -> Any:
    """Return the object with the arguments, which lies in one of the files beside the index."""
    state = getattr(_unpickle(index.read_bytes(), index), "state", None)
    places = state.get("storage_data") if isinstance(state, dict) else None
    for key, place in places.items() if isinstance(places, dict) else ():
        name, where = getattr(key, "state", None), getattr(place, "state", None)
        if isinstance(name, dict) and isinstance(where, dict) and str(name.get("fqn")).startswith(_COMMON):
            file, offset, length = (where.get(part) for part in ("relative_path", "offset", "length"))
            if not (isinstance(file, str) and Path(file).name == file and isinstance(offset, int) and isinstance(length, int)):
                break
            data = _read_slice(index.parent / file, offset, length)
            stream = io.BytesIO(data)
            if not zipfile.is_zipfile(stream):
                break
            content = _read_archive(stream, index.parent / file)
            return content[0] if isinstance(content, list) and len(content) == 1 else content
    message = "locates no object with Megatron-LM arguments (key `common_state`)"
    raise UsageError(Problem(code="no-saved-args", path=str(index), message=message))


def _read_slice(file: Path, offset: int, length: int) -> bytes:
    try:
        with file.open("rb") as stream:
            stream.seek(offset)
            data = stream.read(min(length, _MAX_PICKLE_BYTES))
    except (OSError, ValueError) as error:
        raise UsageError(Problem(code="unreadable", path=str(file), message=str(error))) from error
    if len(data) != length:
        message = f"ends early: {length} bytes at {offset} hold the arguments, {len(data)} are there"
        raise UsageError(Problem(code="not-a-checkpoint", path=str(file), message=message))
    return data


def _find_file(path: Path) -> Path:
    if path.is_file():
        return path
    if path.is_dir():
        found = [file for name in _FILES for file in path.rglob(name)]
        if found:
            return max(found, key=lambda file: (file.parent, -_FILES.index(file.name)))
    message = "no such file" if not path.exists() else f"holds none of {', '.join(_FILES)}"
    raise UsageError(Problem(code="no-such-checkpoint", path=str(path), message=message))


def _plain(value: Any) -> FieldValue:
    if isinstance(value, Mark):
        enum_value = value.args[0] if value.args else None
        return _member_name(value, enum_value)
    if isinstance(value, type) and issubclass(value, Mark):
        return _DTYPES.get(value.name, value.name) if value.module == "torch" else f"{value.module}:{value.name}"
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


_GRAPHS = ("attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba")
_ENUMS: dict[str, tuple[str, ...]] = {
    "AttnBackend": ("flash", "fused", "unfused", "local", "auto"),
    "CudaGraphModule": _GRAPHS,
    "CudaGraphScope": ("full_iteration", *_GRAPHS, "full_iteration_inference"),
    "InferenceCudaGraphScope": ("none", "layer", "block"),
}
"""Enum -> members, numbered from 1. Source: megatron/core/transformer/enums.py @ core 0.19.2."""


def _member_name(mark: Mark, number: Any) -> FieldValue:
    """Return the name of an enum member that is stored by number, else its class."""
    names = _ENUMS.get(mark.name, ())
    if isinstance(number, int) and 1 <= number <= len(names):
        return names[number - 1]
    if mark.module == "signal" and isinstance(number, int) and number in set(signal.Signals):
        return signal.Signals(number).name
    return f"{mark.name}({number})" if number is not None else mark.name
