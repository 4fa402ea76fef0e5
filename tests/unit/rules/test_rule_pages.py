from pathlib import Path

import pytest

from autorecipe.rules.pages import TOPICS, example_message, render_reference, rule_page
from autorecipe.rules.registry import FAMILIES, all_rules, find_rules

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "rules.md"


def test_reference_page_is_up_to_date():
    assert REFERENCE.read_text(encoding="utf-8") == render_reference(), "run python scripts/build_rule_reference.py"


def test_every_topic_has_a_heading():
    assert set(TOPICS) == set(FAMILIES)


def test_page_says_what_why_where_and_how_to_mend():
    page = rule_page(find_rules("MC-WORLD-02")[0])
    assert page.text == "\n".join(
        [
            "PAR002: EP x ETP x PP must divide the number of GPUs",
            "",
            "  severity   error; upstream notices at init",
            "  holds in   bridge, megatron-lm; Megatron-Core all, Bridge all",
            "  formula    world % (EP * ETP * PP) == 0; smallest world = PP * lcm(TP * CP, EP * ETP)",
            "  why        Experts have a grid of their own over the same ranks. Neither Megatron-LM's argument check nor "
            "Bridge's validation looks at it, so that the job dies when process groups are made, on all GPUs.",
            "  source     megatron/core/parallel_state.py:883 @ Megatron-LM d98e8a64 (enforced-upstream)",
            "  also       MC-WORLD-02, BR-INIT-01",
            "  reads      model.expert_model_parallel_size, model.expert_tensor_parallel_size, "
            "model.pipeline_model_parallel_size",
            "  example    gpus=64 PP=8 EP=32 ETP=1 num_moe_experts=128",
            "  says       64 GPUs are not a multiple of EP32 x ETP1 x PP8 = 256; the layout needs 256 GPUs or a multiple",
            "  mended by  EP=8",
        ]
    )


@pytest.mark.parametrize("topic", sorted(TOPICS))
def test_example_of_each_rule_has_a_message(topic):
    for rule in all_rules():
        if rule.id.startswith(topic):
            assert example_message(rule), rule.id
