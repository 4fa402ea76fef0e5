"""Trains two smoke steps of every library pretraining recipe of decoder models, or says why not.

`python tests/e2e/smoke_report.py [words]` prints rows of docs/reference/engine-recipes.md, `--write` puts all there.
"""

import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from tests.e2e.conftest import Trainer, start_trainer  # noqa: E402

from autorecipe.api.recipes import RecipeFilter, list_recipes  # noqa: E402
from autorecipe.schema.recipe import Mode, RecipeKind, RecipeSummary  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "engine-recipes.md"
HEAD = "| recipe | result | losses, or what stops it |\n|---|---|---|\n"
BARE = "vanilla_gpt_pretrain_1gpu_h100_bf16_config"
SIZES = ("model.num_layers=2", "model.hidden_size=128", "model.num_attention_heads=4", "model.ffn_hidden_size=256")


def recipes() -> list[RecipeSummary]:
    """Return the library's pretraining recipes of text models, each once."""
    wanted = RecipeFilter(kind=RecipeKind.LIBRARY, mode=Mode.PRETRAIN, modality="text", aliases=False)
    return list(list_recipes(wanted))


def smoke(trainer: Trainer, name: str, folder: Path) -> tuple[str, str]:
    """Return (verdict, detail): `trains` with its losses, or `refused` with the reason."""
    folder.mkdir(parents=True, exist_ok=True)
    log, sizes = folder / "log.txt", SIZES if name == BARE else ()
    request = {"recipe": name, "metrics": str(folder / "metrics.jsonl"), "overrides": sizes, "log": str(log)}
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
    found = re.findall(r"^\| `(\S+)` \| (\w+) \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(found)


def main(arguments: list[str]) -> None:
    words = [word for word in arguments if word != "--write"]
    rows = []
    with start_trainer() as trainer, tempfile.TemporaryDirectory() as folder:
        for recipe in recipes():
            if all(word in recipe.name for word in words):
                rows.append(row(recipe.name, smoke(trainer, recipe.name, Path(folder) / recipe.name.replace("@", "_"))))
                print(rows[-1], flush=True)
    if "--write" in arguments:
        page = PAGE.read_text(encoding="utf-8")
        begin = page.index(HEAD) + len(HEAD)
        end = re.compile(r"(\|.*\n)*").match(page, begin).end()  # type: ignore[union-attr]
        PAGE.write_text(page[:begin] + "".join(line + "\n" for line in rows) + page[end:], encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
