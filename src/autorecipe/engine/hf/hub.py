"""Folders of models that are named by their id on the Hugging Face hub: the local cache first, then a download that resumes.

Start reading at `find_folder`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from autorecipe.errors import EnvironmentProblem, Problem

ID = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")
SMALL_FILES = ("*.json", "tokenizer*", "vocab.*", "merges.txt", "*.jinja", "*.model")
INDEX = "model.safetensors.index.json"


def find_folder(given: Path, *, weights: bool) -> Path:
    """Return the folder of a model.

    Args:
        given: a folder, or `ORG/NAME` or `ORG/NAME@REVISION` of the hub.
        weights: whether the safetensors are needed, too.

    Raises:
        EnvironmentProblem: an id that is neither in the local cache nor can be downloaded.
    """
    folder = given.expanduser()
    match = ID.fullmatch(str(given))
    if folder.exists() or match is None:
        return folder
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise EnvironmentProblem(
            f"{given} is no folder; a model of the hub needs the huggingface_hub package", hint="pip install 'autorecipe[hf]'"
        ) from None
    patterns = [*SMALL_FILES, *(["*.safetensors"] if weights else [])]
    name, revision = match["name"], match["revision"]

    def fetch(*, local: bool) -> Path:
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns, local_files_only=local))

    try:
        cached = fetch(local=True)
        if _is_complete(cached, weights=weights):
            return cached
    except Exception:  # the library raises a dozen kinds; all mean that the cache does not have it
        pass
    reason = "the hub is out of reach"
    cause: Exception | None = None
    try:
        fetched = fetch(local=False)
        if _is_complete(fetched, weights=weights):  # without network the library returns what the cache has of it
            return fetched
    except Exception as error:  # no network, no such model, no access, no space: each has a class of its own
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        cause = error
    message = f"is no folder here, is not whole in the local cache, and cannot be downloaded: {reason}"
    hint = (
        f"on a machine with access: `hf download {name} --local-dir DIR`, then --hf DIR; "
        "an interrupted download goes on where it stopped when it is started again"
    )
    raise EnvironmentProblem(Problem(path=str(given), code="hub-unreachable", message=message, hint=hint)) from cause


def _is_complete(folder: Path, *, weights: bool) -> bool:
    """Return whether a snapshot holds what is needed; the cache keeps snapshots of interrupted downloads."""
    if not (folder / "config.json").is_file():
        return False
    if not weights:
        return True
    if (folder / INDEX).is_file():
        listed = set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values())
        return all((folder / name).is_file() for name in listed)
    return any(folder.glob("*.safetensors"))
