"""Losses of MoE routers and of multi-token prediction, which Megatron-Core collects beside the main loss."""

from __future__ import annotations

from typing import Any

import torch

from autorecipe.schema.model import ModelShape
from autorecipe.schema.run import RunConfig

_BALANCING = (
    ("aux_loss", "load_balancing_loss"),
    ("seq_aux_loss", "seq_load_balancing_loss"),
    ("global_aux_loss", "global_load_balancing_loss"),
)


class SideLosses:
    """Reads the collected losses after each step; does nothing for a model that has none."""

    def __init__(self, run: RunConfig, shape: ModelShape, groups: Any) -> None:
        """Prepare.

        Args:
            run: resolved configuration.
            shape: the model.
            groups: Megatron-Core's process groups.
        """
        self._shape = shape
        self._groups = groups
        self._frequency = [int(flag) for flag in shape.moe_layer_pattern] or 1
        self._names: list[str] = []
        if shape.num_moe_experts:
            given = run.get("model.moe_router_load_balancing_type", None) or "aux_loss"
            kinds = given if isinstance(given, list | tuple) else [given]
            # Upstream asks `in` of text, so that `seq_aux_loss` also names `aux_loss`; only what acts is kept here.
            self._names = [name for kind, name in _BALANCING if kind in kinds]
            if run.get("model.moe_z_loss_coeff", None) is not None:
                self._names.append("z_loss")

    def read(self, *, num_microbatches: int, iteration: int) -> dict[str, torch.Tensor]:
        """Return the step's losses by name, equal on every rank, and clear them; called by every rank."""
        losses: dict[str, torch.Tensor] = {}
        scale = 1.0 / num_microbatches
        if self._names:
            self._report(losses, scale, iteration)
        if self._shape.mtp_num_layers:
            from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper

            MTPLossLoggingHelper.track_mtp_metrics(scale, iteration, None, None, losses)
        return losses

    def clear(self) -> None:
        """Forget what an evaluation collected."""
        if not self._names:
            return
        try:
            from megatron.core.transformer.moe.moe_logging import get_moe_metrics_tracker
        except ImportError:
            from megatron.core.transformer.moe.moe_utils import clear_aux_losses_tracker

            clear_aux_losses_tracker()
        else:
            get_moe_metrics_tracker().clear()

    def _report(self, losses: dict[str, torch.Tensor], scale: float, iteration: int) -> None:
        arguments: dict[str, Any] = {
            "loss_scale": scale,
            "iteration": iteration,
            "total_loss_dict": losses,
            "force_initialize": True,
            "track_names": self._names,
            "num_layers": self._shape.num_layers,
            "moe_layer_freq": self._frequency,
            "mtp_num_layers": self._shape.mtp_num_layers or None,
            "pg_collection": self._groups,
        }
        try:  # a tracker object since 0.19, functions before
            from megatron.core.transformer.moe.moe_logging import get_moe_metrics_tracker
        except ImportError:
            from megatron.core.transformer.moe.moe_utils import track_moe_metrics

            track_moe_metrics(**arguments)
        else:
            get_moe_metrics_tracker().report(**arguments)
