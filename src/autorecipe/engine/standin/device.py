"""Tensors, generators, streams: what `torch.cuda` answers when there is only a CPU.

One generator serves both "CUDA" and the CPU, because there is only one here. Leaves out collectives.
"""

from __future__ import annotations

import contextlib
import logging
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_TENSOR_TYPES = ("FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "LongTensor", "IntTensor", "ByteTensor")
_HOST = torch.device("cpu")


def install() -> None:
    """Replace the `torch.cuda` calls that Megatron-Core makes, and send every CUDA device to the CPU."""
    _replace_cuda_functions()
    _send_tensors_to_host()
    # The tracker of model-parallel generators notices that "its" generator is the CPU's and says so on every fork.
    logging.getLogger("megatron.core.tensor_parallel.random").addFilter(_is_not_generator_notice)


class HostMode(TorchFunctionMode):
    """Rewrites device arguments from CUDA to the CPU in every torch call made by Python code."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one torch call with its device arguments rewritten."""
        if func in _REWRITTEN:
            return _REWRITTEN[func](func, args, kwargs or {})
        if not kwargs:  # by far the most calls: every product and sum of a forward pass comes through here
            return func(*args)
        return func(*args, **_host_arguments(kwargs))


def is_cuda_device(value: Any) -> bool:
    """Return whether a `device` argument means a CUDA device (a name, an index or a torch device)."""
    if isinstance(value, bool) or value is None:
        return False
    if isinstance(value, int):
        return True
    return str(value).split(":", 1)[0] == "cuda"


class Idle:
    """Stands for a stream or an event: accepts every call and waits for nothing."""

    device = _HOST
    device_index = 0
    stream_id = 0
    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> Idle:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def record(self, *_: Any) -> None:
        """Record nothing."""

    def record_event(self, event: Any = None) -> Any:
        """Return the event given, or a fresh idle one."""
        return event if event is not None else Idle()

    def wait(self, *_: Any) -> None:
        """Wait for nothing."""

    wait_event = wait_stream = synchronize = wait

    def query(self) -> bool:
        """Return that all work is done."""
        return True

    def elapsed_time(self, _: Any) -> float:
        """Return zero milliseconds: nothing was recorded."""
        return 0.0


def _host_arguments(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return keyword arguments that name the CPU where they named a CUDA device."""
    changes: dict[str, Any] = {}
    if is_cuda_device(kwargs.get("device")):
        changes["device"] = _HOST
    if kwargs.get("pin_memory"):
        changes["pin_memory"] = False
    return {**kwargs, **changes} if changes else kwargs


def _stay(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Answer `tensor.cuda()` and `tensor.pin_memory()`: the tensor is where it belongs."""
    return args[0]


def _move(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Answer `tensor.to(device)`."""
    if len(args) > 1 and is_cuda_device(args[1]):
        args = (args[0], _HOST, *args[2:])
    return func(*args, **_host_arguments(kwargs))


def _tensor_type(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Answer `tensor.type()` as on CUDA: the distributed optimizer sorts parameters by that name."""
    if len(args) == 1 and not kwargs:
        name = func(*args)
        return name.replace("torch.", "torch.cuda.", 1) if args[0].device.type == "cpu" else name
    if len(args) > 1 and isinstance(args[1], str):
        args = (args[0], args[1].replace("torch.cuda.", "torch."), *args[2:])
    return func(*args, **kwargs)


_REWRITTEN: dict[Any, Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]] = {
    torch.Tensor.cuda: _stay,
    torch.Tensor.pin_memory: _stay,
    torch.Tensor.to: _move,
    torch.Tensor.type: _tensor_type,
}
"""Torch calls that need more than a rewritten `device=`."""


def _send_tensors_to_host() -> None:
    def keep(module: torch.nn.Module, *_: Any, **__: Any) -> torch.nn.Module:
        return module

    torch.nn.Module.cuda = keep
    mode = HostMode()
    mode.__enter__()
    # The autograd engine runs backward functions outside the mode; what they allocate must land on the CPU as well.
    run_backward = torch.autograd._engine_run_backward

    def run_backward_on_host(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return run_backward(*args, **kwargs)

    torch.autograd._engine_run_backward = run_backward_on_host


def _replace_cuda_functions() -> None:
    cuda = torch.cuda
    properties = types.SimpleNamespace(
        name="cpu", major=8, minor=0, total_memory=0, multi_processor_count=1, gcnArchName="", warp_size=32
    )
    answers: dict[str, Any] = {
        "current_device": _HOST,
        "device_count": 1,
        "current_stream": Idle(),
        "default_stream": Idle(),
        "is_current_stream_capturing": False,
        "get_device_capability": (8, 0),
        "get_device_properties": properties,
        "get_device_name": "cpu",
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "memory_reserved": 0,
        "max_memory_reserved": 0,
        "memory_stats": {},
        "mem_get_info": (0, 0),
    }
    for name, value in answers.items():
        setattr(cuda, name, _answer(value))
    for name in ("set_device", "synchronize", "empty_cache", "ipc_collect", "set_stream", "reset_peak_memory_stats"):
        setattr(cuda, name, _answer(None))
    for name in ("stream", "device"):
        setattr(cuda, name, lambda *_, **__: contextlib.nullcontext())
    cuda.Stream = cuda.Event = Idle
    cuda.nvtx.range_push = cuda.nvtx.range_pop = _answer(None)
    for name in _TENSOR_TYPES:
        setattr(cuda, name, getattr(torch, name))
    _replace_generators()


def _replace_generators() -> None:
    cuda = torch.cuda

    def seed(value: int) -> None:
        torch.default_generator.manual_seed(int(value))

    def get_state(*_: Any, **__: Any) -> torch.Tensor:
        return torch.get_rng_state()

    def set_state(state: torch.Tensor, *_: Any, **__: Any) -> None:
        torch.set_rng_state(state)

    cuda.manual_seed = seed
    cuda.manual_seed_all = _answer(None)  # torch.manual_seed calls it after having seeded the one generator
    cuda.get_rng_state = cuda.random.get_rng_state = get_state
    cuda.set_rng_state = cuda.random.set_rng_state = set_state
    cuda.default_generators = (torch.default_generator,)


def _answer(value: Any) -> Callable[..., Any]:
    def reply(*_: Any, **__: Any) -> Any:
        return value

    return reply


def _is_not_generator_notice(record: logging.LogRecord) -> bool:
    return "CPU RNG state changed" not in record.getMessage()
