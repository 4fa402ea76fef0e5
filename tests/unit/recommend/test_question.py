import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autorecipe.catalog.hardware import load_gpus
from autorecipe.errors import UsageError
from autorecipe.recommend import question as reader
from autorecipe.recommend import vocabulary
from autorecipe.recommend.consistency import check_question, merge_options
from autorecipe.recommend.question import parse_question, split_questions
from autorecipe.schema.preset import PRESETS
from autorecipe.schema.recipe import Mode
from autorecipe.schema.recommendation import Question, Topic


def read(text):
    question = parse_question(text, gpus=list(load_gpus()), presets=PRESETS, recipes=lambda word: word.endswith("_config"))
    return {
        name: value for name, value in vars(question).items() if value not in (None, False, ()) and name not in ("text", "size")
    }


LORA = {"mode": Mode.PEFT, "adapter": "lora"}

ENGLISH = {
    "fine-tune qwen3 8b with lora on one h100, 16k context": {
        "model": "qwen3 8b",
        "num_gpus": 1,
        "gpu": "h100",
        "seq_length": 16384,
        **LORA,
    },
    "Qwen3 30B-A3B SFT on 16 GPUs": {"model": "qwen3 30b-a3b", "mode": Mode.SFT, "num_gpus": 16},
    "Llama3 8B 128K pretrain": {"model": "llama3 8b", "mode": Mode.PRETRAIN, "seq_length": 131072},
    "first-time tryout": {"first_run": True},
    "pretrain llama 3.1 70b on 64 H100s": {"model": "llama 3.1 70b", "mode": Mode.PRETRAIN, "num_gpus": 64, "gpu": "h100"},
    "eight H100s, Llama 3 8B, pretraining, 8192 tokens": {
        "model": "llama 3 8b",
        "mode": Mode.PRETRAIN,
        "num_gpus": 8,
        "gpu": "h100",
        "seq_length": 8192,
    },
    "fine-tune meta-llama/Llama-3.1-8B-Instruct on two nodes of 8 h100, gsm8k": {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "mode": Mode.SFT,
        "num_nodes": 2,
        "gpus_per_node": 8,
        "gpu": "h100",
        "dataset": "gsm8k",
    },
    "benchmark deepseek v3 on 256 gb200 fp8 mx": {
        "model": "deepseek v3",
        "benchmark": True,
        "num_gpus": 256,
        "gpu": "gb200",
        "precision": "fp8mx",
    },
    "sequence length 32768 llama 3 8b pretrain 8 h100": {
        "model": "llama 3 8b",
        "mode": Mode.PRETRAIN,
        "num_gpus": 8,
        "gpu": "h100",
        "seq_length": 32768,
    },
    "pretraining, not SFT: gemma 2 9b, 8 h100": {"model": "gemma 2 9b", "mode": Mode.PRETRAIN, "num_gpus": 8, "gpu": "h100"},
    "nemotron nano 9b v2 sft on 4 nodes x 8 h100": {
        "model": "nemotron nano 9b v2",
        "mode": Mode.SFT,
        "num_nodes": 4,
        "gpus_per_node": 8,
        "gpu": "h100",
    },
    "Qwen2.5-VL 7B sft 2x8 H100": {
        "model": "qwen2.5-vl 7b",
        "mode": Mode.SFT,
        "num_nodes": 2,
        "gpus_per_node": 8,
        "gpu": "h100",
    },
    "kimi k2 pretrain 512 h100": {"model": "kimi k2", "mode": Mode.PRETRAIN, "num_gpus": 512, "gpu": "h100"},
    "train a small MoE on 16 h100": {"topic": Topic.SMALL_MOE, "num_gpus": 16, "gpu": "h100"},
    "LoRA on 1 GPU": {"num_gpus": 1, **LORA},
    "llama3_8b_16k_pretrain_config 4 h100": {"model": "llama3_8b_16k_pretrain_config", "num_gpus": 4, "gpu": "h100"},
    "./config.json pretrain on 8 H100": {"model": "./config.json", "mode": Mode.PRETRAIN, "num_gpus": 8, "gpu": "h100"},
    "dora for gpt-oss 20b on 8 b200": {
        "model": "gpt-oss 20b",
        "mode": Mode.PEFT,
        "adapter": "dora",
        "num_gpus": 8,
        "gpu": "b200",
    },
}

