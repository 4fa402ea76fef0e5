"""Imports Hugging Face weights into a distributed checkpoint, and exports them again. Start reading at `import_weights`.

One process holds the model once, in the type of its weights; the other side streams by tensor. The checkpoint then loads at
any layout.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from autorecipe.engine import compat
from autorecipe.engine.checkpoint import folder
from autorecipe.engine.checkpoint.content import build_content
from autorecipe.engine.checkpoint.folder import Manifest
from autorecipe.engine.checkpoint.identity import describe_identity
from autorecipe.engine.checkpoint.pretrained import find_checkpoint, load_pretrained
from autorecipe.engine.hf.families import HfModel, read_hf_model
from autorecipe.engine.hf.shards import SHARD_BYTES, ShardReader, ShardWriter
from autorecipe.engine.hf.weights import list_pieces, rows_of
from autorecipe.engine.saved import whole_model
from autorecipe.errors import NegativeAnswer, Problem, UsageError
from autorecipe.schema.value import to_jsonable

SIDE_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "vocab.*",
    "merges.txt",
    "*.jinja",
)
"""What a model folder holds besides weights, and an export takes over."""


def import_weights(source: Path, root: Path) -> dict[str, Any]:
    """Turn a Hugging Face folder into a checkpoint that `checkpoint.pretrained_checkpoint` takes.

    Args:
        source: folder with `config.json` and safetensors.
        root: checkpoint folder; it must not hold a checkpoint.

    Returns:
        family, parameters, type and path of the checkpoint.

    Raises:
        UsageError: a model that is not converted, or `root` is taken.
        EnvironmentProblem: files are missing or damaged.
        NegativeAnswer: the tensors are not those of the configuration.
    """
    model = read_hf_model(source)
    if folder.list_checkpoints(root):
        raise UsageError(Problem(path=str(root), code="exists", message="already holds a checkpoint", hint="give another --out"))
    reader = ShardReader(source)
    try:
        with whole_model(model.as_run()) as chunk:
            count = _fill(chunk, model, reader)
            path = _save(chunk, model, root, tokenizer=_tokenizer_of(source))
    finally:
        reader.close()
    return {"family": model.family, "parameters": count, "dtype": model.dtype, "checkpoint": str(path)}


def export_weights(checkpoint: Path, source: Path, target: Path, *, shard_bytes: int = SHARD_BYTES) -> dict[str, Any]:
    """Turn a checkpoint of any layout into a Hugging Face folder.

    Args:
        checkpoint: a checkpoint, or a folder of them (the newest counts).
        source: folder whose `config.json`, tokenizer files and weight type the export takes.
        target: new folder.
        shard_bytes: size of the written files.

    Returns:
        family, parameters, type and path of the folder.

    Raises:
        UsageError: a model that is not converted, or `target` is taken.
        NegativeAnswer: the checkpoint is of another model than `config.json`.
        EnvironmentProblem: nothing whole is there.
    """
    model = read_hf_model(source)
    if target.exists() and any(target.iterdir()):
        raise UsageError(Problem(path=str(target), code="exists", message="is not empty", hint="give another --out"))
    run = model.as_run()
    candidate = find_checkpoint(checkpoint, identity=describe_identity(run), asked_by="--checkpoint")
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    with whole_model(model.as_run()) as chunk:
        load_pretrained(candidate, [chunk])
        parameters = dict(chunk.named_parameters())
        writer = ShardWriter(partial, shard_bytes=shard_bytes)
        for piece in list_pieces(model):
            for name, tensor in zip(piece.sources, piece.split(parameters[piece.name], rows_of(piece, model)), strict=True):
                writer.write(name, tensor)
        writer.close()
        count = sum(parameter.numel() for parameter in parameters.values())
    for pattern in SIDE_FILES:
        for path in source.glob(pattern):
            shutil.copy2(path, partial / path.name)
    if target.exists():
        target.rmdir()
    partial.rename(target)
    return {"family": model.family, "parameters": count, "dtype": model.dtype, "folder": str(target)}


@torch.no_grad()
def _fill(chunk: Any, model: HfModel, reader: ShardReader) -> int:
    """Copy every tensor into the model and return the number of parameters."""
    parameters = dict(chunk.named_parameters())
    pieces = list_pieces(model)
    wanted = {name for piece in pieces for name in piece.sources}
    unread = {name for name in reader.names - wanted if not name.endswith("rotary_emb.inv_freq")}
    if model.values["model.share_embeddings_and_output_weights"]:
        unread.discard("lm_head.weight")
    problems = [
        Problem(path=name, code="hf-tensors", message="is missing from the safetensors files")
        for name in sorted(wanted - reader.names)[:10]
    ]
    problems += [Problem(path=name, code="hf-tensors", message="has no place in the model") for name in sorted(unread)[:10]]
    unfilled = set(parameters) - {piece.name for piece in pieces}
    problems += [Problem(path=name, code="hf-tensors", message="is filled by no tensor") for name in sorted(unfilled)]
    if problems:
        raise NegativeAnswer(problems)
    for piece in pieces:
        value = piece.join([reader.read(name) for name in piece.sources])
        parameter = parameters[piece.name]
        if value.shape != parameter.shape:
            message = f"has shape {list(value.shape)}, and config.json says {list(parameter.shape)}"
            raise NegativeAnswer(Problem(path=", ".join(piece.sources), code="hf-tensors", message=message))
        parameter.copy_(value)
    return sum(parameter.numel() for parameter in parameters.values())


def _tokenizer_of(source: Path) -> dict[str, Any]:
    """Return the tokenizer fields of a run that uses the folder's own tokenizer; none where it has none."""
    if not any(source.glob("tokenizer*")):
        return {}
    return {"tokenizer.tokenizer_type": "HuggingFaceTokenizer", "tokenizer.tokenizer_model": str(source.resolve())}


def _save(chunk: Any, model: HfModel, root: Path, *, tokenizer: dict[str, Any]) -> Path:
    from megatron.core import dist_checkpointing

    run = model.as_run()
    partial = folder.open_partial(root, 0)
    content = build_content([chunk], None, common={"iteration": 0, "checkpoint_version": 3.0}, with_rng=False, is_loading=False)
    dist_checkpointing.save(content, str(partial))
    manifest = Manifest(
        iteration=0,
        consumed_train_samples=0,
        consumed_valid_samples=0,
        world_size=1,
        layout="TP1 PP1 CP1",
        identity=describe_identity(run),
        config=to_jsonable({**run.values, **tokenizer}),
        scheduler={},
        core_release=compat.core_release(),
        has_optimizer=False,
        has_rng=False,
    )
    return folder.publish(partial, manifest)
