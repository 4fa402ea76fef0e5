"""What a question says beside model, GPUs, goal, sequence and data is handed back, and never taken for a model's name."""

import pytest

from autorecipe.api.recommend import recommend
from autorecipe.catalog.store import open_catalog
from autorecipe.config.overrides import parse_overrides
from autorecipe.recommend.asides import take_asides


@pytest.mark.parametrize(
    ("text", "left", "overrides", "unread"),
    [
        ("llama 3 8b with global batch size 64", "llama 3 8b with", ("train.global_batch_size=64",), ()),
        (
            "qwen3 8b tp2 cp=2 on 8 h100",
            "qwen3 8b on 8 h100",
            ("model.tensor_model_parallel_size=2", "model.context_parallel_size=2"),
            (),
        ),
        ("qwen3 8b lr 1e-5, 2k steps", "qwen3 8b ,", ("optimizer.lr=1e-5", "train.train_iters=2000"), ()),
        ("lora rank 16 mbs 2 gbs 32", "lora", ("train.micro_batch_size=2", "train.global_batch_size=32", "peft.dim=16"), ()),
        ("学習率 3e-4、バッチサイズ128", "、", ("train.global_batch_size=128", "optimizer.lr=3e-4"), ()),
        ("llama 3 8b model.bf16=true", "llama 3 8b", ("model.bf16=true",), ()),
        ("sft for 3 epochs", "sft for", (), ("3 epochs",)),
        ("deepseek v3 step 8b 16 h100", "deepseek v3 step 8b 16 h100", (), ()),
    ],
)
def test_settings_are_taken_out(text, left, overrides, unread):
    rest, found, unknown = take_asides(text)
    assert (" ".join(rest.split()), found, unknown) == (left, overrides, unread)


def test_an_answer_hands_settings_back_as_overrides_that_the_recipe_takes():
    (answer,) = recommend("qwen3 8b sft on 8 h100 for 3 epochs, learning rate 1e-5, gbs 64, tp2", release="0.6.2")
    assert answer.pick.name == "qwen3_8b_sft_config"
    assert "nearest.name" not in [reason.code for reason in answer.pick.reasons]
    said = {item.code: item.text for item in answer.assumptions}
    for override in ("train.global_batch_size=64", "optimizer.lr=1e-5", "model.tensor_model_parallel_size=2"):
        assert override in said["assume.settings"]
        assert override not in answer.command
    assert "3 epochs" in said["assume.unread"]
    catalog = open_catalog("0.6.2")
    parsed = parse_overrides(answer.question.settings, catalog.schema(), base=catalog.load(answer.pick.name).fields)
    assert len(parsed) == 3
