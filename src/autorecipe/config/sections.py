"""The sections of a Bridge configuration that may be unset, and which of them a preset name can stand for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class NullableSection:
    """A section that may be null.

    Attributes:
        class_name: configuration class upstream builds for it; empty where several fit.
        takes_name: whether the name of a preset may stand for it.
    """

    class_name: str = ""
    takes_name: bool = False


NULLABLE_SECTIONS = {
    "ft": NullableSection(class_name="FaultToleranceConfig"),
    "straggler": NullableSection(class_name="StragglerDetectionConfig"),
    "nvrx_straggler": NullableSection(class_name="NVRxStragglerDetectionConfig"),
    "profiling": NullableSection(class_name="ProfilingConfig"),
    "peft": NullableSection(),
    "comm_overlap": NullableSection(class_name="CommOverlapConfig"),
    "mixed_precision": NullableSection(class_name="MixedPrecisionConfig", takes_name=True),
    "tensor_inspect": NullableSection(class_name="TensorInspectConfig"),
    "inprocess_restart": NullableSection(class_name="InProcessRestartConfig"),
}
"""Optional sections of ConfigContainer (megatron/bridge/training/config.py:962 @ 0.6.2)."""
