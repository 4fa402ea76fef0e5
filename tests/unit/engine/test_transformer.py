import pytest
import torch

from autorecipe.engine.transformer import build_transformer_config, describe_adjustments, plan_transformer
from autorecipe.errors import UsageError
from autorecipe.schema.run import RunConfig

BASE = {"model.num_layers": 2, "model.hidden_size": 64, "model.num_attention_heads": 4}


def make_run(**model):
    return RunConfig(values={**BASE, **{f"model.{name}": value for name, value in model.items()}})


def refusals_of(run):
    with pytest.raises(UsageError) as caught:
        plan_transformer(run)
    return caught.value.problems


def test_values_arrive_decoded():
    config = build_transformer_config(
        make_run(
            activation_func="torch.nn.functional:silu",
            window_size=[4, 0],
            attention_backend="AttnBackend.flash",
            bf16=True,
            num_query_groups=2,
        )
    )
    assert config.activation_func is torch.nn.functional.silu
    assert config.window_size == (4, 0)
    assert config.attention_backend.name == "flash"
    assert config.params_dtype is torch.bfloat16
    assert config.num_query_groups == 2


def test_an_unset_field_keeps_the_field_s_own_default():
    assert build_transformer_config(make_run(init_method_std=None)).init_method_std == 0.02


def test_latent_attention_without_query_compression_has_none():
    latent = {"multi_latent_attention": True, "q_lora_rank": None}
    assert build_transformer_config(make_run(**latent)).q_lora_rank is None
    assert build_transformer_config(make_run(multi_latent_attention=True)).q_lora_rank == 512


def test_an_unknown_field_with_an_effect_is_refused_with_the_engine_that_can():
    (problem,) = refusals_of(make_run(attn_logit_softcapping=50.0))
    assert problem.path == "model.attn_logit_softcapping"
    assert "--engine bridge" in problem.hint


def test_an_unknown_field_that_is_off_passes():
    plan_transformer(make_run(moe_router_quantile_balancing_ema=0.0, mup_width_mult=1.0, dsa_kernel_backend="none"))


def test_all_refusals_come_at_once():
    problems = refusals_of(make_run(hybrid_layer_pattern="M*M*", fp8="hybrid", vision_config={"depth": 2}))
    assert {problem.path for problem in problems} == {"model.hybrid_layer_pattern", "model.fp8", "model.vision_config"}


def test_latent_attention_with_tensor_parallelism_needs_sequence_parallelism():
    latent = {"multi_latent_attention": True, "tensor_model_parallel_size": 2}
    (problem,) = refusals_of(make_run(**latent))
    assert problem.hint == "set model.sequence_parallel=true"
    plan_transformer(make_run(**latent, sequence_parallel=True))


def test_execution_only_settings_are_replaced_with_a_note():
    run = make_run(num_moe_experts=4, add_bias_linear=False, moe_token_dispatcher_type="flex", masked_softmax_fusion=True)
    assert build_transformer_config(run).moe_token_dispatcher_type == "alltoall"
    assert any("moe_token_dispatcher_type=flex" in line for line in describe_adjustments(run))


def test_what_megatron_core_rejects_is_a_usage_error():
    with pytest.raises(UsageError):
        build_transformer_config(make_run(recompute_granularity="full", recompute_method="sideways", recompute_num_layers=1))


def test_expert_layers_follow_the_frequency():
    config = build_transformer_config(make_run(num_moe_experts=4, add_bias_linear=False, moe_layer_freq="([0]*1+[1]*1)"))
    assert config.moe_layer_freq == [0, 1]


def test_a_standard_layer_specification_passes_also_as_a_partial():
    text = "partial(megatron.core.models.gpt.gpt_layer_specs:get_gpt_decoder_block_spec, use_transformer_engine=True)"
    plan_transformer(make_run(transformer_layer_spec=text))
    (problem,) = refusals_of(make_run(transformer_layer_spec="megatron.bridge.models.olmoe.olmoe_provider:olmoe_layer_spec"))
    assert problem.path == "model.transformer_layer_spec"


def test_a_provider_with_a_model_of_its_own_is_refused():
    (problem,) = refusals_of(make_run(_class="Gemma4DenseProvider"))
    assert "Gemma4DenseProvider" in problem.message


def test_experts_with_biases_must_be_grouped_and_whole():
    biased = {"num_moe_experts": 4, "add_bias_linear": True}
    (problem,) = refusals_of(make_run(**biased, moe_grouped_gemm=False))
    assert problem.hint == "set model.moe_grouped_gemm=true"
    split = {"tensor_model_parallel_size": 2, "sequence_parallel": True, "expert_tensor_parallel_size": 2}
    (problem,) = refusals_of(make_run(**biased, moe_grouped_gemm=True, **split))
    assert problem.path == "model.expert_tensor_parallel_size"
    plan_transformer(make_run(**biased, moe_grouped_gemm=True))


def test_execution_settings_of_newer_releases_are_left_out_with_a_note():
    (line,) = describe_adjustments(make_run(moe_flex_dispatcher_num_sms=16))
    assert "moe_flex_dispatcher_num_sms=16 is not used" in line and "does not change what is trained" in line
    (problem,) = refusals_of(make_run(mup_width_mult=2.0))
    assert problem.path == "model.mup_width_mult"


def test_interleaved_stages_free_no_output_that_gloo_still_sends():
    stages = {"num_layers": 4, "pipeline_model_parallel_size": 2, "deallocate_pipeline_outputs": True}
    assert build_transformer_config(make_run(**stages)).deallocate_pipeline_outputs
    run = make_run(**stages, virtual_pipeline_model_parallel_size=2)
    assert not build_transformer_config(run).deallocate_pipeline_outputs
    assert any("deallocate_pipeline_outputs=True" in line and "being sent" in line for line in describe_adjustments(run))


def test_two_interleaved_stages_overlap_their_messages():
    stages = {"num_layers": 4, "pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2}
    config = build_transformer_config(make_run(**stages, overlap_p2p_comm=False, batch_p2p_comm=True))
    assert (config.overlap_p2p_comm, config.batch_p2p_comm) == (True, False)
