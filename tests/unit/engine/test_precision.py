import pytest
import torch

from autorecipe.engine.precision import parse_dtype, parse_number, view_precision
from autorecipe.errors import UsageError
from autorecipe.schema.run import RunConfig


def view(**values):
    return view_precision(RunConfig(values={key.replace("__", "."): value for key, value in values.items()}))


def test_a_preset_decides_over_single_fields():
    precision = view(mixed_precision="bf16_mixed", model__bf16=False, ddp__grad_reduce_in_fp32=False)
    assert precision.dtype is torch.bfloat16
    assert precision.grad_reduce_in_fp32


def test_fields_below_the_preset_decide_over_it():
    precision = view(mixed_precision="bf16-mixed", mixed_precision__grad_reduce_in_fp32=False)
    assert precision.bf16 and not precision.grad_reduce_in_fp32


def test_without_a_preset_the_model_decides():
    assert view(model__bf16=True).dtype is torch.bfloat16
    assert view().dtype is torch.float32


def test_loss_scaling_comes_from_the_optimizer():
    precision = view(mixed_precision="fp16_mixed", optimizer__initial_loss_scale=1024)
    assert precision.dtype is torch.float16
    assert precision.loss_scaling == {"initial_loss_scale": 1024}


@pytest.mark.parametrize("preset", ["bf16_with_fp8_current_scaling_mixed", "bf16_with_nvfp4_mixed"])
def test_low_precision_is_refused_with_the_engine_that_can(preset):
    with pytest.raises(UsageError) as caught:
        view(mixed_precision=preset)
    assert "--engine bridge" in caught.value.problems[0].hint


def test_bf16_and_fp16_together_are_refused():
    with pytest.raises(UsageError, match=r"model\.fp16"):
        view(model__bf16=True, model__fp16=True)


@pytest.mark.parametrize(("text", "dtype"), [("torch.bfloat16", torch.bfloat16), ("fp32", torch.float32), (None, None)])
def test_parse_dtype(text, dtype):
    assert parse_dtype(text) is dtype


def test_parse_dtype_names_what_is_legal():
    with pytest.raises(UsageError, match="bf16"):
        parse_dtype("bf17")


def test_numbers_that_are_not_finite_come_as_text():
    assert parse_number("inf") == float("inf")
    assert parse_number("adam") == "adam" and parse_number(3) == 3
