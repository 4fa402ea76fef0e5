"""One line per path, whatever several classes declare for it."""

from autorecipe.catalog.declarations import schema_lines


def test_variants_of_an_object_give_a_field_the_choices_of_each() -> None:
    raw = {
        "class:Chat": {"types": {"mode": "Literal['answer', 'full']", "size": "int"}, "fields": {"mode": "answer", "size": 1}},
        "class:Pair": {"types": {"mode": "Literal['full', 'completion']", "size": "str"}, "fields": {}},
    }
    lines = {line["path"]: line for line in schema_lines(raw, {"data.rows": ["class:Chat", "class:Pair"]}, [])}
    assert lines["data.rows.mode"]["type"] == "Literal['answer', 'full', 'completion']"
    assert lines["data.rows.mode"]["default"] == "answer" and lines["data.rows.size"]["type"] == "int"
    sections = {line["path"]: line for line in schema_lines(raw, {"model": ["class:Chat", "class:Pair"]}, [])}
    assert sections["model.mode"]["type"] == "Literal['answer', 'full']"
