"""CUDA graphs of a model's forward and backward pass: two launches a micro batch instead of thousands.

Launching kernels from Python takes about as long as running those of a small model or of a mixture of experts; a graph takes the
host out of it. The kernels are the same, so are their results. Only what asks nothing of the host can be captured: one process
per model, hookless gradients, no dropout, no recomputation, fused experts. Start reading at `use_graphs`.

A graph reads and writes fixed places. The model's inputs are copied there, the losses out of there; main gradients, weights and
counters of the routers stay where they are for the whole run.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from autorecipe.config.views import view_layout
from autorecipe.engine.fusion.gradients import hookless_target
from autorecipe.engine.options import EngineOptions
from autorecipe.errors import Problem, UsageError
from autorecipe.schema.run import RunConfig

_EAGER_CALLS = 3
"""Micro batches before capturing: kernels are compiled and libraries choose their plans in the first."""


_held_bytes: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def held_bytes() -> int:
    """Return the memory that graphs hold for what they compute; the allocator counts it as reserved, not as allocated."""
    return sum(_held_bytes.values())


def prepare_graphs(run: RunConfig, chunks: list[Any], options: EngineOptions) -> bool:
    """Return whether a run's forward and backward passes will be captured; if so, leave the default stream, for good.

    Graphs cannot be captured on the default stream, and gradients are accumulated on the stream that was current when the
    data-parallel wrapper was made, so call this before wrapping.

    Args:
        run: resolved configuration.
        chunks: bare models.
        options: engine options.

    Raises:
        UsageError: asked for where it cannot be.
    """
    if options.graphs == "off" or not torch.cuda.is_available():
        return False
    reason = _find_obstacle(run, chunks)
    if reason is not None:
        if options.graphs == "on":
            raise UsageError(
                Problem(path="engine.graphs", message=f"cannot capture: {reason}", hint="remove engine.graphs, or change that")
            )
        return False
    before = torch.cuda.current_stream()
    if before == torch.cuda.default_stream():
        after = torch.cuda.Stream()
        after.wait_stream(before)
        torch.cuda.set_stream(after)
    return True


def use_graphs(model: Any) -> None:
    """Capture a GPT model's training passes on an early call, and replay them from then on.

    Args:
        model: Megatron-Core `GPTModel`, wrapped for data parallelism already; its `forward` is replaced.
    """
    model.forward = _GraphedForward(model, model.forward)


def _find_obstacle(run: RunConfig, chunks: list[Any]) -> str | None:
    """Return what keeps a run from being captured, as a clause."""
    from megatron.core.transformer.moe.moe_layer import MoELayer

    from autorecipe.engine.fusion.experts import is_fused

    config = chunks[0].config
    layout = view_layout(run)
    routing = config.moe_router_load_balancing_type
    kinds = set(routing) if isinstance(routing, list | tuple) else {routing}
    experts = [module for chunk in chunks for module in chunk.modules() if isinstance(module, MoELayer)]
    obstacles = {
        "only bfloat16 training is captured": not config.bf16,
        "the model is spread over processes": layout.minimum_world_size > 1 or len(chunks) > 1,
        "gradients are reduced from hooks (ddp.overlap_grad_reduce)": run.get("ddp.overlap_grad_reduce", None) is True,
        "parameters are gathered from hooks (overlap_param_gather)": any(
            run.get(f"{part}.overlap_param_gather", None) is True for part in ("ddp", "optimizer")
        ),
        "dropout draws numbers": bool(config.hidden_dropout or config.attention_dropout),
        "activations are recomputed": config.recompute_granularity is not None,
        "activations are offloaded": bool(config.cpu_offloading or getattr(config, "fine_grained_activation_offloading", False)),
        "multi-token prediction keeps losses": bool(config.mtp_num_layers),
        "gradients are not accumulated in place (engine.fused_grad)": not config.gradient_accumulation_fusion,
        "the experts' sizes are read by the host": not all(is_fused(layer) for layer in experts),
        "routing draws numbers": bool(
            experts
            and (
                config.moe_input_jitter_eps
                or config.moe_router_force_load_balancing
                or getattr(config, "moe_router_force_biased", None) is not None
            )
        ),
        "the router's balancing is not captured": bool(experts) and not kinds <= {"none", "aux_loss", "seq_aux_loss"},
    }
    return next((clause for clause, holds in obstacles.items() if holds), None)


class _GraphedForward:
    """Stands in for a model's `forward`."""

    def __init__(self, model: Any, eager: Callable[..., Any]) -> None:
        self._model = model
        self._eager = eager
        self._calls = 0
        self._kind: Any = None
        self._gives_up = False
        self._pair: _GraphPair | None = None

    def __call__(self, input_ids: Any, position_ids: Any, attention_mask: Any, *rest: Any, **named: Any) -> Any:
        labels = named.get("labels")
        others = [attention_mask, *rest, *(value for name, value in named.items() if name != "labels")]
        trains = torch.is_grad_enabled() and self._model.training and labels is not None
        if not trains or any(value is not None for value in others):
            return self._eager(input_ids, position_ids, attention_mask, *rest, **named)
        inputs: tuple[Any, ...] = (input_ids, position_ids, labels)
        kind = tuple((tensor.shape, tensor.dtype) for tensor in inputs)
        if self._kind not in (None, kind):  # rows of many lengths: one length's graph would only hold memory
            self._pair, self._gives_up = None, True
        self._kind = kind
        if self._gives_up:
            return self._run(*inputs)
        self._calls += 1
        if self._calls <= _EAGER_CALLS:
            return self._run(*inputs)
        if self._pair is None:
            parameters = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
            self._pair = _GraphPair(self._run, inputs, parameters)
        return self._pair.replay(inputs)

    def _run(self, input_ids: torch.Tensor, position_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        losses: torch.Tensor = self._eager(input_ids, position_ids, None, labels=labels)
        return losses


class _GraphPair:
    """The graph of a forward pass, and that of its backward pass, with the places that they read and write."""

    def __init__(self, run: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...], parameters: list[Any]) -> None:
        self._inputs = tuple(tensor.clone() for tensor in inputs)
        self._forward, self._backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        stream = torch.cuda.current_stream()
        torch.cuda.empty_cache()  # what eager passes held is held by the graphs from now on
        before = torch.cuda.memory_reserved()
        with torch.cuda.graph(self._forward, stream=stream, capture_error_mode="thread_local"):
            losses = run(*self._inputs)
        self._losses = losses.detach()
        self._grad = torch.empty_like(self._losses)
        forget_marks(parameters)
        with torch.cuda.graph(self._backward, pool=self._forward.pool(), stream=stream, capture_error_mode="thread_local"):
            grads = torch.autograd.grad((losses,), parameters, (self._grad,), allow_unused=True)
        pairs = find_returned(parameters, grads)
        self._returned = [grad.detach() for _, grad in pairs]
        self._parameters = [parameter for parameter, _ in pairs]
        missing = [grad is None and hookless_target(parameter) is None for parameter, grad in zip(parameters, grads, strict=True)]
        assert not any(missing), "a parameter has neither a gradient nor a main gradient"
        _held_bytes[self] = torch.cuda.memory_reserved() - before
        self._anchor = torch.zeros((), device=self._grad.device, requires_grad=True)

    def replay(self, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Run the forward pass on inputs; the result's backward pass replays the other graph."""
        for place, value in zip(self._inputs, inputs, strict=True):
            place.copy_(value)
        losses: torch.Tensor = _Replay.apply(self, self._anchor, *self._parameters)
        return losses

    def forward(self) -> torch.Tensor:
        """Replay the forward pass."""
        self._forward.replay()
        return self._losses.clone()

    def backward(self, grad: torch.Tensor) -> list[torch.Tensor]:
        """Replay the backward pass and return the gradients that are not accumulated in place."""
        self._grad.copy_(grad)
        self._backward.replay()
        return [grad.clone() for grad in self._returned]


def forget_marks(parameters: list[Any]) -> None:
    """Take back what earlier backward passes of the step said of their gradients, before one is captured."""
    for parameter in parameters:
        if hasattr(parameter, "grad_added_to_main_grad"):
            parameter.grad_added_to_main_grad = False


def find_returned(parameters: list[Any], grads: Sequence[torch.Tensor | None]) -> list[tuple[Any, torch.Tensor]]:
    """Return the parameters whose gradients a captured backward pass returns, with those.

    Megatron-Core's linear layers add to the main gradient, mark the weight, and return a tensor that nobody has filled; the
    mark keeps the data-parallel hook from adding it. A replayed graph marks nothing, so such a tensor must not be handed on.
    The zeros that a weight tied to the embedding gets are part of the embedding's gradient and are handed on.
    """
    return [
        (parameter, grad)
        for parameter, grad in zip(parameters, grads, strict=True)
        if grad is not None
        and (not getattr(parameter, "grad_added_to_main_grad", False) or getattr(parameter, "zero_out_wgrad", False))
    ]


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pair: _GraphPair, anchor: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.pair = pair
        return pair.forward()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        return None, None, *ctx.pair.backward(grads[0])
