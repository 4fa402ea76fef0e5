"""Imports, runs and exports models in one process. Not a test: `hf_server.py FOLDER NAME...`, with FOLDER/NAME/hf made before."""

import sys
from pathlib import Path

import torch
from hf_models import make_tokens

from autorecipe.engine.checkpoint.folder import checkpoint_path
from autorecipe.engine.checkpoint.pretrained import find_checkpoint, load_pretrained
from autorecipe.engine.hf import convert
from autorecipe.engine.hf.families import read_hf_model
from autorecipe.engine.saved import whole_model


def run(folder: Path) -> None:
    source, root = folder / "hf", folder / "mcore"
    convert.import_weights(source, root)
    assert checkpoint_path(root, 0).is_dir()
    convert.export_weights(root, source, folder / "back", shard_bytes=20_000)
    model = read_hf_model(source)
    with whole_model(model.as_run()) as chunk, torch.no_grad():
        load_pretrained(find_checkpoint(root, identity=convert.describe_identity(model.as_run()), asked_by="test"), [chunk])
        tokens = make_tokens()
        positions = torch.arange(tokens.shape[1]).expand_as(tokens).contiguous()
        if model.dtype == "float32":
            torch.save(chunk.eval()(tokens, positions, None), folder / "logits.pt")


if __name__ == "__main__":
    for name in sys.argv[2:]:
        run(Path(sys.argv[1]) / name)
