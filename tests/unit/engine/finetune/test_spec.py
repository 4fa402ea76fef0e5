"""What the dataset fields mean for fine-tuning, and which are refused."""

from typing import Any

import pytest

from autorecipe.engine.finetune.spec import ChatFormat, FinetuneSpec, PromptFormat, is_finetuning, read_finetune_spec
from autorecipe.errors import UsageError
from autorecipe.schema.run import RunConfig

SQUAD = {
    "dataset._class": "GPTSFTDatasetConfig",
    "dataset.seq_length": 128,
    "dataset.hf_dataset._class": "HFDatasetSourceConfig",
    "dataset.hf_dataset.dataset_name": "squad",
    "dataset.hf_validation_proportion": 0.1,
    "dataset.do_test": False,
    "dataset.preprocessing._class": "PromptCompletionSFTPreprocessingConfig",
    "dataset.preprocessing.separator": " ",
    "dataset.preprocessing.loss_mode": "completion",
}
PACKED = {
    "dataset.enable_offline_packing": True,
    "dataset.offline_packing_specs.packed_sequence_size": 128,
    "train.micro_batch_size": 1,
}


def read(**fields: Any) -> FinetuneSpec:
    return read_finetune_spec(RunConfig(values={**SQUAD, **{name.replace("__", "."): value for name, value in fields.items()}}))


def test_the_class_of_the_section_decides() -> None:
    assert is_finetuning(RunConfig(values=SQUAD))
    assert not is_finetuning(RunConfig(values={"dataset._class": "GPTDatasetConfig"}))


def test_squad_holds_a_tenth_out_and_has_no_test_rows() -> None:
    spec = read()
    assert (spec.train.path, spec.held_out, spec.validation, spec.test) == ("rajpurkar/squad", 0.1, None, None)
    assert spec.form == PromptFormat(prompt_column="prompt", completion_column="completion")
    assert (spec.multiple, spec.pads_whole, spec.packing, spec.row_limit) == (16, False, None, 128)


def test_splits_of_its_own_are_read_where_no_share_is_held_out() -> None:
    spec = read(dataset__hf_validation_proportion=None)
    assert spec.validation is not None and spec.validation.split == "validation"
    assert read(dataset__hf_validation_proportion=None, dataset__do_validation=False).validation is None


def test_a_folder_gives_the_files_it_has(tmp_path: Any) -> None:
    for name in ("training", "validation"):
        (tmp_path / f"{name}.jsonl").touch()
    local = {**SQUAD, "dataset.dataset_root": str(tmp_path), "dataset.do_test": True}
    values = {path: value for path, value in local.items() if "hf_" not in path}
    spec = read_finetune_spec(RunConfig(values=values))
    assert spec.train.path.endswith("training.jsonl") and spec.validation is not None and spec.test is None
    single = read_finetune_spec(RunConfig(values={**values, "dataset.dataset_root": str(tmp_path / "training.jsonl")}))
    assert single.train.path.endswith("training.jsonl") and single.validation is None


def test_without_preprocessing_a_folder_is_prompts_and_a_hub_set_is_chats() -> None:
    bare = {path: value for path, value in SQUAD.items() if "preprocessing" not in path}
    assert read_finetune_spec(RunConfig(values=bare)).form == ChatFormat()
    local = {path: value for path, value in bare.items() if "hf_" not in path}
    assert read_finetune_spec(RunConfig(values={**local, "dataset.dataset_root": "/d"})).form == PromptFormat()


def test_aligned_packs_and_chats_read_one_token_more() -> None:
    chat = {"dataset__preprocessing___class": "ChatSFTPreprocessingConfig", "dataset__preprocessing__loss_mode": "assistant"}
    chat = {name.replace("___class", "._class"): value for name, value in chat.items()}
    assert read(**chat).row_limit == 129
    packed = {name.replace(".", "__"): value for name, value in PACKED.items()}
    assert read(**packed).row_limit == 128
    assert read(**packed, dataset__offline_packing_specs__pad_seq_to_mult=4).row_limit == 129


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"dataset.dataloader_type": "cyclic"}, "set dataset.dataloader_type=batch"),
        ({"dataset.max_train_samples": 0}, "0 is not a whole number from 1 on"),
        ({"dataset.dataloader_type": "single", "dataset.drop_last": False}, "set dataset.drop_last=true"),
        ({"dataset.dataset_kwargs.tool_schemas": "x"}, "tool_schemas='x' is not read"),
        ({"dataset.dataset_kwargs": {"label_key": "x"}}, "label_key='x' is not read"),
        ({"dataset.preprocessing.prompt_template": "no field"}, "must hold {prompt}"),
        ({"dataset.preprocessing.loss_mode": "assistant"}, "is not completion or full"),
        ({"dataset.preprocessing.truncation_method": "middle"}, "is not right or left"),
        ({"dataset.hf_validation_proportion": 1.5}, "is not between 0 and 1"),
        ({"dataset.dataset_root": "/d"}, "dataset.hf_dataset are both set"),
        ({"dataset.seq_length": 130, "model.context_parallel_size": 2}, "130 is not a multiple of 4"),
        ({**PACKED, "train.micro_batch_size": 2}, "a micro batch is one pack"),
        ({**PACKED, "model.context_parallel_size": 2}, "use dataset.offline_packing_specs.pad_seq_to_mult=4"),
        ({**PACKED, "dataset.offline_packing_specs.packed_train_data_path": "/p.npy"}, "NumPy's pickled form"),
        ({**PACKED, "dataset.offline_packing_specs.max_single_sequence_length": 256}, "longer than a pack of 128"),
    ],
)
def test_what_is_not_read_is_refused_by_name(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_finetune_spec(RunConfig(values={**SQUAD, **fields}))
    assert len(caught.value.problems) == 1 and reason in str(caught.value)


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        read(dataset__dataloader_type="cyclic", dataset__max_train_samples=-3, dataset__hf_dataset__dataset_name="squd")
    assert len(caught.value.problems) == 3
