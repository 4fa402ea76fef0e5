"""The page about upstream's guides keeps to the catalog and to the rules: its figures and rule ids are checked, not trusted."""

import re
from pathlib import Path

from autorecipe.api.lint import lint_recipes
from autorecipe.catalog.store import open_catalog
from autorecipe.rules.registry import all_rules

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "upstream-guidance.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\|[^|]+\| `(?P<recipe>\w+)` \|[^|]+\| (?P<named>\d+) \| (?P<least>\d+) \|$", re.MULTILINE)


def test_quick_reference_is_what_the_catalog_says():
    rows = list(ROW.finditer(PAGE))
    assert len(rows) == 14
    catalog = open_catalog("0.6.2")
    found = {row["recipe"]: (int(row["named"]), int(row["least"])) for row in rows}
    assert found == {name: (catalog.summary(name).gpus, catalog.summary(name).minimum_gpus) for name in found}


def test_every_rule_on_the_page_exists():
    named = set(re.findall(r"`([A-Z]{3}\d{3})`", PAGE))
    assert len(named) > 15
    assert named <= {rule.id for rule in all_rules()}


def test_counts_in_prose_are_those_of_the_release():
    catalog = open_catalog("0.6.2")
    one_gpu = [
        item
        for item in catalog.summaries()
        if item.minimum_gpus == 1 and item.alias_of is None and item.kind.value == "library" and item.mode.value != "peft"
    ]
    assert f"no: {len(one_gpu)} library recipes" in PAGE
    assert len(catalog.meta["collisions"]) == 10 and "ten in 0.6.2" in PAGE
    assert f"{len(lint_recipes((), release='0.6.2').broken)} of the {catalog.meta['functions']} recipes" in PAGE
