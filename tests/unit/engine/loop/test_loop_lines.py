from datetime import datetime

from autorecipe.engine.loop.lines import IterationRecord, render_iteration, render_memory, render_parameters, render_validation

# Lines that Megatron-LM (source of 2026-08-22) printed on one H200.
DENSE = (
    " [2026-12-01 04:51:14.957806] iteration        1/      10 | consumed samples:           16 |"
    " elapsed time per iteration (ms): 1061.1 | learning rate: 2.730000E-04 | global batch size:    16 |"
    " lm loss: 9.062636E+00 | loss scale: 1.0 | grad norm: 1.422 | number of skipped iterations:   0 |"
    " number of nan iterations:   0 |"
)
MIXTURE = (
    " [2026-12-01 04:52:01.352831] iteration        3/      10 | consumed samples:           48 |"
    " elapsed time per iteration (ms): 509.5 | learning rate: 2.190000E-04 | global batch size:    16 |"
    " lm loss: 8.917453E+00 | load_balancing_loss: 1.037546E+00 | loss scale: 1.0 | grad norm: 1.549 |"
    " number of skipped iterations:   0 | number of nan iterations:   0 |"
)
THROUGHPUT = (
    " [2026-12-01 04:53:34.810340] iteration        3/      12 | consumed samples:           24 |"
    " elapsed time per iteration (ms): 2060.6 | throughput per GPU (TFLOP/s/GPU): 130.7 | learning rate: 2.250000E-04 |"
    " global batch size:     8 | lm loss: 6.279006E+00 | loss scale: 1.0 | grad norm: 156.251 |"
    " number of skipped iterations:   0 | number of nan iterations:   0 |"
)


def test_a_dense_step_prints_upstreams_line() -> None:
    record = IterationRecord(
        iteration=1,
        train_iters=10,
        consumed_samples=16,
        elapsed_ms=1061.1,
        learning_rate=2.73e-4,
        global_batch_size=16,
        losses={"lm loss": 9.062636},
        grad_norm=1.4221,
    )
    assert render_iteration(record, now=datetime(2026, 12, 1, 4, 51, 14, 957806)) == DENSE


def test_router_losses_follow_the_main_loss() -> None:
    record = IterationRecord(
        iteration=3,
        train_iters=10,
        consumed_samples=48,
        elapsed_ms=509.5,
        learning_rate=2.19e-4,
        global_batch_size=16,
        losses={"lm loss": 8.917453, "load_balancing_loss": 1.037546},
        grad_norm=1.549,
    )
    assert render_iteration(record, now=datetime(2026, 12, 1, 4, 52, 1, 352831)) == MIXTURE


def test_throughput_stands_after_the_time() -> None:
    record = IterationRecord(
        iteration=3,
        train_iters=12,
        consumed_samples=24,
        elapsed_ms=2060.6,
        learning_rate=2.25e-4,
        global_batch_size=8,
        losses={"lm loss": 6.279006},
        grad_norm=156.251,
        tflops_per_gpu=130.7,
    )
    assert render_iteration(record, now=datetime(2026, 12, 1, 4, 53, 34, 810340)) == THROUGHPUT


def test_a_loss_that_is_not_a_number_is_left_out_and_counted() -> None:
    record = IterationRecord(
        iteration=1,
        train_iters=1,
        consumed_samples=1,
        elapsed_ms=1.0,
        learning_rate=None,
        global_batch_size=1,
        losses={"lm loss": float("nan")},
        nan_iterations=1,
    )
    line = render_iteration(record, now=datetime(2026, 1, 1))
    assert "lm loss" not in line
    assert "number of nan iterations:   1 |" in line


def test_validation_prints_loss_and_perplexity_between_rules() -> None:
    text = render_validation({"lm loss": 9.5692576}, iteration=10)
    rule, line, closing = text.split("\n")
    assert line == " validation loss at iteration 10 | lm loss value: 9.569258E+00 | lm loss PPL: 1.431778E+04 | "
    assert rule == closing == "-" * (len(line) + 1)
    assert "at iteration 10 on test set |" in render_validation({"lm loss": 1.0}, iteration=10, dataset="test")


def test_parameter_and_memory_lines() -> None:
    line = render_parameters(9903104, tensor_rank=0, pipeline_rank=0)
    assert line == " > number of parameters on (tensor, gtp_remat, pipeline) model parallel rank (0, 0, 0): 9903104"
    memory = render_memory({"allocated": 189.44, "max allocated": 216.49}, rank=0, iteration=1)
    assert memory == "[Rank 0] (after 1 iterations) memory (MB) | allocated: 189.44 | max allocated: 216.49"