JAPANESE = {
    "H100 8枚でQwen3 8BをLoRAファインチューニングしたい、16Kトークン": {
        "model": "qwen3 8b",
        "num_gpus": 8,
        "gpu": "h100",
        "seq_length": 16384,
        **LORA,
    },
    "GPU 16台でQwen3 30B-A3Bを事前学習": {"model": "qwen3 30b-a3b", "mode": Mode.PRETRAIN, "num_gpus": 16},
    "Llama 3 70B を H100×64 で事前学習したい": {
        "model": "llama 3 70b",
        "mode": Mode.PRETRAIN,
        "num_gpus": 64,
        "gpu": "h100",
    },
    "初めてBridgeを試したい": {"first_run": True},
    "Ｑｗｅｎ３ ８Ｂ、H100 １枚、LoRA": {"model": "qwen3 8b", "num_gpus": 1, "gpu": "h100", **LORA},
    "DeepSeek V3 のスループットを GB200 256台で測りたい": {
        "model": "deepseek v3",
        "benchmark": True,
        "num_gpus": 256,
        "gpu": "gb200",
    },
    "2ノード、各8枚のH100でLlama 3 8BをSFT": {"model": "llama 3 8b", "mode": Mode.SFT, "num_nodes": 2, "gpu": "h100"},
}


@pytest.mark.parametrize(("text", "facts"), [*ENGLISH.items(), *list(JAPANESE.items())[:-1]])
def test_a_question_is_understood(text, facts):
    assert read(text) == facts


def test_hosts_and_gpus_of_each_are_read_in_japanese():
    assert read("2ノード x 8枚、H100、Llama 3 8BをSFT")["num_nodes"] == 2


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("llama 3 8b 16k", 16384),
        ("1M context qwen3 8b", 1048576),
        ("ctx 4096, qwen3 8b", 4096),
        ("32,768 tokens qwen3 8b", 32768),
    ],
)
def test_sequence_lengths_are_powers_of_two_thousands(text, tokens):
    assert read(text)["seq_length"] == tokens


@pytest.mark.parametrize("text", ["qwen3 8b for 10k steps", "qwen3 8b with 50k samples"])
def test_a_number_of_steps_or_samples_is_no_sequence_length(text):
    assert "seq_length" not in read(text)


def test_a_model_size_is_never_a_gpu_count():
    assert "num_gpus" not in read("Llama 3 8B")
    assert read("Llama 3 8B on 8 GPUs")["num_gpus"] == 8


def test_two_goals_are_asked_about():
    with pytest.raises(UsageError, match="two goals"):
        read("pretrain and sft llama 3 8b")


def test_fine_tuning_with_lora_is_peft():
    assert read("LoRA fine-tuning of llama 3 8b")["mode"] is Mode.PEFT


def test_two_counts_are_asked_about():
    with pytest.raises(UsageError, match="8 and 16"):
        read("llama 3 8b on 8 h100, 16 gpus")


def test_an_unknown_gpu_is_named():
    with pytest.raises(UsageError, match="rtx 4090"):
        read("rtx 4090 qwen3 8b lora")


def test_questions_are_split_at_semicolons_and_lines():
    assert split_questions("a; b；c\n d ") == ("a", "b", "c", "d")


def test_options_win_and_what_they_replace_is_told():
    merged, replaced = merge_options(Question(num_gpus=8, gpu="h100"), {"num_gpus": 16, "gpu": "h100", "mode": None})
    assert merged.num_gpus == 16
    assert replaced == (("num_gpus", 8, 16),)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        (Question(dataset="sqad"), "did you mean 'squad'"),
        (Question(num_nodes=2, gpus_per_node=8, num_gpus=8), "are 16, not 8"),
        (Question(num_nodes=3, num_gpus=8), "do not divide"),
        (Question(benchmark=True, adapter="dora"), "fixed LoRA"),
    ],
)
def test_contradictions_are_refused(question, text):
    with pytest.raises(UsageError, match=text):
        check_question(question, presets=list(PRESETS))


@given(count=st.integers(1, 4096), gpu=st.sampled_from(["h100", "h200", "b200", "gb200", "a100"]), form=st.integers(0, 4))
def test_every_spelling_of_a_count_is_read(count, gpu, form):
    spelled = (
        f"{count} {gpu.upper()}s",
        f"{count}x{gpu}",
        f"{gpu} x {count}",
        f"{gpu.upper()} {count}枚",
        f"{count} {gpu} gpus",
    )[form]
    facts = read(f"pretrain qwen3 8b on {spelled}")
    assert (facts["num_gpus"], facts["gpu"]) == (count, gpu)


@given(st.text(max_size=60))
def test_no_text_breaks_the_reader(text):
    try:
        read(text)
    except UsageError as error:
        assert error.problems


def wordings():
    for name, value in vars(vocabulary).items():
        for number, item in enumerate(
            value if isinstance(value, tuple) else value.values() if isinstance(value, dict) else [value]
        ):
            wording = item[-1] if isinstance(item, tuple) else item
            if isinstance(wording, vocabulary.Wording):
                yield f"{name}-{number}", wording
    yield "sequence", vocabulary.Wording(vocabulary.SEQUENCE_UNITS, vocabulary.SEQUENCE_WORDS)
    yield "nodes", vocabulary.Wording(reader._NODES, reader._NODE_WORDS)


