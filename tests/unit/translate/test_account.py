from __future__ import annotations

from typing import Any

import pytest

from autorecipe.schema.layer import Layer
from autorecipe.schema.translation import Status
from autorecipe.translate.mapping import MappingTable


def test_every_option_of_the_release_has_a_status_and_a_reason_where_it_needs_one(mapping: MappingTable) -> None:
    assert len({name for option in mapping.table.options.values() for name in option.flag.split()}) == len(mapping.table.names)
    assert {option.dest for option in mapping.table.options.values()} == set(mapping.entries)
    for entry in mapping.entries.values():
        assert isinstance(entry.status, Status)
        if entry.status in (Status.UNMAPPED, Status.NOT_APPLICABLE):
            assert entry.note.reason, entry.option.flag
        else:
            assert entry.rule is not None or entry.status is Status.DERIVED, entry.option.flag


def test_every_condition_of_the_reviewed_table_exists(mapping: MappingTable) -> None:
    from autorecipe.translate.conditions import CONDITIONS

    used = {entry.note.when for entry in mapping.entries.values() if entry.note.when}
    assert used == set(CONDITIONS)


def test_unknown_options_are_kept_with_near_misses_and_block(translate: Any) -> None:
    translation = translate("--num-leyers 3 --bf16")
    outcome = translation.outcomes[0]
    assert (outcome.name, outcome.value, outcome.status) == ("--num-leyers", "3", Status.UNKNOWN)
    assert "--num-layers" in outcome.note
    assert outcome in translation.lost


def test_unique_prefixes_count_as_argparse_counts_them(translate: Any) -> None:
    found = {setting.name: setting.value for setting in translate("--tensor-model-parallel 2 --adam-beta1=0.8").settings}
    assert found["model.tensor_model_parallel_size"] == 2
    assert found["optimizer.adam_beta1"] == 0.8


def test_the_last_of_a_repeated_option_counts_and_the_first_is_listed(translate: Any) -> None:
    translation = translate("--lr 1e-4 --lr 2e-4")
    assert [(outcome.value, outcome.acts) for outcome in translation.outcomes] == [("1e-4", False), ("2e-4", True)]
    assert next(setting.value for setting in translation.settings if setting.name == "optimizer.lr") == 2e-4


def test_unmapped_options_block_only_where_they_change_the_training(translate: Any) -> None:
    convergence = translate("--enable-mhc-connections").outcomes[0]
    execution = translate("--gdp-cutedsl-kernel").outcomes[0]
    default = translate("--mhc-num-residual-streams 4").outcomes[0]
    assert (convergence.status, convergence.layer, convergence.blocks) == (Status.UNMAPPED, Layer.CONVERGENCE, True)
    assert (execution.status, execution.blocks) == (Status.UNMAPPED, False)
    assert (default.status, default.acts, default.blocks) == (Status.UNMAPPED, False, False)


def test_fields_of_another_model_class_say_which_recipe_to_take(translate: Any) -> None:
    translation = translate("--multi-latent-attention --kv-lora-rank 256")
    assert any(outcome.name == "--kv-lora-rank" and "--recipe" in outcome.note for outcome in translation.lost)
    other = translate("--multi-latent-attention --kv-lora-rank 256", recipe="deepseek_v2_lite_pretrain_config")
    assert not any(outcome.name == "--kv-lora-rank" for outcome in other.lost)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [("--num-layers two", "whole number"), ("--bf16=1", "takes no value"), ("--normalization Batch", "is not one of")],
)
def test_values_that_do_not_parse_block_and_say_why(translate: Any, arguments: str, message: str) -> None:
    (outcome,) = translate(arguments).lost
    assert outcome.status is Status.UNRESOLVED
    assert message in outcome.note


def test_words_that_belong_to_no_option_are_reported(translate: Any) -> None:
    assert any("stray" in note for note in translate("stray --bf16").notes)


def test_launcher_words_give_the_world_size(translate: Any) -> None:
    command = (
        "uv run python -m torch.distributed.run --nproc_per_node=8 --nnodes 2 3rdparty/Megatron-LM/pretrain_gpt.py"
        " --tensor-model-parallel-size 2 --micro-batch-size 3"
    )
    translation = translate(command)
    assert translation.world_size == 16
    assert next(item.value for item in translation.settings if item.name == "train.global_batch_size") == 24


def test_a_split_of_made_up_data_is_accounted_for_and_not_written(translate: Any) -> None:
    for arguments in ("--mock-data", "--mock-data --split 90,5,5"):
        translation = translate(arguments)
        assert not any(setting.name == "dataset.split" for setting in translation.settings)
        assert not translation.lost
    assert "only on data from files" in translation.outcomes[1].note
    files = {setting.name: setting.value for setting in translate("--data-path a --split 90,5,5").settings}
    assert files["dataset.split"] == "90,5,5"


def test_a_table_of_learned_positions_longer_than_the_sequence_is_lost(translate: Any) -> None:
    longer = "--seq-length 1024 --max-position-embeddings 4096"
    assert [outcome.name for outcome in translate(longer).lost] == ["--max-position-embeddings"]
    assert translate(f"{longer} --position-embedding-type rope").lost == ()


def test_words_that_belong_to_no_option_are_lost_not_left_out(translate: Any) -> None:
    lost = translate("--num-layers 2 --bf16 stray ${EXTRA}").lost
    assert [(item.name, "may hold options" in item.note) for item in lost] == [("stray", False), ("${EXTRA}", True)]


def test_a_program_that_trains_something_else_is_a_problem(translate: Any) -> None:
    found = translate("torchrun pretrain_mamba.py --num-layers 2").problems
    assert [problem.code for problem in found] == ["another-program"]
    assert not translate("torchrun examples/pretrain_gpt.py --num-layers 2").problems
    assert any("pretrain_own.py is read as if" in note for note in translate("python pretrain_own.py --num-layers 2").notes)
