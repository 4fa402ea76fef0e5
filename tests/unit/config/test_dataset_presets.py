"""`--dataset NAME` replaces a fine-tuning recipe's data before overrides, as upstream's launcher does."""

import pytest

from autorecipe.api.resolve import resolve_run
from autorecipe.config.datasets import load_dataset_presets
from autorecipe.errors import UsageError
from autorecipe.launch.training import render_override
from autorecipe.rules.check import check_config
from autorecipe.schema import OriginKind, Severity

RECIPE = "llama3_8b_sft_config"


def test_every_text_preset_of_upstream_is_there() -> None:
    expected = {"squad", "tulu3", "openmathinstruct2", "openmathinstruct2-thinking", "gsm8k", "local-jsonl"}
    assert set(load_dataset_presets("0.6.2")) == expected


def test_a_preset_replaces_the_section_and_keeps_the_sequence() -> None:
    own, chosen = resolve_run(RECIPE), resolve_run(RECIPE, dataset="squad")
    assert own.get("dataset.enable_offline_packing") is True and chosen.get("dataset.enable_offline_packing") is False
    assert chosen.get("dataset.seq_length") == own.get("model.seq_length") == 4096
    assert chosen.get("dataset.preprocessing.loss_mode") == "completion"
    origin = chosen.origins["dataset.hf_dataset.dataset_name"]
    assert (origin.kind, origin.detail) == (OriginKind.PRESET, "--dataset squad")
    assert not chosen.known("dataset.offline_packing_specs.packed_sequence_size")


def test_overrides_come_after_the_preset() -> None:
    run = resolve_run(RECIPE, ["dataset.seed=3", "dataset.seq_length=512"], dataset="gsm8k")
    assert (run.get("dataset.seed"), run.get("model.seq_length"), run.get("dataset.hf_test_dataset.split")) == (3, 512, "test")


def test_packing_that_is_switched_on_alone_gets_its_specification() -> None:
    run = resolve_run(RECIPE, ["dataset.enable_offline_packing=true", "model.context_parallel_size=2"], dataset="squad")
    specs = "dataset.offline_packing_specs"
    assert (run.get(f"{specs}.packed_sequence_size"), run.get(f"{specs}.pad_seq_to_mult")) == (4096, 4)


def test_packing_that_is_switched_on_alone_is_refused_until_it_is_specified() -> None:
    """The package refuses the flag alone (training/config.py:1157 @ 0.6.2); the fix of the rule is one that it takes."""
    switched = ["dataset.enable_offline_packing=true"]
    findings = check_config(resolve_run(RECIPE, switched, dataset="squad"), None, verify=False)
    (finding,) = [item for item in findings if item.rule == "PCK012"]
    assert finding.severity is Severity.ERROR
    for fix in finding.fixes:
        written = [render_override(path, value) for path, value in fix.overrides.items()]
        after = check_config(resolve_run(RECIPE, [*switched, *written], dataset="squad"), None, verify=False)
        assert "PCK012" not in {item.rule for item in after}
    for own in (resolve_run(RECIPE), resolve_run(RECIPE, switched), resolve_run(RECIPE, dataset="squad")):
        assert "PCK012" not in {item.rule for item in check_config(own, None, verify=False)}


def test_what_is_learned_has_the_choices_of_each_kind_of_rows() -> None:
    for mode in ("completion", "full", "assistant", "last_turn"):
        run = resolve_run(RECIPE, [f"dataset.preprocessing.loss_mode={mode}"], dataset="squad")
        assert run.get("dataset.preprocessing.loss_mode") == mode
    with pytest.raises(UsageError, match="'anything' is not one of assistant, last_turn, full, completion"):
        resolve_run(RECIPE, ["dataset.preprocessing.loss_mode=anything"], dataset="squad")


def test_an_unset_specification_is_built_as_the_hint_says() -> None:
    specs = "dataset.offline_packing_specs"
    switched = ["dataset.enable_offline_packing=true", "dataset.seq_length=128"]
    for typed in (f"{specs}={{packed_sequence_size:128}}", f"{specs}.packed_sequence_size=128"):
        with pytest.raises(UsageError) as caught:
            resolve_run(RECIPE, [*switched, typed], dataset="squad")
        (problem,) = caught.value.problems
        assert problem.path == f"{specs}.packed_sequence_size"
        built = problem.hint.removeprefix('build it: "').removesuffix('"')
        run = resolve_run(RECIPE, [*switched, built], dataset="squad")
        assert run.get(f"{specs}.packed_sequence_size") == 128


@pytest.mark.parametrize(
    ("recipe", "dataset"),
    [
        ("llama3_8b_pretrain_config", "squad"),
        (RECIPE, "mock"),
        (RECIPE, "cord-v2"),
        ("glm51_sft_416gpu_h100_bf16_config", "gsm8k"),
    ],
)
def test_what_does_not_fit_changes_nothing_and_is_left_to_the_rules(recipe: str, dataset: str) -> None:
    assert resolve_run(recipe, dataset=dataset).values == resolve_run(recipe).values
