"""Problems that users met when they compared runs, with the answer that was checked."""

from __future__ import annotations

from autorecipe.api.parity_design import design_parity
from autorecipe.api.resolve import resolve_run
from autorecipe.schema.layer import Layer

RECIPE = "qwen3_30b_a3b_pretrain_config"


def test_a_router_change_is_a_new_experiment() -> None:
    changed = f"{RECIPE} model.moe_router_load_balancing_type=none model.moe_aux_loss_coeff=0.0001"
    unmatched = design_parity(RECIPE, changed).unmatched
    assert {change.path for change in unmatched} == {"model.moe_router_load_balancing_type", "model.moe_aux_loss_coeff"}
    assert {change.layer for change in unmatched} == {Layer.CONVERGENCE}


def test_a_preset_undoes_a_single_precision_field() -> None:
    given = ["mixed_precision=bf16_mixed", "ddp.grad_reduce_in_fp32=False"]
    config = resolve_run("vanilla_gpt_pretrain_config", given)
    assert config.get("ddp.grad_reduce_in_fp32") is True
    assert any("TRAP-MP" in note for note in config.notes)
    text = "vanilla_gpt_pretrain_config"
    design = design_parity(text, f"{text} {' '.join(given)}")
    assert design.unmatched == ()
    assert any("grad_reduce_in_fp32" in note for note in design.notes)


def test_communication_overlap_undoes_a_single_ddp_field() -> None:
    config = resolve_run(RECIPE, ["ddp.overlap_grad_reduce=false"], world_size=128)
    assert config.get("ddp.overlap_grad_reduce") is True
    both = ["comm_overlap.overlap_grad_reduce=false", "comm_overlap.overlap_param_gather=false"]
    assert resolve_run(RECIPE, both, world_size=128).get("ddp.overlap_grad_reduce") is False


def test_one_false_does_not_turn_the_distributed_optimizer_off() -> None:
    one = resolve_run("vanilla_gpt_pretrain_config", ["ddp.use_distributed_optimizer=false"])
    both = resolve_run(
        "vanilla_gpt_pretrain_config", ["ddp.use_distributed_optimizer=false", "optimizer.use_distributed_optimizer=false"]
    )
    assert one.get("ddp.use_distributed_optimizer") is True
    assert both.get("ddp.use_distributed_optimizer") is False


def test_tensor_parallelism_widens_the_padded_vocabulary() -> None:
    widths = [
        resolve_run(
            "vanilla_gpt_pretrain_config", ["tokenizer.vocab_size=50257", f"model.tensor_model_parallel_size={tp}"], world_size=8
        ).get("derived.padded_vocab_size")
        for tp in (1, 8)
    ]
    assert widths == [50304, 51200]


def test_experts_without_a_width_of_their_own_take_the_dense_one() -> None:
    text = (
        "vanilla_gpt_pretrain_config model.num_layers=2 model.hidden_size=64 model.num_attention_heads=4 model.num_moe_experts=4"
    )
    mlm = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --num-experts 4 --seq-length 1024 --bf16"
    mlm += " --max-position-embeddings 1024 --micro-batch-size 2 --lr 3e-4"
    assert not any("ffn" in change.path for change in design_parity(mlm, text).unmatched)
    wider = f"{text} model.moe_ffn_hidden_size=32"
    assert any("moe_ffn_hidden_size" in change.path for change in design_parity(mlm, wider).unmatched)
