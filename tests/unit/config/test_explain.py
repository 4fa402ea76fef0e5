import pytest

from autorecipe.config.explain import explain_field, list_fields
from autorecipe.config.traps import TRAPS, traps_of
from autorecipe.errors import UsageError
from autorecipe.schema import Layer


def test_a_page_tells_type_default_layer_traps_and_rules(schema):
    page = explain_field("optimizer.weight_decay", schema)
    assert (page.type, page.legal, page.default) == ("float", "a number", 0.01)
    assert page.layer is Layer.CONVERGENCE
    assert [trap.id for trap in page.traps] == ["TRAP-WD"]
    assert "BR-WD-01" in page.rules


def test_a_key_inside_a_dictionary_has_a_page(schema):
    page = explain_field("env_vars.NVTE_DPA_FP8_RECIPE", schema)
    assert page.layer is Layer.CONVERGENCE
    assert page.kind == "free"


def test_an_unclassified_key_says_so(schema):
    assert explain_field("env_vars.MY_THING", schema).layer is None
    assert "treated like convergence" in explain_field("env_vars.MY_THING", schema).reason


def test_an_unknown_field_gives_near_misses(schema):
    with pytest.raises(UsageError, match=r"optimizer\.weight_decay"):
        explain_field("optimizer.weight_decy", schema)
    with pytest.raises(UsageError):
        list_fields("optimzer", schema)


def test_fields_are_listed_below_a_prefix_and_by_layer(schema):
    assert [page.path for page in list_fields("rng", schema)] == ["rng.seed", "rng.te_rng_tracker"]
    assert {page.layer for page in list_fields("", schema, layer=Layer.FINGERPRINT)} == {Layer.FINGERPRINT}


def test_every_trap_is_met_at_a_path_that_a_release_has():
    from autorecipe.catalog.store import open_catalog

    release_schema = open_catalog().schema()
    for trap in TRAPS:
        known = [path for path in (*release_schema, "derived.padded_vocab_size") if trap.concerns(path)]
        assert known, trap.id
        assert trap in traps_of(known[0])
        assert trap.when
        assert trap.effect
        assert trap.remedy
        assert trap.source
