import string

import pytest

from autorecipe.errors import InternalError
from autorecipe.recommend.language import WORDS, load_messages, render_statement
from autorecipe.recommend.render import HEADINGS, LAYERS, SEVERITIES
from autorecipe.schema.finding import Severity
from autorecipe.schema.layer import Layer
from autorecipe.schema.recommendation import Statement

ENGLISH, JAPANESE = load_messages("en"), load_messages("ja")


def fields(text):
    return {(name, spec) for _, name, spec, _ in string.Formatter().parse(text) if name}


def test_both_languages_have_the_same_sentences():
    assert set(ENGLISH) == set(JAPANESE)


@pytest.mark.parametrize("code", sorted(ENGLISH))
def test_a_sentence_carries_the_same_facts_in_both_languages(code):
    assert fields(ENGLISH[code]) == fields(JAPANESE[code])


def test_japanese_sentences_are_japanese():
    assert [code for code, text in JAPANESE.items() if not any("\u3040" <= letter <= "\u9fff" for letter in text)] == [
        code for code in JAPANESE if code in ("title", "oom.recompute-unsized")
    ]


def test_words_and_headings_are_complete():
    for table in (WORDS, HEADINGS):
        assert set(table["en"]) == set(table["ja"])
    for lang in ("en", "ja"):
        assert set(LAYERS[lang]) == {*Layer, None}
        assert set(SEVERITIES[lang]) == set(Severity)


def test_facts_are_written_in_their_unit():
    statement = Statement(code="oom.tp", facts={"before": 1, "after": 2, "peak": 2**30 * 1.5, "capacity": 80 * 2**30})
    assert render_statement(statement, "en") == "TP 1 -> 2, with SP: about 1.5 GiB of 80.0 GiB"


def test_a_missing_fact_is_our_bug():
    with pytest.raises(InternalError, match=r"oom\.tp"):
        render_statement(Statement(code="oom.tp"), "en")
