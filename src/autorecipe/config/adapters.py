"""The adapter scheme that a launch chooses: with `--mode dora` a fine-tuning recipe is another configuration than its own.

What changes was evaluated with the catalog: the recipe called once more with `peft_scheme="dora"`.
"""

from __future__ import annotations

from autorecipe.errors import Problem, UsageError
from autorecipe.record import replace
from autorecipe.schema.recipe import Mode, Recipe, RecipeKind

DORA = "dora"


def with_scheme(recipe: Recipe, mode: str | None) -> Recipe:
    """Return the recipe as a launch in this mode starts from it.

    Source: Megatron Bridge scripts/training/recipe_runner.py:141 (2026-08-22). Evidence: enforced-upstream.

    Raises:
        UsageError: `dora` with a recipe that fine-tunes no adapter, or whose adapter is fixed.
    """
    if mode != DORA:
        return recipe
    if recipe.mode is not Mode.PEFT:
        goal = recipe.mode.value if recipe.mode else "no goal in its name"
        raise _refused(recipe, "BR-MODE-02", f"mode dora trains an adapter, and this recipe is for {goal}")
    if not recipe.dora_fields:
        if recipe.fields.get("peft._class") == "DoRA":
            return recipe
        kind = "benchmark recipes have a fixed LoRA" if recipe.kind is RecipeKind.BENCHMARK else "its adapter is fixed"
        raise _refused(recipe, "BR-PEFT-05", f"takes no other adapter scheme: {kind}")
    kept = {path: value for path, value in recipe.fields.items() if path not in recipe.dora_removed}
    return replace(recipe, fields={**kept, **recipe.dora_fields})


def _refused(recipe: Recipe, code: str, message: str) -> UsageError:
    hint = f"`autorecipe recipes list --family {recipe.family} --mode peft --kind library` lists recipes that may take DoRA"
    return UsageError(Problem(code=code, path=recipe.name, message=message, hint=hint))