WORDINGS = dict(wordings())


@pytest.mark.parametrize("name", WORDINGS)
def test_no_text_that_matches_lacks_the_words(name):
    wording = WORDINGS[name]

    @settings(max_examples=40, deadline=None)
    @given(st.from_regex(wording.pattern))
    def holds(text):
        found = re.search(wording.pattern, text)
        assert wording.may_match(found[0])

    holds()


def test_every_kind_of_wording_is_tried():
    assert len(WORDINGS) > 20
    assert {"GOALS-1", "TOPICS-0", "NEGATION-0", "ADAPTERS-0", "OTHER_GPUS-0"} <= WORDINGS.keys()


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("Ｈ１００　８ＧＰＵで 70億パラメータのモデルを微調整", {"num_gpus": 8, "gpu": "h100", "size": 7.0, "mode": Mode.SFT}),
        ("８０億パラメータ、H100×8、指示チューニング", {"num_gpus": 8, "gpu": "h100", "size": 8.0, "mode": Mode.SFT}),
        ("1兆パラメータ級のKimi K2を256枚のB200で事前学習", {"num_gpus": 256, "gpu": "b200", "mode": Mode.PRETRAIN}),
        ("Llama3 8Bを32kトークンで事前学習、A100 80GB 16基", {"model": "llama3 8b", "seq_length": 32768, "num_gpus": 16}),
        ("Qwen3 30B-A3BをLoRAで、H100を2枚、コンテキスト長は1万6千", {"seq_length": 16000, "num_gpus": 2, "adapter": "lora"}),
        ("小規模MoEを16GPUで学習したい", {"num_gpus": 16, "topic": Topic.SMALL_MOE, "model": None}),
        ("8台のH100ノード（各8GPU）でLlama3 70Bを事前学習", {"num_nodes": 8, "gpus_per_node": 8, "model": "llama3 70b"}),
        ("GPU 64台（1ノードあたり8台）でLlama3 70B", {"num_gpus": 64, "gpus_per_node": 8, "num_nodes": None}),
        ("4ノード、各8枚の H100 で Llama3 70B", {"num_nodes": 4, "gpus_per_node": 8, "gpu": "h100", "num_gpus": None}),
        ("H100 8枚×4ノードでGPT-OSS 120Bをファインチューン", {"num_nodes": 4, "gpus_per_node": 8, "num_gpus": None}),
        ("8 GPUs x 2 nodes, llama3 8b", {"num_nodes": 2, "gpus_per_node": 8, "num_gpus": None}),
        ("4 H100 nodes with 8 GPUs each", {"num_nodes": 4, "gpus_per_node": 8, "gpu": "h100", "num_gpus": None}),
        ("H100 2枚。DoRAではなく全パラメータのSFT", {"mode": Mode.SFT, "adapter": None}),
        ("社内文書でQwen3 14Bを追加学習したい", {"mode": Mode.SFT}),
        ("LoRA で追加学習したい", {"mode": Mode.PEFT, "adapter": "lora"}),
        ("Ｑｗｅｎ３　８Ｂ を追加学習（継続事前学習）したい", {"mode": Mode.PRETRAIN, "model": "qwen3 8b"}),
        ("Llama3 8Bを継続学習", {"mode": Mode.PRETRAIN}),
        ("GB200 NVL72で Qwen3 235B の性能を測定したい", {"benchmark": True, "gpu": "gb200"}),
        ("Megatron-LMとBridgeで損失が一致するか比較したい", {"topic": Topic.CORRELATION, "model": None}),
    ],
)
def test_questions_as_japanese_engineers_write_them(text, facts):
    question = parse_question(text, gpus=list(load_gpus()), presets=PRESETS, recipes=lambda word: word.endswith("_config"))
    assert {name: getattr(question, name) for name in facts} == facts


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("Qwen3 8Bを8枚のH100で事前学習", {"num_gpus": 8, "gpu": "h100"}),
        ("DeepSeek-V3 を B200 2ノード×8枚 で事前学習", {"num_nodes": 2, "gpus_per_node": 8, "gpu": "b200"}),
        ("llama 3 8b を二台のh100でSFT", {"num_gpus": 2, "gpu": "h100"}),
    ],
)
def test_counts_straight_after_a_japanese_particle(text, facts):
    found = read(text)
    assert {name: found.get(name) for name in facts} == facts


def test_a_count_of_none_is_refused():
    with pytest.raises(UsageError, match="--gpus: is 0"):
        check_question(Question(num_gpus=0), presets=list(PRESETS))
