import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests/tolerances.py

from parallel_server import RankServer


@pytest.fixture(scope="session")
def rank_server():
    server = RankServer()
    yield server
    server.close()
