"""What the rank server does with converted models, each on a forked process. Not a test."""

from pathlib import Path
from typing import Any

import torch
from hf_models import make_tokens

from autorecipe.engine.adapters.attach import attach_adapters
from autorecipe.engine.checkpoint.folder import checkpoint_path
from autorecipe.engine.checkpoint.pretrained import load_pretrained
from autorecipe.engine.hf import convert
from autorecipe.engine.saved import read_saved, whole_model


def there_and_back(folder: str) -> dict[str, Any]:
    """Import FOLDER/hf to FOLDER/mcore, export it to FOLDER/back, and save the logits in float32."""
    place = Path(folder)
    report = convert.import_weights(place / "hf", place / "mcore")
    assert checkpoint_path(place / "mcore", 0).is_dir()
    convert.export_weights(place / "mcore", place / "hf", place / "back", shard_bytes=20_000)
    if report["dtype"] == "float32":
        save_logits({"checkpoint": str(place / "mcore"), "out": str(place / "logits.pt")})
    return report


def save_logits(request: dict[str, str]) -> None:
    """Save what a checkpoint computes, its adapter included."""
    saved = read_saved(Path(request["checkpoint"]))
    with whole_model(saved.reading_run) as chunk, torch.no_grad():
        if saved.adapter is not None:
            assert saved.base is not None
            load_pretrained(saved.base, [chunk])
            attach_adapters([chunk], saved.adapter, seed=0)
        load_pretrained(saved.candidate, [chunk])
        tokens = make_tokens()
        positions = torch.arange(tokens.shape[1]).expand_as(tokens).contiguous()
        torch.save(chunk.eval()(tokens, positions, None), request["out"])


def run(words: list[str]) -> dict[str, Any]:
    """Run the conversion's own command line."""
    from autorecipe.engine.hf.__main__ import _parser
    from autorecipe.engine.hf.__main__ import convert as answer

    return answer(_parser().parse_args(words))
