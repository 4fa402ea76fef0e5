import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autorecipe.catalog.records import Base, BaseTable, add_common, common_bases, shared_values, subtract_common
from autorecipe.datafiles import LineTable, render_line
from autorecipe.errors import EnvironmentProblem

paths = st.sampled_from(["a", "b", "a.x", "a.y", "b.z", "c.d.e", "_class", "a._class"])
values = st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from([0.0, 1.0, "1", [1, True], {"k": 1}]))
fields = st.dictionaries(paths, values, max_size=8)


@given(start=fields, nested=fields, target=fields)
def test_assembly_undoes_compression(start, nested, target):
    table = BaseTable({"start": Base(fields=start), "nested": Base(fields=nested)})
    on = {"": "start", "a": "nested"}
    stored = table.compress(on, target)
    restored = table.assemble(on, stored.fields, stored.drop)
    assert restored == target
    assert json.dumps(restored, sort_keys=True) == json.dumps(target, sort_keys=True)


@given(a=st.dictionaries(paths, st.sampled_from(["p", "q"])), b=st.dictionaries(paths, st.sampled_from(["p", "q"])))
def test_common_bases_come_back(a, b):
    common = common_bases([a, b])
    for on in (a, b):
        assert add_common(subtract_common(on, common), common) == on


def test_a_true_is_not_a_one():
    table = BaseTable({"start": Base(fields={"flag": True, "list": [1]})})
    assert table.compress({"": "start"}, {"flag": 1, "list": [True]}).fields == {"flag": 1, "list": [True]}


def test_shared_values_need_the_share():
    three = [Base(fields={"lr": 1.0, "x": index}) for index in range(3)]
    assert shared_values(three).fields == {"lr": 1.0}


def test_a_line_is_found_by_its_whole_first_key(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(f"{render_line({'name': name, 'n': index})}\n" for index, name in enumerate(["ab", "a", "abc"])))
    table = LineTable(path, "name")
    assert table["a"] == {"name": "a", "n": 1}
    assert "b" not in table and table.get("b") is None
    assert list(table) == ["ab", "a", "abc"] and len(table) == 3


def test_odd_names_are_read_whole(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(f"{render_line({'name': name, 'n': 1})}\n" for name in ('a"b', "c\\d", "é")))
    assert list(LineTable(path, "name")) == ['a"b', "c\\d", "é"]


def test_a_damaged_line_is_named_when_it_is_read(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"name": "a", "n": 1}\n{"name": "b", "n":\n')
    table = LineTable(path, "name")
    assert table["a"]["n"] == 1
    with pytest.raises(EnvironmentProblem, match="line 2"):
        table["b"]
    path.write_text('{"name": "a"}\n{"other": "b"}\n')
    with pytest.raises(EnvironmentProblem, match="line 2: no 'name'"):
        LineTable(path, "name")
