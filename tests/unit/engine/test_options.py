import pytest

from autorecipe.engine.options import EngineOptions, is_on, read_options
from autorecipe.errors import UsageError
from autorecipe.schema.run import RunConfig


def test_defaults_without_engine_keys():
    assert read_options(RunConfig(values={"model.num_layers": 2})) == EngineOptions()


def test_reads_choices_and_booleans():
    options = read_options(
        RunConfig(values={"engine.modules": "core-local", "engine.fused_layers": False, "engine.fused_loss": True})
    )
    assert options == EngineOptions(modules="core-local", fused_layers="off", fused_loss="on")


def test_reports_every_bad_key_with_its_near_miss():
    with pytest.raises(UsageError) as caught:
        read_options(RunConfig(values={"engine.module": "own", "engine.fused_layers": "perhaps"}))
    unknown, illegal = caught.value.problems
    assert "did you mean 'modules'" in unknown.message
    assert illegal.path == "engine.fused_layers"


def test_auto_takes_the_default():
    assert is_on("auto", default=True) and not is_on("auto", default=False)
    assert is_on("on", default=False) and not is_on("off", default=True)
