from __future__ import annotations

from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[2] / "golden" / "parity"


@pytest.fixture
def golden() -> Path:
    return GOLDEN
