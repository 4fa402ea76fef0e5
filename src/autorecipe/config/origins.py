"""Where each value of a resolution came from; what a recipe itself says is looked up only when somebody asks.

A recipe has some eight hundred fields, an answer reads the origins of a few. Start reading at `Origins`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, MutableMapping

from autorecipe.schema.field import ConfigSchema
from autorecipe.schema.recipe import Recipe
from autorecipe.schema.run import Origin, OriginKind

CLASS_MARK = "._class"
"""Suffix of the paths that name the configuration class of a section; never settable."""


class Origins(MutableMapping[str, Origin]):
    """Origins by path: those of a recipe's fields, changed by what the steps of a resolution write.

    Args:
        recipe: what the resolution starts from.
        schema: schema of its release.

    Attributes:
        written: origins that the steps of the resolution wrote, by path.
    """

    def __init__(self, recipe: Recipe, schema: ConfigSchema) -> None:
        self._recipe = recipe
        self._schema = schema
        self.written: dict[str, Origin] = {}
        self._dropped: set[str] = set()

    def __getitem__(self, path: str) -> Origin:
        if path in self.written:
            return self.written[path]
        if path in self._dropped or path not in self._recipe.fields:
            raise KeyError(path)
        return self._of_field(path)

    def __setitem__(self, path: str, origin: Origin) -> None:
        self.written[path] = origin

    def __delitem__(self, path: str) -> None:
        if path not in self:
            raise KeyError(path)
        self.written.pop(path, None)
        self._dropped.add(path)

    def __contains__(self, path: object) -> bool:
        return path in self.written or (path in self._recipe.fields and path not in self._dropped)

    def __iter__(self) -> Iterator[str]:
        kept = [path for path in self._recipe.fields if path not in self._dropped]
        yield from kept
        first = set(kept)
        yield from [path for path in self.written if path not in first]

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return bool(self.written) or next(iter(self), None) is not None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"

    @functools.cached_property
    def _by_recipe(self) -> tuple[frozenset[str], Origin, Origin, Origin]:
        recipe = self._recipe
        return (
            frozenset(name if name.startswith("model.") else f"model.{name}" for name in recipe.model_set),
            Origin(kind=OriginKind.RECIPE, detail=recipe.name),
            Origin(kind=OriginKind.MODEL_CARD, detail=", ".join(recipe.hf_model_ids)),
            Origin(kind=OriginKind.DEFAULT),
        )

    def _of_field(self, path: str) -> Origin:
        """Return where a field of the recipe came from: the class default, the model's card, or the recipe."""
        written, from_recipe, from_card, from_class = self._by_recipe
        if path in written or path.endswith(CLASS_MARK):
            return from_recipe
        value, default = self._recipe.fields[path], self._schema.defaults.get(path)
        is_default = type(default) is type(value) and default == value and path in self._schema.defaults
        if path.startswith("model.") and written and not is_default:
            return from_card
        return from_class if is_default else from_recipe
