import pytest

from autorecipe.catalog.search import search, split_words
from autorecipe.catalog.store import open_catalog


@pytest.fixture(scope="module")
def summaries():
    return open_catalog("0.6.2").summaries()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Llama 3.1 70B LoRA", ("llama31", "70b", "lora")),
        ("30b-a3b", ("30b_a3b",)),
        ("qwen3-30b-a3b sft on 8 GPUs", ("qwen3", "30b_a3b", "sft", "8gpu")),
        ("8x h100 nvfp4", ("8gpu", "h100", "nvfp4")),
        ("deepseek v3", ("deepseek", "v3")),
        ("llama3 70b fp8_mx", ("llama3", "70b", "fp8mx")),
        ("exaone 1.2b", ("exaone", "1p2b")),
        ("meta-llama/Meta-Llama-3-8B", ("meta-llama/meta-llama-3-8b",)),
        ("  ", ()),
    ],
)
def test_words(text, words):
    assert split_words(text) == words


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("llama 3.1 70b lora", "llama31_70b_peft_config"),
        ("30b-a3b", "qwen3_30b_a3b_sft_config"),
        ("qwen3 30b-a3b sft", "qwen3_30b_a3b_sft_config"),
        ("meta-llama/Meta-Llama-3-8B", "llama3_8b_sft_config"),
        ("Qwen/Qwen3-30B-A3B pretrain", "qwen3_30b_a3b_pretrain_config"),
        ("deepseek v3 pretrain", "deepseek_v3_pretrain_config"),
        ("Llama-3.1-405B pretraining", "llama31_405b_pretrain_config"),
        ("lama3 8b", "llama3_8b_sft_config"),
        ("gpt oss 120b 64 gpus", "gpt_oss_120b_pretrain_config"),
        ("benchmark 256 gpus b200 qwen3 235b nvfp4", "qwen3_235b_a22b_pretrain_256gpu_b200_nvfp4_config"),
    ],
)
def test_first_match(summaries, text, first):
    assert search(text, summaries)[0].summary.name == first


def test_another_size_is_not_a_match(summaries):
    found = search("llama3 8b pretrain", summaries)
    assert found
    assert all("70b" not in match.summary.name and "405b" not in match.summary.name for match in found)


def test_nothing_fits(summaries):
    assert search("xyzzy", summaries) == ()
    assert search("", summaries) == ()


def test_words_without_a_match_are_named(summaries):
    assert search("llama3 8b qlora4bit", summaries)[0].unmatched == ("qlora4bit",)
