"""Hugging Face configurations at hand: shipped, in the Hugging Face cache, or in a directory of one's own (the last wins)."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autorecipe.catalog.cards import MODELS
from autorecipe.datafiles import read_lines
from autorecipe.errors import EnvironmentProblem, Problem, UsageError
from autorecipe.record import dataclass, field


@dataclass(frozen=True, kw_only=True)
class ConfigSet:
    """Configurations by Hugging Face id.

    Attributes:
        configs: id -> content of `config.json`.
        origins: id -> file, for those that are not the shipped ones.
        tokenizer_lengths: id -> tokens of its tokenizer, where a recipe asks.
    """

    configs: Mapping[str, Mapping[str, Any]]
    origins: Mapping[str, str] = field(default_factory=dict)
    tokenizer_lengths: Mapping[str, int] = field(default_factory=dict)

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of each configuration's canonical JSON form."""
        return {
            hf_id: hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
            for hf_id, config in self.configs.items()
        }


def gather_configs(*, directory: Path | None = None, use_cache: bool = True) -> ConfigSet:
    """Return every configuration at hand.

    Args:
        directory: holds `ORG/NAME/config.json` or `ORG__NAME.json` files.
        use_cache: whether the Hugging Face cache of this user is looked at.

    Raises:
        UsageError: the directory does not exist.
        EnvironmentProblem: a file is not JSON.
    """
    configs: dict[str, Mapping[str, Any]] = {}
    lengths: dict[str, int] = {}
    for line in read_lines(MODELS):
        configs[line["id"]] = line["config"]
        if "tokenizer_length" in line:
            lengths[line["id"]] = line["tokenizer_length"]
    origins: dict[str, str] = {}
    found = dict(_cached()) if use_cache else {}
    if directory is not None:
        if not directory.is_dir():
            raise UsageError(Problem(code="no-such-file", path=str(directory), message="no such directory"))
        found |= dict(_local(directory))
    for hf_id, path in found.items():
        content = read_config(path)
        if content != configs.get(hf_id):
            configs[hf_id] = content
            origins[hf_id] = str(path)
    return ConfigSet(configs=configs, origins=origins, tokenizer_lengths=lengths)


def read_config(path: Path) -> Mapping[str, Any]:
    """Return the content of a `config.json`.

    Raises:
        UsageError: no such file.
        EnvironmentProblem: it is not a JSON object.
    """
    if path.is_dir():
        path = path / "config.json"
    if not path.is_file():
        raise UsageError(Problem(code="no-such-file", path=str(path), message="no such file"))
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EnvironmentProblem(Problem(code="bad-config", path=str(path), message=f"not JSON: {error}")) from None
    if not isinstance(content, dict):
        raise EnvironmentProblem(Problem(code="bad-config", path=str(path), message="not a JSON object"))
    return content


def _local(directory: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(directory.glob("*__*.json")):
        yield path.stem.replace("__", "/", 1), path
    for path in sorted(directory.glob("*/*/config.json")):
        yield f"{path.parent.parent.name}/{path.parent.name}", path


def _cached() -> Iterator[tuple[str, Path]]:
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    for repository in sorted(hub.glob("models--*--*")):
        snapshots = sorted(repository.glob("snapshots/*/config.json"), key=lambda path: path.stat().st_mtime)
        if snapshots:
            _, organisation, name = repository.name.split("--", 2)
            yield f"{organisation}/{name}", snapshots[-1]
