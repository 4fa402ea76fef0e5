"""Adam on torch's fused kernel, with the state layout that Megatron-Core's distributed optimizer can save and resume.

`torch.optim.AdamW` keeps a step tensor per parameter, and the distributed optimizer cannot load it back. Here the step is one
number per parameter group, and each parameter's state is its two moments, as in Apex and Transformer Engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from autorecipe.engine import readings


class Adam(torch.optim.Optimizer):
    """Adam with decoupled (AdamW) or classic weight decay.

    Args:
        params: parameters or parameter groups.
        lr: learning rate.
        betas: decay of the two moments.
        eps: added to the denominator.
        weight_decay: decay factor.
        adam_w_mode: decoupled weight decay where True.
        bias_correction: must be True; kept for the interface.
        capturable: must be False; kept for the interface (CUDA graphs of whole iterations are not driven by this engine).
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        adam_w_mode: bool = True,
        bias_correction: bool = True,
        capturable: bool = False,
    ) -> None:
        if not bias_correction or capturable:
            raise NotImplementedError("Adam without bias correction, or captured in a CUDA graph")
        self.adam_w_mode = adam_w_mode
        self.copies: dict[torch.Tensor, torch.Tensor] = {}
        """Where parameters go in half precision (see `fusion.update`); where there are some, all updates are one kernel."""
        self.has_copied = False
        self.factor: torch.Tensor | None = None
        """What the gradients of the next update are multiplied by."""
        self._plans: dict[Any, Any] = {}
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "bias_correction": True}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Update every parameter that has a gradient."""
        readings.mark()
        for index, group in enumerate(self.param_groups):
            group["step"] = int(group.get("step", 0)) + 1
            for kind, rows in self._by_kind(group).items():
                columns = [list(column) for column in zip(*rows, strict=True)]
                if self.copies:
                    self._update_and_copy((index, kind), group, columns)
                else:
                    self._update(group, *columns)
        self.has_copied = bool(self.copies)
        self.factor = None

    def _by_kind(self, group: dict[str, Any]) -> dict[Any, list[tuple[torch.Tensor, ...]]]:
        """Sort a group's parameters by device and type: the fused kernel takes one kind at a time."""
        kinds: dict[Any, list[tuple[torch.Tensor, ...]]] = {}
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
            row = (parameter, parameter.grad, state["exp_avg"], state["exp_avg_sq"])
            kinds.setdefault((parameter.device, parameter.dtype), []).append(row)
        return kinds

    def _update_and_copy(self, place: Any, group: dict[str, Any], columns: list[list[torch.Tensor]]) -> None:
        from autorecipe.engine.fusion.kernels.adam import AdamPlan, describe

        parameters, grads, firsts, seconds = columns
        copies = [self.copies[parameter] for parameter in parameters]
        plan = self._plans.get(place)
        if plan is None or plan.key != describe(*columns, copies):
            plan = self._plans[place] = AdamPlan(parameters, grads, firsts, seconds, copies)
        plan.step(
            lr=group["lr"],
            betas=group["betas"],
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            step=group["step"],
            decoupled=self.adam_w_mode,
            factor=self.factor,
        )

    def _update(
        self,
        group: dict[str, Any],
        parameters: list[torch.Tensor],
        gradients: list[torch.Tensor],
        first: list[torch.Tensor],
        second: list[torch.Tensor],
    ) -> None:
        kernel = torch._fused_adamw_ if self.adam_w_mode else torch._fused_adam_
        step = torch.full((), float(group["step"]), dtype=torch.float32, device=parameters[0].device)
        beta1, beta2 = group["betas"]
        kernel(
            parameters,
            gradients,
            first,
            second,
            [],
            [step] * len(parameters),
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )
