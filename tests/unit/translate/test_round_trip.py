"""to_mlm(to_bridge(x)) means what x means, and no option of a random command line is ever lost."""

from __future__ import annotations

import functools
import random
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from autorecipe.api.check import CheckRequest, check_run
from autorecipe.api.resolve import resolve_run
from autorecipe.api.translate import MlmSource, load_mlm_mapping, to_bridge, to_mlm
from autorecipe.catalog.store import open_catalog
from autorecipe.config.resolve import resolve_config
from autorecipe.rules.registry import find_rules
from autorecipe.rules.rule import MEGATRON_LM
from autorecipe.schema.finding import Severity
from autorecipe.schema.layer import Layer
from autorecipe.schema.option import MlmOption
from autorecipe.schema.translation import Translation
from autorecipe.translate.arguments import parse_arguments
from autorecipe.translate.effective import derive_effective, expand_stages
from autorecipe.translate.render import override_texts
from autorecipe.translate.to_bridge import translate_to_bridge
from autorecipe.translate.to_mlm import mlm_words, translate_to_mlm
from autorecipe.translate.values import is_flag, same_value, takes_many

RECIPE = "vanilla_gpt_pretrain_config"
BASE = "--num-layers 8 --hidden-size 256 --num-attention-heads 8 --seq-length 256 --max-position-embeddings 256"
BASE += " --micro-batch-size 2 --global-batch-size 16 --train-iters 40 --lr 1e-3 --vocab-size 1024 --tokenizer-type NullTokenizer"
BASE += " --mock-data"

SAFE = {
    "--bf16": [[]],
    "--adam-beta1": [["0.8"], ["0.9"]],
    "--adam-beta2": [["0.95"], ["0.999"], ["0.9"]],
    "--adam-eps": [["1e-6"]],
    "--attention-dropout": [["0.0"], ["0.25"]],
    "--hidden-dropout": [["0.0"]],
    "--clip-grad": [["0.5"]],
    "--weight-decay": [["0.1"], ["0.0"]],
    "--min-lr": [["1e-5"]],
    "--lr-decay-style": [["cosine"], ["linear"], ["constant"]],
    "--lr-warmup-iters": [["5"]],
    "--lr-decay-iters": [["30"]],
    "--seed": [["42"]],
    "--swiglu": [[]],
    "--group-query-attention": [[]],
    "--num-query-groups": [["2"], ["4"]],
    "--ffn-hidden-size": [["688"], ["1024"]],
    "--kv-channels": [["64"]],
    "--normalization": [["RMSNorm"]],
    "--norm-epsilon": [["1e-6"]],
    "--disable-bias-linear": [[]],
    "--add-qkv-bias": [[]],
    "--untie-embeddings-and-output-weights": [[]],
    "--position-embedding-type": [["rope"]],
    "--rotary-base": [["500000"]],
    "--rotary-percent": [["0.5"]],
    "--qk-layernorm": [[]],
    "--init-method-std": [["0.01"]],
    "--num-experts": [["4"], ["8"]],
    "--moe-router-topk": [["1"], ["2"]],
    "--moe-ffn-hidden-size": [["128"]],
    "--moe-aux-loss-coeff": [["0.01"]],
    "--moe-layer-freq": [["([0]*2+[1]*6)"], ["1"]],
    "--moe-token-dispatcher-type": [["alltoall"]],
    "--moe-expert-capacity-factor": [["1.25"]],
    "--tensor-model-parallel-size": [["2"]],
    "--sequence-parallel": [[]],
    "--pipeline-model-parallel-size": [["2"], ["4"]],
    "--num-virtual-stages-per-pipeline-rank": [["2"]],
    "--context-parallel-size": [["2"]],
    "--use-distributed-optimizer": [[]],
    "--overlap-grad-reduce": [[]],
    "--recompute-granularity": [["full"], ["selective"]],
    "--recompute-method": [["uniform"]],
    "--recompute-num-layers": [["1"]],
    "--transformer-impl": [["local"]],
    "--attention-backend": [["flash"], ["unfused"]],
    "--no-bias-gelu-fusion": [[]],
    "--no-bias-dropout-fusion": [[]],
    "--no-masked-softmax-fusion": [[]],
    "--no-gradient-accumulation-fusion": [[]],
    "--no-persist-layer-norm": [[]],
    "--eval-iters": [["2"]],
    "--eval-interval": [["10"]],
    "--log-interval": [["1"]],
    "--save-interval": [["20"]],
    "--calculate-per-token-loss": [[]],
    "--no-check-for-nan-in-loss-and-grad": [[]],
    "--num-workers": [["0"], ["4"]],
    "--reset-position-ids": [[]],
    "--no-create-attention-mask-in-dataloader": [[]],
}


@functools.cache
def _world() -> tuple[Any, Any, Any]:
    catalog = open_catalog()
    return catalog.load(RECIPE), catalog.schema(), load_mlm_mapping()


