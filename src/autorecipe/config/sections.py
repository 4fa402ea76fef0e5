"""The sections of a Bridge configuration that may be unset, and which of them a preset name can stand for."""

from __future__ import annotations

from autorecipe.record import dataclass


@dataclass(frozen=True, kw_only=True)
class NullableSection:
    """A section that may be null.

    Attributes:
        target: import path of the configuration class that upstream builds for it.
        takes_name: whether the name of a preset may stand for it.
    """

    target: str
    takes_name: bool = False


NULLABLE_SECTIONS = {
    "ft": NullableSection(target="megatron.bridge.training.config.FaultToleranceConfig"),
    "straggler": NullableSection(target="megatron.bridge.training.config.StragglerDetectionConfig"),
    "nvrx_straggler": NullableSection(target="megatron.bridge.training.config.NVRxStragglerDetectionConfig"),
    "profiling": NullableSection(target="megatron.bridge.training.config.ProfilingConfig"),
    "peft": NullableSection(target="megatron.bridge.peft.lora.LoRA"),
    "comm_overlap": NullableSection(target="megatron.bridge.training.comm_overlap.CommOverlapConfig"),
    "mixed_precision": NullableSection(target="megatron.bridge.training.mixed_precision.MixedPrecisionConfig", takes_name=True),
    "tensor_inspect": NullableSection(target="megatron.bridge.training.config.TensorInspectConfig"),
    "inprocess_restart": NullableSection(target="megatron.bridge.training.config.InProcessRestartConfig"),
}
"""Optional sections of ConfigContainer (megatron/bridge/training/config.py:962 @ 0.6.2)."""
