"""Problems that users of the frameworks reported, on the shipped recipes: the right answer comes out.

Sources: NVIDIA-NeMo/Megatron-Bridge issues 947 and 5365, its comm_overlap.py:576 and config.py:2114, and
NVIDIA/Megatron-LM vocab_utils.py.
"""

import pytest

from autorecipe.api.config import diff_sides
from autorecipe.api.resolve import resolve_run
from autorecipe.schema import Layer, OriginKind

MOE = "qwen3_30b_a3b_pretrain_config"
DENSE = "llama3_8b_pretrain_config"
OVERLAPPED = "llama31_405b_pretrain_256gpu_gb300_bf16_config"
VANILLA = "vanilla_gpt_pretrain_config"


def notes(run, trap):
    return [note for note in run.notes if note.startswith(f"{trap}:")]


def test_another_balancing_type_and_coefficient_are_a_new_experiment():
    typed = "model.moe_router_load_balancing_type=none model.moe_aux_loss_coeff=0.0001"
    result = diff_sides(MOE, f"{MOE} {typed}")
    assert result.verdict.label == "new convergence experiment"
    assert {change.layer for change in result.changes} == {Layer.CONVERGENCE}


def test_gradient_reduction_under_a_precision_preset():
    run = resolve_run(DENSE, ["mixed_precision=bf16_mixed", "ddp.grad_reduce_in_fp32=False"])
    assert run.get("ddp.grad_reduce_in_fp32") is True
    origin = run.origins["ddp.grad_reduce_in_fp32"]
    assert (origin.kind, origin.replaced, origin.given) == (OriginKind.PRESET, False, "ddp.grad_reduce_in_fp32=False")
    (note,) = notes(run, "TRAP-MP")
    remedy = note.rpartition(" object: '")[2].rstrip("'")
    assert resolve_run(DENSE, [remedy]).get("ddp.grad_reduce_in_fp32") is False


def test_overlap_that_comm_overlap_decides():
    run = resolve_run(OVERLAPPED, ["ddp.overlap_grad_reduce=false"])
    assert run.get("ddp.overlap_grad_reduce") is True
    assert notes(run, "TRAP-OVL")
    fixed = ["comm_overlap.overlap_grad_reduce=false", "comm_overlap.overlap_param_gather=false"]
    assert resolve_run(OVERLAPPED, fixed).get("ddp.overlap_grad_reduce") is False


def test_one_of_two_distributed_optimizer_switches():
    run = resolve_run(DENSE, ["ddp.use_distributed_optimizer=false"])
    assert run.get("ddp.use_distributed_optimizer") is True
    assert notes(run, "TRAP-SYNC")
    both = resolve_run(DENSE, ["ddp.use_distributed_optimizer=false", "optimizer.use_distributed_optimizer=false"])
    assert both.get("ddp.use_distributed_optimizer") is False


@pytest.mark.parametrize(("tp", "padded"), [(1, 50304), (8, 51200)])
def test_the_padded_vocabulary_follows_the_tensor_size(tp, padded):
    typed = ["tokenizer.vocab_size=50257", "model.vocab_size=null", f"model.tensor_model_parallel_size={tp}"]
    assert resolve_run(VANILLA, typed).get("derived.padded_vocab_size") == padded


def test_two_tensor_sizes_with_an_unpinned_vocabulary_are_two_experiments():
    typed = f"{VANILLA} tokenizer.vocab_size=50257 model.vocab_size=null"
    loose = diff_sides(typed, f"{typed} model.tensor_model_parallel_size=8")
    assert [change.path for change in loose.verdict.convergence] == ["derived.padded_vocab_size"]
    typed = f"{VANILLA} tokenizer.use_tokenizer_vocab_size=false model.vocab_size=50304"
    pinned = diff_sides(typed, f"{typed} model.tensor_model_parallel_size=8")
    assert not pinned.verdict.convergence


def test_a_lone_model_sequence_as_in_many_examples():
    run = resolve_run(DENSE, ["model.seq_length=32768", "model.context_parallel_size=4"])
    assert run.get("model.seq_length") == 8192
    assert "dataset.seq_length=32768" in notes(run, "TRAP-SEQ")[0]


def test_the_weight_decay_that_library_recipes_carry():
    run = resolve_run(DENSE, ["optimizer.weight_decay=0.1"])
    assert run.get("optimizer.weight_decay") == run.get("scheduler.start_weight_decay") == 0.033
    assert notes(run, "TRAP-WD")


def test_a_short_run_of_a_long_recipe():
    run = resolve_run(DENSE, ["train.train_iters=10"])
    assert run.get("scheduler.lr_warmup_steps") == run.get("scheduler.lr_decay_steps") - 1
    assert "scheduler.max_steps" in notes(run, "TRAP-WARMUP")[0]


def test_the_published_correlation_run_needs_no_note():
    typed = (
        "model.num_layers=2 model.hidden_size=256 model.num_attention_heads=4 model.ffn_hidden_size=1024 "
        "model.seq_length=512 dataset.seq_length=512 train.train_iters=10 train.global_batch_size=32 "
        "train.micro_batch_size=4 validation.eval_interval=10 validation.eval_iters=2 optimizer.lr=3e-4 "
        "optimizer.min_lr=3e-5 scheduler.lr_warmup_iters=1 scheduler.lr_decay_iters=10 rng.seed=1234 logger.log_interval=1"
    )
    run = resolve_run(VANILLA, typed.split())
    assert run.get("scheduler.lr_warmup_steps") == 32
    assert run.notes == ()


def test_the_published_cuda_graph_overrides_are_accepted():
    typed = [
        "model.cuda_graph_impl=transformer_engine",
        "model.cuda_graph_scope=[attn,moe_router,moe_preprocess]",
        "model.use_te_rng_tracker=True",
        "rng.te_rng_tracker=True",
    ]
    run = resolve_run(MOE, typed)
    assert run.get("model.cuda_graph_impl") == "transformer_engine"
    assert run.notes == ()