def translate(words: list[str]) -> Translation:
    recipe, schema, mapping = _world()
    parsed = parse_arguments(words, mapping.table)
    return translate_to_bridge(
        parsed, mapping, lambda overrides: resolve_config(recipe, schema, overrides), schema, recipe=RECIPE
    )


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], phases=[Phase.generate])
@given(st.data())
def test_there_and_back_means_the_same(data: st.DataObject) -> None:
    recipe, schema, mapping = _world()
    names = data.draw(st.lists(st.sampled_from(sorted(SAFE)), unique=True, max_size=14))
    words = BASE.split() + [word for name in names for word in (name, *data.draw(st.sampled_from(SAFE[name])))]
    there = translate(words)
    assert there.lost == ()
    config = resolve_config(recipe, schema, override_texts(there))
    back = translate_to_mlm(config, mapping, schema)
    assert [item.name for item in back.lost] == []
    before = derive_effective(parse_arguments(words, mapping.table), mapping.table)
    after = derive_effective(parse_arguments(mlm_words(back, mapping), mapping.table), mapping.table)
    different = {
        dest: (before.get(dest), after.get(dest))
        for dest, entry in mapping.entries.items()
        if entry.status.maps and not same_value(before.get(dest), after.get(dest)) and entry.acts(before)
        if not (before.get(dest) in (None, False) and after.get(dest) in (None, False))
        if entry.layer is not Layer.IO or dest in before.given
    }
    aliases = {"encoder_seq_length", "use_rotary_position_embeddings", "num_layers_per_virtual_pipeline_stage"}
    assert {dest: pair for dest, pair in different.items() if dest not in aliases} == {}


def random_value(option: MlmOption, source: random.Random) -> list[str]:
    """Return random legal words for an option's value."""
    if is_flag(option):
        return []
    count = int(option.nargs) if option.nargs.isdigit() else source.randint(1, 3) if takes_many(option) else 1
    return [_word(option, source) for _ in range(count)]


def _word(option: MlmOption, source: random.Random) -> str:
    if option.choices:
        return (
            source.choice(option.choices).rsplit(".", 1)[-1]
            if "Enum" in option.type or option.type == "enum_type_handler"
            else source.choice(option.choices)
        )
    if option.type == "int":
        return str(source.randint(0, 64))
    if option.type == "float":
        return repr(round(source.uniform(0, 2), 3))
    if option.type in ("moe_freq_type", "la_freq_type", "no_rope_freq_type"):
        return source.choice(["1", "2", "([0]*2+[1]*6)"])
    return source.choice(["name", "a/path", "value-1"])


def random_command_line(source: random.Random) -> list[str]:
    """Return a random Megatron-LM command line of up to 25 options, every value of a legal type."""
    options = list(load_mlm_mapping().table.options.values())
    words: list[str] = []
    for option in source.sample(options, source.randint(1, 25)):
        words += [source.choice(option.flag.split()), *random_value(option, source)]
    return words


def assert_nothing_is_lost(words: list[str]) -> None:
    """Fail unless every option of a command line is in the account, and in the output or with a reason."""
    translation = translate(words)
    names = [word for word in words if word.startswith("--")]
    assert [outcome.name for outcome in translation.outcomes] == names
    written = {setting.name for setting in translation.settings}
    for outcome in translation.outcomes:
        assert set(outcome.targets) <= written
        assert outcome.targets or outcome.note, (outcome, words)


def test_no_option_of_a_random_command_line_is_lost() -> None:
    source = random.Random(20261201)
    for _ in range(60):
        assert_nothing_is_lost(random_command_line(source))


def test_what_a_translation_breaks_the_original_breaks_too() -> None:
    source = random.Random(20261202)
    options = list(load_mlm_mapping().table.options.values())
    accepted = 0
    for number in range(60):
        words = BASE.split()
        if number % 2:
            for name in source.sample(sorted(SAFE), source.randint(0, 14)):
                words += [name, *source.choice(SAFE[name])]
        else:
            for option in source.sample(options, source.randint(1, 4)):
                words += [source.choice(option.flag.split()), *random_value(option, source)]
        translation = to_bridge(MlmSource(words=words))
        if translation.lost or translation.problems:
            continue
        accepted += 1
        report = check_run(CheckRequest(target=RECIPE, overrides=override_texts(translation)))
        errors = {finding.rule for finding in report.findings if finding.severity is Severity.ERROR}
        assert {rule for rule in errors if MEGATRON_LM not in find_rules(rule)[0].frameworks} == set(), words
        assert not [note for note in report.notes if "does not act" in note], words
    assert accepted > 30


def test_resolving_the_overrides_gives_what_megatron_lm_would_do() -> None:
    translation = translate([*BASE.split(), "--bf16", "--swiglu", "--weight-decay", "0.1"])
    config = resolve_run(RECIPE, override_texts(translation))
    assert config.get("scheduler.end_weight_decay") == 0.1
    assert config.get("model.ffn_hidden_size") == 640
    assert config.get("optimizer.adam_beta2") == 0.999
    assert config.get("scheduler.lr_decay_style") == "linear"
    assert config.get("model.bf16", True) is True


def test_options_of_a_recipe_are_ones_that_megatron_lm_takes() -> None:
    mapping = load_mlm_mapping()
    for recipe, note in (
        ("kimi_k2_pretrain_config", "model.cross_entropy_fusion_impl=te becomes native"),
        ("llama32_1b_pretrain_config", "model.cross_entropy_fusion_impl=te becomes native"),
    ):
        there = to_mlm(recipe)
        assert not there.problems, recipe
        assert any(note in text for text in there.notes), recipe
        assert not to_bridge(MlmSource(words=mlm_words(there, mapping)), recipe=recipe).problems, recipe


def test_stages_that_a_recipe_lists_become_the_text_that_megatron_lm_reads() -> None:
    there = to_mlm("kimi_k2_pretrain_config")
    text = next(setting.value for setting in there.settings if setting.name == "--pipeline-model-parallel-layout")
    config = resolve_run("kimi_k2_pretrain_config", ())
    listed = config.get("model.pipeline_model_parallel_layout")
    letters = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
    assert expand_stages(text) == "|".join("".join(letters[name] for name in stage) for stage in listed)
    assert expand_stages("Et*3|(tt|)*2m|L") == "Ettt|tt|tt|m|L"
