"""Evaluates one recipe function: calls it as the GPU in its name, writes the result, and asks what the device changed."""

from __future__ import annotations

import inspect
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autorecipe.catalog.evaluator.container import ContainerWriter
from autorecipe.catalog.evaluator.discovery import Export
from autorecipe.catalog.evaluator.gpus import DEVICES, pretend
from autorecipe.catalog.evaluator.hub import Hub
from autorecipe.catalog.naming import parse_name

DEFAULT_GPU = "h100"
"""Device for recipes that name none; upstream's generic recipes live in `h100` folders."""


class RecipeTimeoutError(BaseException):
    """A recipe ran past its limit. Not an `Exception`, so that recipe code does not catch it by accident."""


class RecipeEvaluator:
    """Evaluates recipe functions of one tree.

    Args:
        bridge: directory that contains `megatron/bridge`.
        hub: answers Hugging Face requests.
        writer: writes containers.
        seconds: time limit per call.
    """

    def __init__(self, *, bridge: Path, hub: Hub, writer: ContainerWriter, seconds: float) -> None:
        self.bridge = bridge
        self.hub = hub
        self.writer = writer
        self.seconds = seconds
        self.missing_files: list[str] = []

    def describe(self, export: Export) -> dict[str, Any]:
        """Return what is known of a function without calling it."""
        function = export.function
        return {
            "name": export.name,
            "kind": export.kind,
            "aliases": export.aliases,
            "module": function.__module__,
            "file": self._relative(inspect.getsourcefile(function)),
            "line": function.__code__.co_firstlineno,
            "parameters": parameters_of(function),
            "emulated_gpu": self._gpu(export),
        }

    def evaluate(self, export: Export) -> dict[str, Any]:
        """Return the record of one function; a recipe that raises gives a record with `status` failed."""
        function = export.function
        record = self.describe(export)
        gpu = record["emulated_gpu"]
        try:
            result, probes = self._call(function, gpu)
            record |= result
            record["status"] = "ok"
        except (Exception, RecipeTimeoutError, SystemExit) as error:
            record |= {"status": "failed", "error": self._describe(error), "error_at": self._where(error)}
            record["hub"] = self._hub_log()
            return record
        if self.missing_files:
            record["status"] = "failed"
            record["missing_files"] = sorted(set(self.missing_files))
            record["error"] = f"FileNotFoundError: the release lacks {', '.join(record['missing_files'])}"
        record["hub"] = self._hub_log()
        if probes:
            record["probes"] = sorted(probes)
            record["without_gpu"] = self._variation(record["fields"], function, None)
        if any(parameter["name"] == "peft_scheme" for parameter in record["parameters"]):
            record["dora"] = self._variation(record["fields"], function, gpu, peft_scheme="dora")
        return record

    def _call(self, function: Callable[..., Any], gpu: str | None, **kwargs: Any) -> tuple[dict[str, Any], set[str]]:
        self.hub.start_recipe()
        self.missing_files.clear()
        probes: set[str] = set()
        with limit_seconds(self.seconds):
            if gpu is None:
                container = function(**kwargs)
            else:
                with pretend(gpu) as probes:
                    container = function(**kwargs)
        return self.writer.write(container, model_base=self.hub.log.base), set(probes)

    def _variation(self, fields: dict[str, Any], function: Callable[..., Any], gpu: str | None, **kwargs: Any) -> dict[str, Any]:
        """Return the fields that differ in another call, or `{"error": ...}`."""
        saved, missing = self.hub.log, list(self.missing_files)
        try:
            other = self._call(function, gpu, **kwargs)[0]["fields"]
        except (Exception, RecipeTimeoutError, SystemExit) as error:
            return {"error": self._describe(error)}
        finally:
            self.hub.log = saved
            self.missing_files[:] = missing
        changed = {path: other.get(path) for path in other if path not in fields or fields[path] != other[path]}
        removed = sorted(path for path in fields if path not in other)
        return {"fields": changed, "removed": removed}

    def _hub_log(self) -> dict[str, Any]:
        log = self.hub.log
        return {
            "model_ids": log.model_ids,
            "revisions": log.revisions,
            "remote_code": log.remote_code,
            "tokenizer_ids": log.tokenizer_ids,
        }

    def _gpu(self, export: Export) -> str:
        named = parse_name(export.name).gpu_type
        if named in DEVICES:
            return named
        return next((part for part in export.function.__module__.split(".") if part in DEVICES), DEFAULT_GPU)

    def _relative(self, path: str | None) -> str:
        return os.path.relpath(path, self.bridge) if path else ""

    def _describe(self, error: BaseException) -> str:
        text = str(error).replace(str(self.bridge), "${BRIDGE}")
        return f"{type(error).__name__}: {text}"[:600]

    def _where(self, error: BaseException) -> str:
        frames = traceback.extract_tb(error.__traceback__)
        inside = [frame for frame in frames if str(self.bridge) in frame.filename]
        return f"{self._relative(inside[-1].filename)}:{inside[-1].lineno}" if inside else ""

    def note_missing_quantization_files(self) -> None:
        """Let recipes that read a file their release lacks be evaluated all the same, noting the file."""
        import megatron.core

        try:
            import megatron.core.quantization.utils as quantization
        except ModuleNotFoundError:
            return  # older Megatron-Core releases read no such file
        del megatron
        original = quantization.load_quantization_recipe

        def load(recipe_path: str) -> Any:
            if Path(recipe_path).exists():
                return original(recipe_path)
            relative = self._relative(str(recipe_path))
            self.missing_files.append(relative)
            return f"<missing file {relative}>"

        quantization.load_quantization_recipe = load


@contextmanager
def limit_seconds(seconds: float) -> Iterator[None]:
    """Raise `RecipeTimeoutError` in the block when it runs longer than the limit."""

    def stop(signum: int, frame: Any) -> None:
        del signum, frame
        raise RecipeTimeoutError(f"did not return within {seconds:g} seconds")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def parameters_of(function: Callable[..., Any]) -> list[dict[str, Any]]:
    """Return the function's parameters with the text of annotation and default."""
    rows = []
    for parameter in inspect.signature(function).parameters.values():
        has_default = parameter.default is not inspect.Parameter.empty
        rows.append(
            {
                "name": parameter.name,
                "kind": parameter.kind.name.lower(),
                "default": repr(parameter.default) if has_default else None,
            }
        )
    return rows
