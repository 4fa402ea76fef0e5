"""What validation makes of hybrid layer patterns and of the length of fine-tuning samples, on shipped recipes."""

import pytest

from autorecipe.api.resolve import resolve_run

SUPER = "nemotron_3_super_peft_config"
MAIN = "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME"


@pytest.mark.parametrize(
    ("overrides", "pattern"),
    [
        ((), f"{MAIN}/*E/*E"),
        (("model.mtp_num_layers=0",), f"{MAIN}/*E"),
        (("model.mtp_num_layers=0", "model.mtp_use_repeated_layer=false"), f"{MAIN}/"),
        (("model.mtp_hybrid_override_pattern=null",), MAIN),
        (("model.hybrid_layer_pattern='M*M*'", "model.num_layers=4"), "M*M*/*E/*E"),
    ],
)
def test_the_pattern_of_prediction_depths_is_joined_to_the_decoders(overrides, pattern):
    run = resolve_run(SUPER, list(overrides))
    assert run.get("model.hybrid_layer_pattern") == pattern
    assert not run.origins["model.hybrid_layer_pattern"].given or pattern == MAIN


def test_layers_are_counted_from_the_pattern_where_a_recipe_leaves_them_open():
    run = resolve_run("nemotron_nano_v2_vl_12b_peft_config")
    assert run.get("model.num_layers") == len(run.get("model.hybrid_layer_pattern")) == 62


@pytest.mark.parametrize(
    ("overrides", "fixed", "multiple"),
    [
        ((), True, 128),  # TP8 PP2
        (("model.pipeline_model_parallel_size=1",), False, 128),
        (("model.context_parallel_size=3", "model.sequence_parallel=true"), True, 384),
    ],
)
def test_samples_are_padded_to_what_the_layout_divides(overrides, fixed, multiple):
    run = resolve_run("gemma3_vl_27b_sft_config", list(overrides))
    assert run.get("dataset.pad_to_max_length") is fixed
    assert run.get("dataset.pad_to_multiple_of") == multiple
