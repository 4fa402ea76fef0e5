import pytest

from autorecipe.catalog.store import open_catalog
from autorecipe.config.origins import Origins
from autorecipe.schema.run import Origin, OriginKind


@pytest.fixture(scope="module")
def catalog():
    return open_catalog("0.6.2")


@pytest.fixture
def origins(catalog):
    return Origins(catalog.load("llama3_8b_pretrain_config"), catalog.schema())


def test_what_a_recipe_says_is_told_from_defaults_and_the_model(catalog, origins):
    recipe = catalog.load("llama3_8b_pretrain_config")
    written = [f"model.{name.removeprefix('model.')}" for name in recipe.model_set]
    assert {origins[path].kind for path in written} == {OriginKind.RECIPE}
    assert origins["model.num_layers"] == Origin(kind=OriginKind.MODEL_CARD, detail="meta-llama/Meta-Llama-3-8B")
    assert origins["model._class"].kind is OriginKind.RECIPE
    assert origins["optimizer.lr"].kind is OriginKind.RECIPE
    assert origins["optimizer.adam_eps"].kind is OriginKind.DEFAULT
    assert list(origins) == list(recipe.fields)


def test_it_is_a_dictionary_over_the_recipe(origins):
    first, second, *_ = origins
    count = len(origins)
    new = Origin(kind=OriginKind.OVERRIDE, detail="x=1")
    origins[first] = new
    origins["brand.new"] = new
    assert (origins[first], origins["brand.new"], len(origins)) == (new, new, count + 1)
    assert next(iter(origins)) == first and list(origins)[-1] == "brand.new"
    del origins[first]
    assert origins.pop(second, None) is not None
    assert origins.pop(second, None) is None
    assert first not in origins and len(origins) == count - 1
    with pytest.raises(KeyError):
        origins[first]
    with pytest.raises(KeyError):
        del origins["never.there"]
    origins[first] = new
    assert list(origins)[-1] == first
    assert dict(origins) == origins
