"""What an answer needs from outside (catalog, resolution, rules), so that it can be tested without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autorecipe.recommend.models import ModelIndex
from autorecipe.record import dataclass, field
from autorecipe.schema.finding import Finding
from autorecipe.schema.hardware import Cluster, Gpu
from autorecipe.schema.layer import Layer
from autorecipe.schema.run import RunConfig


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What a launch says beside the overrides, which changes the configuration too.

    Attributes:
        mode: `dora`, or empty for the recipe's own adapter.
        dataset: preset, or empty for the recipe's own data.
    """

    mode: str = ""
    dataset: str = ""


@dataclass(frozen=True, kw_only=True)
class Colleague:
    """What an answer needs from outside.

    Attributes:
        release: Bridge release of the catalog.
        index: all recipes.
        gpus: GPU facts by id.
        resolve: recipe name, override texts, world size and what the launch says -> configuration.
        check: configuration, cluster and what the launch says -> findings.
        classify: path -> layer of change.
        collisions: names that both packages export -> library alias.
        errors: recipes that cannot be built -> why.
        packs: recipe name -> whether its own data are packed.
        longest: Hugging Face id -> longest sequence (tokens) that the model was made for.
    """

    release: str
    index: ModelIndex
    gpus: Mapping[str, Gpu]
    resolve: Callable[[str, Sequence[str], int | None, Launch], RunConfig]
    check: Callable[[RunConfig, Cluster, Mapping[str, object]], tuple[Finding, ...]]
    classify: Callable[[str], Layer | None]
    collisions: Mapping[str, str] = field(default_factory=dict)
    errors: Callable[[str], str] = lambda name: ""
    packs: Callable[[str], bool] = lambda name: False
    longest: Callable[[str], int | None] = lambda hf_id: None
