from autorecipe.catalog.store import open_catalog
from autorecipe.recommend.drift import RELEASE, load_drift, state_drift


def test_the_figures_of_the_recipes_are_those_of_the_catalog():
    catalog = open_catalog(RELEASE)
    axes = {"TP": "tp", "PP": "pp", "CP": "cp", "EP": "ep"}
    compared = 0
    for name, rows in load_drift().items():
        layout = catalog.summary(name).layout
        for column, _, value in rows:
            if column in axes:
                assert getattr(layout, axes[column]) == int(value), (name, column)
                compared += 1
            elif column == "GPUs (min)":
                assert catalog.summary(name).minimum_gpus <= int(value)
                compared += 1
    assert compared > 20


def test_another_release_is_not_judged_by_it():
    assert state_drift("llama3_8b_128k_pretrain_config", release=RELEASE)
    assert state_drift("llama3_8b_128k_pretrain_config", release="0.5.1") == ()
