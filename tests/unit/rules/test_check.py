import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autorecipe.errors import UsageError
from autorecipe.rules.check import SEVERITY_ORDER, STAGE_ORDER, check_config, judge, order
from autorecipe.rules.layout import layers_fit, microbatches_fit, tensor_parallel_fits
from autorecipe.rules.registry import all_rules
from autorecipe.rules.situation import read_situation
from autorecipe.schema import RunConfig, Severity, Stage

SIZES = st.sampled_from([1, 2, 3, 4, 8, 16])


@st.composite
def situations(draw):
    words = {
        "gpus": draw(st.sampled_from([1, 8, 16, 48, 64])),
        "TP": draw(SIZES),
        "PP": draw(SIZES),
        "VP": draw(st.sampled_from(["null", 2, 4])),
        "CP": draw(SIZES),
        "EP": draw(SIZES),
        "num_layers": draw(st.sampled_from([12, 60, 61, 94])),
        "num_attention_heads": 64,
        "num_query_groups": draw(st.sampled_from([2, 4, 8])),
        "num_moe_experts": draw(st.sampled_from(["null", 8, 128])),
        "sequence_parallel": draw(st.sampled_from(["true", "false"])),
        "dataset.seq_length": draw(st.sampled_from([4096, 8192, 1000])),
        "train.global_batch_size": draw(st.sampled_from([8, 30, 512])),
        "train.micro_batch_size": draw(st.sampled_from([1, 2, 3])),
    }
    return " ".join(f"{key}={value}" for key, value in words.items())


@settings(deadline=None, max_examples=60)
@given(situations())
def test_check_is_deterministic_and_sorted(words):
    first, second = judge(read_situation(words)), judge(read_situation(words))
    assert first == second
    assert list(first) == sorted(first, key=order)


@settings(deadline=None, max_examples=60)
@given(situations())
def test_verified_fix_leaves_no_new_error(words):
    situation = read_situation(words)
    findings = judge(situation)
    before = {finding.rule for finding in findings if finding.severity is Severity.ERROR}
    for finding in findings:
        for fix in finding.fixes:
            if fix.verified:
                after = {item.rule for item in judge(situation.changed(fix.overrides)) if item.severity is Severity.ERROR}
                assert after <= before
                assert finding.severity is not Severity.ERROR or finding.rule not in after


def test_every_severity_and_stage_has_a_place():
    assert set(SEVERITY_ORDER) == set(Severity)
    assert set(STAGE_ORDER) == set(Stage)


def test_late_notice_comes_first():
    findings = judge(read_situation("gpus=8 TP=3 PP=2 num_layers=7 num_attention_heads=8 num_query_groups=8"))
    errors = [finding.rule for finding in findings if finding.severity is Severity.ERROR]
    assert errors.index("PIP001") < errors.index("PAR001") < errors.index("PAR004")


def test_unknown_inputs_are_collected_in_one_finding():
    findings = check_config(RunConfig(values={"model.tensor_model_parallel_size": 2}), None)
    missing = [finding for finding in findings if finding.severity is Severity.UNKNOWN]
    assert len(missing) == 1
    assert {"gpus", "model.num_query_groups"} <= set(missing[0].paths)


def test_unknown_framework_is_refused():
    with pytest.raises(UsageError, match="did you mean 'megatron-lm'"):
        check_config(RunConfig(values={}), None, framework="megatronlm")


@pytest.mark.parametrize(
    ("core", "fits"), [("0.15.2", False), ("0.16", True), ("0.16.1", True), ("0.19.2", True), ("HEAD", True)]
)
def test_tensor_parallel_may_exceed_the_groups_from_core_016(core, fits):
    assert tensor_parallel_fits(8, 2, core) is fits


@given(st.integers(1, 200), st.integers(1, 16), st.integers(1, 4))
def test_layer_split_is_a_partition(layers, pp, vp):
    assert layers_fit(layers, pp, vp) == (layers % (pp * vp) == 0)


def test_microbatch_group_decides_and_not_the_stages():
    assert microbatches_fit(32, 13, 2, 16)
    assert not microbatches_fit(32, 13, 2)
    assert not microbatches_fit(6, 4, 2)


@pytest.mark.parametrize("words", ["TP=1000000000", "CP=1000000000 dataset.seq_length=8192", "PP=1000000000 num_layers=61"])
def test_absurd_sizes_are_judged_at_once(words):
    findings = judge(read_situation(f"gpus=8 cp_comm_type=a2a+p2p num_attention_heads=32 {words}"))
    assert any(finding.severity is Severity.ERROR for finding in findings)


@pytest.mark.parametrize("value", ["[]", "{}", "text", "-1", "0", "null", "1.5", "true"])
def test_values_of_wrong_types_crash_no_rule(value):
    for rule in all_rules()[::7]:
        words = " ".join(
            f"{path}={value}" for path in rule.paths if "." in path and path.split(".")[0] in ("model", "train", "ddp")
        )
        judge(read_situation(f"gpus=8 {words}"), verify=False)


@pytest.mark.parametrize(
    ("words", "severity"),
    [
        ("core=0.16.1 moe_layer_freq=[0,1]", Severity.ERROR),
        ("core=0.17.0 moe_layer_freq=2", Severity.ERROR),
        ("core=0.18.0 moe_layer_freq=[0,1]", Severity.AUTO_FIX),
        ("core=0.19.2 moe_layer_freq=2", Severity.AUTO_FIX),
        ("core=0.19.2 moe_layer_freq=1", Severity.ERROR),
        ("core=0.19.2 moe_layer_freq=[1,1]", Severity.ERROR),
        ("core=0.19.2 moe_layer_freq='\"[0,1]\"'", Severity.ERROR),
        ("core=0.19.2 moe_layer_freq='\"[0,1]\"' framework=megatron-lm", Severity.AUTO_FIX),
    ],
)
def test_an_expert_size_without_experts_is_refused_unless_this_core_only_warns(words: str, severity: Severity) -> None:
    situation = read_situation(f"num_layers=2 moe_ffn_hidden_size=768 num_moe_experts=null {words}")
    assert [finding.severity for finding in judge(situation) if finding.rule == "MOE010"] == [severity]
