"""Imports Hugging Face weights into a distributed checkpoint, and exports them again. Start reading at `import_weights`.

One process, and neither side is ever held whole: tensors stream from one format to the other. The checkpoint then loads at
any layout.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from autorecipe.engine.abstract import abstract_model
from autorecipe.engine.adapters.attach import attach_adapters
from autorecipe.engine.adapters.merge import MergedTensors
from autorecipe.engine.checkpoint.identity import compare_identity, describe_identity
from autorecipe.engine.checkpoint.streaming import Place, StoredTensors, list_places
from autorecipe.engine.checkpoint.weights import claim_folder, whole_content, write_checkpoint
from autorecipe.engine.hf.model import HfModel, read_hf_model
from autorecipe.engine.hf.peft import PeftTensors, write_peft
from autorecipe.engine.hf.pieces import Piece, stack
from autorecipe.engine.hf.quantized import SourceTensors
from autorecipe.engine.hf.shards import SHARD_BYTES, ShardReader, ShardWriter
from autorecipe.engine.saved import SavedModel, read_saved
from autorecipe.errors import NegativeAnswer, Problem, UsageError

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


def import_weights(source: Path, root: Path, *, peft: Path | None = None, vocab_size: int | None = None) -> dict[str, Any]:
    """Turn a Hugging Face folder into a checkpoint that `checkpoint.pretrained_checkpoint` takes.

    Args:
        source: folder with `config.json` and safetensors.
        root: checkpoint folder, new or empty; what a killed conversion left there is removed.
        peft: folder of an adapter of that model in the peft package's format, which is merged into the weights; or None.
        vocab_size: tokens of the checkpoint, those that the folder lacks as rows of zeros; None takes the folder's own.

    Returns:
        family, parameters, type, path of the checkpoint, number of layers that the adapter changed, tensors that were left
        out, and notes for the user.

    Raises:
        UsageError: a model or an adapter that is not converted, or `root` is taken.
        EnvironmentProblem: files are missing or damaged.
        NegativeAnswer: the tensors are not those of the configuration.
    """
    own = read_hf_model(source)
    model = own.with_vocabulary(vocab_size)
    notes = [*model.notes, *claim_folder(root)]
    if model is not own:
        notes.append(
            f"{_added(model, own)} tokens that the folder lacks have rows of zeros, and so a logit of 0 until they are trained; "
            f"export with --vocab-size {vocab_size}"
        )
    adapter = PeftTensors(peft) if peft is not None else None
    tensors = SourceTensors(ShardReader(source), dtype=model.dtype)
    pieces = {piece.name: piece for piece in model.pieces}

    def read_source(name: str) -> torch.Tensor:
        return tensors.read(name) if adapter is None else adapter.merge(name, tensors.read(name))

    rounded: list[str] = []
    places: dict[str, Place] = {}

    def read(name: str) -> torch.Tensor:
        piece = pieces[name]
        parameter = piece.join([read_source(source) for source in piece.sources])
        if torch.promote_types(parameter.dtype, places[name].dtype) != places[name].dtype:
            rounded.append(name)
        return parameter

    run = model.as_run()
    try:
        with abstract_model(run) as chunk:
            content = whole_content(chunk)
            places.update(list_places(content["model"]))
            left_out = _check_tensors(model, pieces, places, tensors)
            if adapter is not None:
                adapter.check({name: tensors.shape(name) for piece in pieces.values() for name in piece.sources})
            config = {**run.values, **_tokenizer_of(source)}
            path = write_checkpoint(content, root=root, read=read, identity=describe_identity(run), config=config)
    finally:
        tensors.close()
    if left_out:
        notes.append(f"{len(left_out)} tensors have no place in this engine's model and were left out: {left_out[0]} ...")
    if rounded:
        notes.append(
            f"{len(rounded)} parameters are stored with more digits than config.json's {model.dtype} has, and were rounded: "
            f"{rounded[0]} ..."
        )
    if tensors.expanded:
        notes.append(f"{len(tensors.expanded)} tensors stored in fewer bits were expanded to {model.dtype}")
    return {
        "family": model.family,
        "parameters": sum(math.prod(place.shape) for place in places.values()),
        "dtype": model.dtype,
        "checkpoint": str(path),
        "merged_layers": len(adapter.layers) if adapter is not None else 0,
        "left_out": left_out,
        "notes": notes,
    }


def export_weights(
    checkpoint: Path,
    source: Path,
    target: Path,
    *,
    base: Path | None = None,
    merge: bool = False,
    vocab_size: int | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> dict[str, Any]:
    """Turn a checkpoint of any layout into a Hugging Face folder, and one of an adapter into a folder of the peft package.

    Args:
        checkpoint: a checkpoint, or a folder of them (the newest counts).
        source: folder whose `config.json`, tokenizer files and weight type the export takes.
        target: new folder.
        base: weights that an adapter belongs to; None takes those that its training started from.
        merge: merge an adapter into its weights, and export these.
        vocab_size: tokens of the checkpoint, whose rows beyond the folder's are left out; None where it has no more.
        shard_bytes: size of the written files.

    Returns:
        family, parameters (those of the adapter, where it is exported), type, format and path of the folder.

    Raises:
        UsageError: a model that is not converted, or `target` is taken.
        NegativeAnswer: the checkpoint is of another model than `config.json`.
        EnvironmentProblem: nothing whole is there.
    """
    own = read_hf_model(source)
    model = own.with_vocabulary(vocab_size)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        message = "is not empty" if target.is_dir() else "is a file"
        raise UsageError(Problem(path=str(target), code="exists", message=message, hint="give a new or an empty folder as --out"))
    saved = read_saved(checkpoint, base=base)
    _check_identity(saved, model, source)
    with _new_folder(target) as partial:
        if saved.adapter is None:
            with abstract_model(model.as_run()) as chunk:
                places: Mapping[str, Place] = list_places(whole_content(chunk)["model"])
            stored = StoredTensors(saved.candidate.path)
            count = _write_weights(model, source, partial, lambda name: stored.read(places[name]), shard_bytes)
            return _report(model, own, count, "weights", target)
        with abstract_model(saved.conversion_run) as chunk:
            attach_adapters([chunk], saved.adapter, seed=0)
            merged = MergedTensors(saved, chunk)
        if merge:
            count = _write_weights(model, source, partial, merged.read, shard_bytes)
            return _report(model, own, count, "merged", target)
        count = write_peft(partial, model, saved.adapter, merged, base_name=str(source.resolve()))
        return _report(model, own, count, "peft", target)


def _added(model: HfModel, own: HfModel) -> int:
    """Return how many tokens the vocabulary has more than the folder's."""
    return int(model.values["model.vocab_size"]) - int(own.values["model.vocab_size"])


