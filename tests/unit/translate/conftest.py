from __future__ import annotations

import shlex
from collections.abc import Callable

import pytest

from autorecipe.api.translate import MlmSource, load_mlm_mapping, to_bridge
from autorecipe.schema.translation import Translation
from autorecipe.translate.mapping import MappingTable

Translate = Callable[..., Translation]


@pytest.fixture(scope="session")
def mapping() -> MappingTable:
    return load_mlm_mapping()


@pytest.fixture
def translate() -> Translate:
    def run(text: str, **kwargs: object) -> Translation:
        return to_bridge(MlmSource(words=shlex.split(text)), **kwargs)  # type: ignore[arg-type]

    return run
