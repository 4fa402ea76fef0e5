from __future__ import annotations

import abc
import importlib
import importlib.metadata
import sys
from collections.abc import Iterator

import pytest

from autorecipe.absent import is_installed, mark_packages


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(importlib.metadata, "version", importlib.metadata.version)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_marked_package_can_be_named_subclassed_and_decorated_with() -> None:
    finder = mark_packages({"nowhere_at_all": "1.2"}, strict=True)
    module = importlib.import_module("nowhere_at_all.deep.inside")

    class Derived(module.Base, abc.ABC):  # type: ignore[misc, name-defined]
        pass

    @module.autotune(configs=[module.Config({"BLOCK": 64})], key=["width"])
    @module.jit
    def kernel() -> None:
        raise AssertionError("never runs")

    assert isinstance(Derived(1, two=3), module.Base)
    assert importlib.import_module("nowhere_at_all").__version__ == "1.2"
    assert importlib.metadata.version("nowhere-at-all") == "1.2"
    assert finder.used == {"nowhere_at_all"}
    with pytest.raises(RuntimeError, match="not installed here"):
        kernel(1, 2)


def test_inert_marks_let_a_configuration_pass() -> None:
    mark_packages({"nowhere_at_all": "1.2"}, strict=False)
    module = importlib.import_module("nowhere_at_all")
    decorate = module.decorator(option=1)
    assert decorate(len) is len
    assert decorate(1, 2) is decorate


def test_what_is_installed_stays_as_it_is() -> None:
    finder = mark_packages({"json": "9", "nowhere_at_all": "1"}, strict=True)
    assert set(finder.versions) == {"nowhere_at_all"}
    assert is_installed("json")
    assert not is_installed("nowhere_at_all.inside.deep") or "nowhere_at_all" in finder.versions
    everything = mark_packages({"json": "9"}, strict=True, only_absent=False)
    assert set(everything.versions) == {"json"}


def test_fill_adds_what_must_be_real() -> None:
    mark_packages({"nowhere_at_all": "1"}, strict=True, fill=lambda module: setattr(module, "answer", 42))
    assert importlib.import_module("nowhere_at_all.deep").answer == 42