def _report(model: HfModel, own: HfModel, count: int, form: str, target: Path) -> dict[str, Any]:
    notes = list(model.notes)
    if model is not own and form != "peft":
        notes.append(f"the rows of {_added(model, own)} tokens that config.json lacks were left out")
    return {
        "family": model.family,
        "parameters": count,
        "dtype": model.dtype,
        "format": form,
        "folder": str(target),
        "notes": notes,
    }


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """Give a folder to write into, which gets its final name when all is written."""
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    if target.exists():
        target.rmdir()
    partial.rename(target)


def _write_weights(model: HfModel, source: Path, folder: Path, read: Callable[[str], torch.Tensor], shard_bytes: int) -> int:
    """Write every tensor and the files beside them, and return the number of parameters."""
    writer = ShardWriter(folder, shard_bytes=shard_bytes)
    count = 0
    shares: list[torch.Tensor] = []
    for piece in model.pieces:
        parameter = read(piece.name)
        tensors = piece.split(parameter)
        count += sum(tensor.numel() for tensor in tensors)
        if piece.stacked is not None:
            shares += tensors
            if len(shares) < piece.stacked.count:
                continue
            tensors, shares = [stack(shares)], []
        for name, tensor in zip(piece.sources, tensors, strict=True):
            writer.write(name, tensor)
    writer.close()
    for pattern in SIDE_FILES:
        for path in source.glob(pattern):
            shutil.copy2(path, folder / path.name)
    if model.quantization is not None:
        config = json.loads((source / "config.json").read_text(encoding="utf-8"))
        del config["quantization_config"]
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return count


def _check_identity(saved: SavedModel, model: HfModel, source: Path) -> None:
    problems = compare_identity(saved.identity, describe_identity(model.as_run()))
    if problems:
        message = f"is of another model than {source}:"
        head = Problem(path=str(saved.candidate.path), code="other-model", message=message, hint="give --hf of its model")
        raise NegativeAnswer([*problems, head])


def _check_tensors(model: HfModel, pieces: Mapping[str, Piece], places: Mapping[str, Place], tensors: SourceTensors) -> list[str]:
    """Compare the tensors of the files with those of the configuration, names and shapes, before anything is written.

    Returns:
        names of the tensors that the family is known to have and this engine's model has not.
    """
    wanted = {name for piece in pieces.values() for name in piece.sources}
    unread = {name for name in tensors.names - wanted if not name.endswith("rotary_emb.inv_freq")}
    if model.values["model.share_embeddings_and_output_weights"]:
        unread.discard("lm_head.weight")
    left_out = sorted(name for name in unread if name.startswith(model.left_out)) if model.left_out else []
    unread -= set(left_out)
    problems = [
        Problem(path=name, code="hf-tensors", message="is missing from the safetensors files")
        for name in sorted(wanted - tensors.names)[:10]
    ]
    problems += [Problem(path=name, code="hf-tensors", message="has no place in the model") for name in sorted(unread)[:10]]
    problems += [
        Problem(path=name, code="hf-tensors", message="is filled by no tensor") for name in sorted(set(places) - set(pieces))
    ]
    if not problems:
        shapes: dict[str, torch.Tensor] = {}
        for name, piece in pieces.items():
            for source in piece.sources:
                if source not in shapes:
                    shapes[source] = torch.empty(tensors.shape(source), device="meta")
            found = tuple(piece.join([shapes[source] for source in piece.sources]).shape)
            if found != places[name].shape:
                message = f"has shape {list(found)}, and config.json says {list(places[name].shape)}"
                problems.append(Problem(path=", ".join(piece.sources), code="hf-tensors", message=message))
    if problems:
        raise NegativeAnswer(problems[:20])
    return left_out


def _tokenizer_of(source: Path) -> dict[str, Any]:
    """Return the tokenizer fields of a run that uses the folder's own tokenizer; none where it has none."""
    if not any(source.glob("tokenizer*")):
        return {}
    return {"tokenizer.tokenizer_type": "HuggingFaceTokenizer", "tokenizer.tokenizer_model": str(source.resolve())}
