"""The mode of a training run: typed, said by the recipe's name, or read from what a recipe of one's own evaluates to.

Start reading at `choose_mode`.
"""

from __future__ import annotations

from autorecipe.catalog.naming import is_own_recipe
from autorecipe.errors import Problem, UsageError, unknown_name
from autorecipe.record import dataclass
from autorecipe.schema.run import RunConfig

MODES = ("pretrain", "sft", "lora", "dora")
_GOAL = {"lora": "peft", "dora": "peft"}
"""Modes that train an adapter, and the goal in the names of recipes that have one."""


@dataclass(frozen=True, kw_only=True)
class ChosenMode:
    """How a run trains.

    Attributes:
        mode: one of `MODES`.
        reason: what it was read from; empty where it was typed or a recipe's name says it.
    """

    mode: str
    reason: str = ""


def infer_mode(recipe: str) -> str | None:
    """Return the mode that a conventional recipe name says, or None; the name of one's own function says nothing."""
    if is_own_recipe(recipe):
        return None
    words = f"_{recipe.lower().strip('_')}_"
    for mark, mode in (("_pretrain_", "pretrain"), ("_sft_", "sft"), ("_finetune_", "sft"), ("_dora_", "dora")):
        if mark in words:
            return mode
    return "lora" if "_peft_" in words or "_lora_" in words else None


def check_mode(recipe: str, typed: str | None) -> None:
    """Check that a typed mode exists, and that it is the one of the recipe's name.

    Source: Megatron Bridge scripts/training/run_recipe.py (2026-08-22). Evidence: enforced-upstream.

    Raises:
        UsageError: it does not, or is not.
    """
    if typed is None:
        return
    if typed not in MODES:
        raise UsageError(unknown_name("mode", typed, MODES))
    named = infer_mode(recipe)
    if named is not None and _GOAL.get(named, named) != _GOAL.get(typed, typed):
        raise UsageError(_mismatch(typed, recipe, named))


def choose_mode(run: RunConfig, recipe: str, typed: str | None) -> ChosenMode:
    """Return how a resolved run trains.

    Args:
        run: resolved.
        recipe: as it was named.
        typed: value of `--mode`, or None.

    Raises:
        UsageError: a typed mode that a recipe of one's own is not for.
    """
    evaluated = run.mode
    if typed is not None:
        if is_own_recipe(recipe) and evaluated and _GOAL.get(typed, typed) != evaluated:
            raise UsageError(_mismatch(typed, recipe, evaluated))
        return ChosenMode(mode=typed)
    named = infer_mode(recipe)
    if named is not None:
        return ChosenMode(mode=named)
    adapter = run.get("peft._class", None)
    if evaluated == "peft":
        return ChosenMode(mode="dora" if adapter == "DoRA" else "lora", reason=f"{recipe} evaluates to peft={adapter}")
    if evaluated not in MODES:
        raise UsageError(f"nothing says how {recipe!r} trains", hint="add --mode pretrain, sft or lora")
    return ChosenMode(mode=evaluated, reason=f"{recipe} evaluates to dataset={run.get('dataset._class', None)} and no adapter")


def check_adapter(run: RunConfig, mode: str) -> None:
    """Check that a run has an adapter where its mode trains one, and only there.

    Raises:
        UsageError: the mode needs an adapter, and the recipe has none; or it trains the model, and the recipe has one.
    """
    kind = run.get("peft._class", None)
    has_adapter = isinstance(kind, str)
    if has_adapter != (mode in _GOAL):
        message = f"is {kind!r} in {run.recipe}, which does not fit --mode {mode}"
        hint = "choose a recipe whose name ends in _peft_config" if not has_adapter else "add --mode lora or --mode dora"
        raise UsageError(Problem(path="peft", code="BR-MODE-02", message=message, hint=hint))


def _mismatch(typed: str, recipe: str, goal: str) -> Problem:
    return Problem(
        path="--mode",
        code="BR-MODE-02",
        message=f"{typed} does not fit recipe {recipe!r}, which is for {goal}",
        hint=f"drop --mode, or choose a recipe for {typed}",
    )
