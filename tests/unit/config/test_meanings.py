"""What fields are for: every field that a shipped recipe writes has a sentence, a layer and a reason."""

from collections import Counter
from pathlib import Path

import pytest

from autorecipe.catalog.store import open_catalog
from autorecipe.config.explain import explain_field
from autorecipe.config.layers import classify_path
from autorecipe.config.meanings import DOCS, meaning_of
from autorecipe.datafiles import DATA, read_lines

RELEASES = ("0.6.2", "0.5.1", "0.4.2")
RECORDS = Path(DATA) / "releases"
ROWS = list(read_lines(DOCS))


@pytest.mark.parametrize("release", RELEASES)
def test_every_field_that_a_recipe_sets_is_explained(release):
    schema = open_catalog(release).schema()
    written = set()
    for path in (RECORDS / release / "recipes").glob("*.jsonl"):
        written |= {name for line in read_lines(path) for name in line.get("set", {}) if not name.endswith("._class")}
    habits = [line for line in read_lines(RECORDS / release / "bases.jsonl") if line["id"].startswith("habits:")]
    written |= {name for line in habits for name in line["set"] if not name.endswith("._class")}
    assert len(written) > 150
    assert sorted(name for name in written if not meaning_of(name)) == []
    assert sorted(name for name in written if not all(classify_path(name, schema))) == []


def test_each_sentence_is_about_fields_that_exist_and_no_field_has_two():
    counts = Counter(path for row in ROWS for path in row["paths"])
    assert [path for path, count in counts.items() if count > 1] == []
    known = {path for release in RELEASES for path in open_catalog(release).schema()}
    strange = [path for path in counts if "*" not in path and path not in known and not path.startswith("env_vars.")]
    assert strange == []
    assert all(row["doc"].endswith(".") and len(row["doc"]) < 160 for row in ROWS)


def test_the_page_of_a_field_and_the_schema_say_the_same():
    schema = open_catalog("0.6.2").schema()
    page = explain_field("train.micro_batch_size", schema)
    assert page.doc == schema["train.micro_batch_size"].doc == meaning_of("train.micro_batch_size") != ""
    assert "multiprocessors" in meaning_of("comm_overlap.tp_comm_overlap_cfg.fc1_fprop.num_sm")
    assert explain_field("env_vars.NCCL_NVLS_ENABLE", schema).doc
    assert meaning_of("no.such.path") == ""
