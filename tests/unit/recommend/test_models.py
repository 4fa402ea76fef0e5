import pytest

from autorecipe.catalog.store import open_catalog
from autorecipe.recommend.models import MatchKind, ModelIndex, read_model_name, read_model_stem


@pytest.fixture(scope="module")
def index():
    return ModelIndex(open_catalog("0.6.2").recipes)


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("qwen3 30b-a3b", "qwen3_30b_a3b"),
        ("Qwen/Qwen3-30B-A3B", "qwen3_30b_a3b"),
        ("Qwen3-235B", "qwen3_235b_a22b"),
        ("Llama 3 8B", "llama3_8b"),
        ("llama-3.1-70b", "llama31_70b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama31_8b"),
        ("qwen2.5-vl 7b", "qwen25_vl_7b"),
        ("gemma 3 4b", "gemma3_vl_4b"),
        ("nemotron nano 9b v2", "nemotron_nano_9b_v2"),
        ("nemotron 3 nano", "nemotron_3_nano"),
        ("deepseek v3", "deepseek_v3"),
        ("deepseek v4 flash", "deepseek_v4_flash"),
        ("DeepSeek-V2-Lite", "deepseek_v2_lite"),
        ("glm-4.5 air", "glm45_air_106b"),
        ("gpt-oss 20b", "gpt_oss_20b"),
        ("wan 1.3b", "wan_1_3b"),
        ("qwen3 0.6b", "qwen3_600m"),
        ("qwen2.5 0.5b", "qwen25_500m"),
        ("exaone 4.0 1.2b", "exaone4_1p2b"),
        ("Qwen2.5-Coder-7B-Instruct", "qwen25_7b"),
        ("google/gemma-3-27b-it", "gemma3_vl_27b"),
        ("kimi k2", "kimi_k2"),
        ("vanilla gpt", "vanilla_gpt"),
    ],
)
def test_a_name_finds_its_model(index, text, model):
    match = index.find(text)
    assert (match.kind, match.models[0]) == (MatchKind.EXACT, model)


@pytest.mark.parametrize(
    ("text", "nearest"),
    [("llama 3.3 70b", "llama31_70b"), ("llama 3 13b", "llama3_8b"), ("qwen3 72b", "qwen25_72b")],
)
def test_a_model_without_recipes_finds_the_nearest_of_its_family(index, text, nearest):
    match = index.find(text)
    assert (match.kind, match.models[0]) == (MatchKind.NEAREST, nearest)


def test_a_family_without_a_size_leaves_the_size_open(index):
    match = index.find("llama3")
    assert match.kind is MatchKind.MANY
    assert match.models[:2] == ("llama3_8b", "llama3_70b")


def test_an_unknown_family_has_nothing_near(index):
    assert index.find("mistral 7b").models == ()


def test_without_a_family_the_size_decides_and_dense_stays_dense(index):
    assert index.nearest_by_size(7.0)[:2] == ("llama3_8b", "qwen3_8b")
    assert index.nearest_by_size(30.0, moe=True)[0] == "qwen3_30b_a3b"
    assert not any(index.is_moe(stem) for stem in index.nearest_by_size(7.0)[:8])


def test_every_stem_finds_itself(index):
    for stem in index.models:
        match = index.find(stem)
        assert (match.kind, match.models[0]) == (MatchKind.EXACT, stem)


def test_names_and_stems_read_alike():
    assert read_model_name("Qwen3-30B-A3B") == read_model_stem("qwen3_30b_a3b")
    assert read_model_name("Llama-3.1-405B").size == 405.0
    assert read_model_stem("wan_1_3b").size == 1.3
    assert read_model_stem("qwen35_vl_800m").size == pytest.approx(0.8)
