"""A refusal names the nearest model that has a recipe for the goal, how it differs, and what else the model has."""

import json
import re

import pytest

from autorecipe.api.recommend import recommend
from autorecipe.catalog.store import open_catalog
from autorecipe.cli.main import execute
from autorecipe.errors import AutorecipeError, NegativeAnswer, UsageError

CARDS = open_catalog("0.6.2").model_cards()
RECIPES = open_catalog("0.6.2").recipes


def refuse(question):
    with pytest.raises(AutorecipeError) as caught:
        recommend(question, release="0.6.2")
    return caught.value, {problem.code: problem for problem in caught.value.problems}


def told(problem):
    """Return the differences as {fact: (of the nearest model, of the one asked for)}."""
    return {
        name: (near, asked) for name, near, asked in re.findall(r"(\w+) ([^\s(]+) \(([^)]+)\)", problem.message.split(": ", 1)[1])
    }


@pytest.mark.parametrize(
    ("question", "hf_id", "mode"),
    [
        ("deepseek v3 sft on 64 h100", "deepseek-ai/DeepSeek-V3", "sft"),
        ("Qwen3-Next 80B-A3B LoRA on 8 H100", "Qwen/Qwen3-Next-80B-A3B-Instruct", "peft"),
        ("LoRA of GLM 5.1 on 64 H100", "zai-org/GLM-5.1", "peft"),
        ("pretrain Gemma 3 12B on 64 H100", "google/gemma-3-12b-it", "pretrain"),
    ],
)
def test_a_model_without_the_goal_names_the_nearest_that_has_it(question, hf_id, mode):
    error, problems = refuse(question)
    assert isinstance(error, NegativeAnswer)
    nearest = problems["nearest-model"]
    recipe = re.search(r"\(([\w@]+_config[\w@]*)\)", nearest.message)[1]
    assert RECIPES[recipe].mode == mode and RECIPES[recipe].status == "ok"
    near = next(CARDS[name] for name in RECIPES[recipe].hf_model_ids if name in CARDS)
    assert near.hf_model_id != hf_id
    for fact, (theirs, ours) in told(nearest).items():
        if fact.startswith("num_") and fact != "num_parameters":
            assert (theirs, ours) == (str(near.facts[fact]), str(CARDS[hf_id].facts[fact]))
    assert "num_parameters" in told(nearest)


def test_attention_of_the_same_kind_is_nearer_than_a_size():
    """DeepSeek-V3 has multi-latent attention and 256 experts, as GLM 5 has; no Qwen3 has the former."""
    _, problems = refuse("deepseek v3 sft on 64 h100")
    assert "kv_lora_rank" not in told(problems["nearest-model"])
    assert "multi_latent_attention" not in told(problems["nearest-model"])


def test_the_other_goals_of_the_model_are_named():
    _, problems = refuse("deepseek v3 sft on 64 h100")
    assert "pretrain (deepseek_v3_pretrain_config)" in problems["other-goals"].message
    assert "--goal pretrain" in problems["other-goals"].hint
    _, problems = refuse("Qwen3-Next 80B-A3B LoRA on 8 H100")
    assert "sft (qwen3_next_80b_a3b_sft_config)" in problems["other-goals"].message


def test_a_name_of_experts_and_size_bounds_the_size():
    error, problems = refuse("mixtral 8x7b sft")
    assert isinstance(error, UsageError)
    differences = told(problems["nearest-model"])
    assert differences["num_parameters"][1] == "<=56B" and differences["num_moe_experts"][1] == "8"
    assert "config.json of mixtral 8x7b" in problems["nearest-model"].hint
    _, problems = refuse("quokka sft")
    assert "nearest-model" not in problems


@pytest.mark.parametrize(("question", "status"), [("deepseek v3 sft on 64 h100", 1), ("mixtral 8x7b sft", 2)])
def test_the_hint_of_a_refusal_answers_and_both_languages_say_it(question, status, capsys):
    said = {}
    for lang in ("en", "ja"):
        assert execute(["recommend", question, "--lang", lang, "--format", "json", "--bridge", "0.6.2"]) == status
        printed = capsys.readouterr()
        errors = json.loads(printed.out or printed.err)["errors"]
        said[lang] = {item["code"]: item for item in errors}
        assert execute(["recommend", question, "--lang", lang, "--bridge", "0.6.2"]) == status
        assert said[lang]["nearest-model"]["code"] in capsys.readouterr().err
    command = re.search(r"`autorecipe ([^`]+)`", said["en"]["nearest-model"]["hint"])[1]
    assert f"`autorecipe {command}`" in said["ja"]["nearest-model"]["hint"]
    assert said["ja"]["nearest-model"]["message"] != said["en"]["nearest-model"]["message"]
    assert execute([*command.split(), "--bridge", "0.6.2", "--brief"]) in (0, 1)
    assert "==" in capsys.readouterr().out
