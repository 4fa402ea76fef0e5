from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.checkpoint.conftest import manifest

from autorecipe.engine.checkpoint import folder
from autorecipe.engine.checkpoint.pretrained import PATH, find_checkpoint
from autorecipe.errors import NegativeAnswer

SAVED: dict[str, Any] = {"vocab_size": 262144, "mtp_num_layers": 0, "num_layers": 26}


def hints(root: Path, **changes: Any) -> list[str]:
    """Return what a run is told to do that differs from the weights it should start from."""
    if not root.exists():
        folder.publish(folder.open_partial(root, 0), manifest(0, identity=SAVED))
    with pytest.raises(NegativeAnswer) as caught:
        find_checkpoint(root, identity={**SAVED, **changes}, asked_by=PATH)
    return [problem.hint for problem in caught.value.problems]


def test_a_difference_that_overrides_repair_says_how(tmp_path: Path) -> None:
    root, general = tmp_path / "weights", f"set {PATH} to one of this model"
    more, _ = hints(root, vocab_size=262145)
    assert "model.vocab_size=262144" in more and "--vocab-size 262145" in more
    fewer, _ = hints(root, vocab_size=32000)
    assert "model.vocab_size=262144" in fewer and "--vocab-size" not in fewer
    further, _ = hints(root, mtp_num_layers=1)
    assert "model.mtp_num_layers=null" in further
    assert hints(root, num_layers=27) == ["", general]
