"""Trains two smoke steps of every library recipe of text models, or says why not.

`python tests/e2e/smoke_report.py [words]` prints rows of docs/reference/engine-recipes.md, `--write` puts all there.
"""

import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from tests.e2e.conftest import Trainer, start_trainer  # noqa: E402

from autorecipe.api.recipes import RecipeFilter, list_recipes  # noqa: E402
from autorecipe.schema.recipe import Mode, RecipeKind, RecipeSummary  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "engine-recipes.md"
HEAD = "| recipe | result | losses, or what stops it |\n|---|---|---|\n"
TITLES: Mapping[Mode, str] = {Mode.PRETRAIN: "## Pretraining", Mode.SFT: "## Full fine-tuning", Mode.PEFT: "## Adapters"}
BARE = "vanilla_gpt_pretrain_1gpu_h100_bf16_config"
SIZES = ("model.num_layers=2", "model.hidden_size=128", "model.num_attention_heads=4", "model.ffn_hidden_size=256")
IN_16_BITS = "mixed_precision=bf16_mixed"


def recipes(mode: Mode) -> list[RecipeSummary]:
    """Return the library's recipes of text models for a mode, each once."""
    wanted = RecipeFilter(kind=RecipeKind.LIBRARY, mode=mode, modality="text", aliases=False)
    return list(list_recipes(wanted))


def smoke(trainer: Trainer, name: str, folder: Path) -> tuple[str, str]:
    """Return (verdict, detail): `trains` with its losses, `as bf16` where it does so after all, or `refused` with the reason."""
    verdict, detail = _smoke(trainer, name, folder, ())
    if verdict == "refused" and IN_16_BITS in detail:
        given = tuple(detail[detail.index(IN_16_BITS) :].split())  # what the hint names, all of it
        other, losses = _smoke(trainer, name, folder.with_name(f"{folder.name}-bf16"), given)
        if other != "refused":
            return ("as bf16" if other == "trains" else other), losses
    return verdict, detail


def _smoke(trainer: Trainer, name: str, folder: Path, overrides: tuple[str, ...]) -> tuple[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    log, sizes = folder / "log.txt", SIZES if name == BARE else ()
    request = {"recipe": name, "metrics": str(folder / "metrics.jsonl"), "overrides": (*sizes, *overrides), "log": str(log)}
    answer = trainer.call("smoke_run:two_steps", request, log)
    if answer["code"] == 0:
        return "trains", ", ".join(f"{loss:.3f}" for loss in answer["result"])
    if answer["code"] == 70:
        return "crashes", answer["error"].strip().splitlines()[-1]
    return "refused", summarize(answer["error"])


def summarize(error: str) -> str:
    """Return the first problem of an error and its hint in one line."""
    lines = error.splitlines()
    hint = next((line for line in lines if line.startswith("hint: ")), "")
    return f"{lines[0].removeprefix('error')}; {hint}".replace("|", "\\|")


def row(name: str, verdict: tuple[str, str]) -> str:
    return f"| `{name}` | {verdict[0]} | {verdict[1]} |"


def read_page() -> dict[str, str]:
    """Return each recipe's result as the page says it."""
    found = re.findall(r"^\| `(\S+)` \| ([\w ]+) \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(found)


def write_rows(rows: Mapping[Mode, list[str]]) -> None:
    """Put the rows of each section in the place of those that the page has, and the counts above them."""
    page = PAGE.read_text(encoding="utf-8")
    for mode, title in TITLES.items():
        begin = page.index(HEAD, page.index(title)) + len(HEAD)
        end = re.compile(r"(\|.*\n)*").match(page, begin).end()  # type: ignore[union-attr]
        page = page[:begin] + "".join(line + "\n" for line in rows[mode]) + page[end:]
    PAGE.write_text(page, encoding="utf-8")


def main(arguments: list[str]) -> None:
    words = [word for word in arguments if word != "--write"]
    rows: dict[Mode, list[str]] = {mode: [] for mode in TITLES}
    with start_trainer() as trainer, tempfile.TemporaryDirectory() as folder:
        for mode, found in rows.items():
            for recipe in recipes(mode):
                if all(word in recipe.name for word in words):
                    found.append(row(recipe.name, smoke(trainer, recipe.name, Path(folder) / recipe.name.replace("@", "_"))))
                    print(found[-1], flush=True)
    if "--write" in arguments:
        assert not words, "a part of the recipes would take the place of all"
        write_rows(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
