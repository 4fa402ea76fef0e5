import pytest

from autorecipe.catalog.naming import parse_name
from autorecipe.catalog.store import open_catalog, shipped_releases
from autorecipe.catalog.summaries import SUMMARIES, SummaryTable
from autorecipe.errors import EnvironmentProblem


@pytest.mark.parametrize("release", shipped_releases())
def test_cut_text_says_what_the_rows_say(release):
    table = open_catalog(release).recipes
    assert {name: item.alias_of for name, item in table.items() if item.alias_of} == table.targets
    assert [name for names in table.models.values() for name in names] == sorted(
        table, key=lambda name: list(table.models).index(table[name].model)
    )
    for name, item in table.items():
        assert item.name == name
        assert item.model == parse_name(item.alias_of or name).model
        assert name in table.models[item.model]


def test_the_shortest_alias_wins():
    table = open_catalog("0.6.2").recipes
    assert table.aliases["llama3_8b_pretrain_2gpu_h100_bf16_config"] == "llama3_8b_pretrain_config"
    assert {item.alias_of for item in table.values()} - {None} == set(table.aliases)


def test_damage_is_named(tmp_path):
    path = tmp_path / SUMMARIES
    path.write_text('["a_config","a","","library","pretrain"]\n')
    with pytest.raises(EnvironmentProblem, match="line 1"):
        SummaryTable(path)["a_config"]
    path.write_text('["a_config"]\n')
    with pytest.raises(EnvironmentProblem, match="line 1: not a row of names"):
        SummaryTable(path)
