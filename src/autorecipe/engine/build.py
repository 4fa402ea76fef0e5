"""Model building: from a run to the wrapped model chunks of this rank.

Start reading at `build_model`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from autorecipe.engine import compat, graphs
from autorecipe.engine.adapters.settings import read_adapter
from autorecipe.engine.fusion import apply
from autorecipe.engine.fusion.gradients import offer_accumulation
from autorecipe.engine.optimizer import checks_norm_alone, overlaps_param_gather, uses_distributed_optimizer
from autorecipe.engine.options import EngineOptions, read_options
from autorecipe.engine.parallel import ParallelContext
from autorecipe.engine.precision import view_precision
from autorecipe.engine.transformer import build_transformer_config
from autorecipe.errors import Problem, UsageError
from autorecipe.schema.run import RunConfig


def build_model(run: RunConfig, context: ParallelContext) -> list[Any]:
    """Build this rank's model chunks, one per virtual pipeline stage, wrapped for data parallelism.

    Args:
        run: resolved configuration.
        context: what `engine.parallel.initialize` returned.

    Returns:
        Megatron-Core `DistributedDataParallel` modules; `chunk.module` is the (precision-wrapped) GPT model.

    Raises:
        UsageError: what the engine cannot build, by name.
    """
    return wrap_model(run, build_bare_model(run, context), context)


def build_bare_model(run: RunConfig, context: ParallelContext) -> list[Any]:
    """Build this rank's GPT models without wrappers, on the context's device."""
    from megatron.core import tensor_parallel
    from megatron.core.enums import ModelType

    options = read_options(run)
    config = build_transformer_config(run)
    # Fused forms read weights past their modules, and so past adapters and past what a model class adds.
    fuses = choose_modules(options) == "own" and read_adapter(run) is None and config.variant is None
    if fuses and apply.fuses_gradients(config, options):
        offer_accumulation()
        config.gradient_accumulation_fusion = True
    stages: list[int | None] = list(range(context.layout.vp)) if context.layout.vp > 1 else [None]
    chunks = []
    for stage in stages:
        chunk = _build_chunk(run, config, context, options, stage)
        chunk.model_type = ModelType.encoder_or_decoder
        for parameter in chunk.parameters():
            tensor_parallel.set_defaults_if_not_set_tensor_model_parallel_attributes(parameter)
        compat.mark_expert_parameters(chunk)
        if context.device.type == "cuda":
            chunk.to(context.device)
        if fuses:
            apply.fuse_model(chunk, options)
        chunks.append(chunk)
    return chunks


def wrap_model(run: RunConfig, chunks: list[Any], context: ParallelContext) -> list[Any]:
    """Wrap bare chunks: half-precision inputs and outputs, then gradient buffers and their reduction."""
    from megatron.core.distributed import DistributedDataParallel
    from megatron.core.transformer.module import Float16Module

    precision = view_precision(run)
    config = chunks[0].config
    ddp_config = build_ddp_config(run)
    options = read_options(run)
    fuses = choose_modules(options) == "own" and read_adapter(run) is None and config.variant is None
    captures = fuses and graphs.prepare_graphs(run, chunks, options)
    is_half = precision.bf16 or precision.fp16
    inner = [Float16Module(config, chunk) if is_half else chunk for chunk in chunks]
    wrapped = [
        DistributedDataParallel(config, ddp_config, chunk, disable_bucketing=index > 0) for index, chunk in enumerate(inner)
    ]
    for chunk in wrapped:
        apply.mark_hookless(chunk)
    if captures:
        graphs.use_graphs(chunks[0])
    if run.get("rng.data_parallel_random_init", None) is True:
        for chunk in wrapped:
            chunk.broadcast_params()
    return wrapped


def build_ddp_config(run: RunConfig) -> Any:
    """Return Megatron-Core's `DistributedDataParallelConfig` of a run."""
    from megatron.core.distributed import DistributedDataParallelConfig

    known = {item.name for item in dataclasses.fields(DistributedDataParallelConfig)}
    arguments = {
        path.removeprefix("ddp."): value
        for path, value in run.values.items()
        if path.startswith("ddp.") and path.removeprefix("ddp.") in known and value is not None
    }
    arguments.update(
        grad_reduce_in_fp32=view_precision(run).grad_reduce_in_fp32,
        use_distributed_optimizer=uses_distributed_optimizer(run),
        overlap_param_gather=overlaps_param_gather(run),
    )
    if checks_norm_alone(run):
        arguments["check_for_nan_in_grad"] = False  # the loop looks at the norm
    return DistributedDataParallelConfig(**arguments)


def choose_modules(options: EngineOptions) -> str:
    """Return the family of modules that acts: `own`, `core-local` or `transformer-engine`.

    Raises:
        UsageError: Transformer Engine asked for, and not installed.
    """
    if options.modules == "transformer-engine" and not compat.has_transformer_engine():
        raise UsageError(
            Problem(
                path="engine.modules",
                message="transformer-engine is not installed",
                hint="set engine.modules=own, or install transformer-engine",
            )
        )
    if options.modules != "auto":
        return options.modules
    return "transformer-engine" if compat.has_transformer_engine() else "own"


def padded_vocab_size(run: RunConfig, tensor_parallel_size: int) -> int:
    """Return the number of rows of the embedding.

    Formula: the tokenizer's size rounded up to a multiple of `make_vocab_size_divisible_by` x TP, where padding is on (it is
    when `model.vocab_size` is unset).
    Source: Megatron Bridge 0.6.2 utils/vocab_utils.py. Evidence: enforced-upstream.

    Raises:
        UsageError: no vocabulary size anywhere.
    """
    given = run.get("model.vocab_size", None)
    size = given if isinstance(given, int) else run.get("tokenizer.vocab_size", None)
    if not isinstance(size, int):
        raise UsageError(
            Problem(path="model.vocab_size", message="is not set, nor is tokenizer.vocab_size", hint="add model.vocab_size=N")
        )
    pads = run.get("model.should_pad_vocab", None)
    if pads is not True and isinstance(given, int):
        return size
    multiple = (run.get("model.make_vocab_size_divisible_by", None) or 128) * tensor_parallel_size
    return -(-size // multiple) * multiple


def _build_chunk(run: RunConfig, config: Any, context: ParallelContext, options: EngineOptions, stage: int | None) -> Any:
    from megatron.core.models.gpt import GPTModel

    from autorecipe.engine.modules.spec import block_spec, prediction_spec
    from autorecipe.engine.modules.variants import adapt_model

    variant = config.variant
    modules = choose_modules(options) if variant is None else "own"
    is_first = context.is_first_stage and stage in (None, 0)
    is_last = context.is_last_stage and stage in (None, context.layout.vp - 1)

    def read(name: str, default: Any) -> Any:
        value = run.get(f"model.{name}", None)
        return default if value is None else value

    bases = None if variant is None else variant.rotary_bases
    model = GPTModel(
        config=config,
        transformer_layer_spec=block_spec(config, modules, stage),
        vocab_size=padded_vocab_size(run, context.layout.tp),
        max_sequence_length=read("seq_length", None) or run.get("dataset.seq_length"),
        pre_process=is_first,
        post_process=is_last,
        fp16_lm_cross_entropy=read("fp16_lm_cross_entropy", False),
        parallel_output=read("parallel_output", True),
        share_embeddings_and_output_weights=read("share_embeddings_and_output_weights", True),
        position_embedding_type=read("position_embedding_type", "learned_absolute"),
        rotary_percent=read("rotary_percent", 1.0),
        rotary_base=read("rotary_base", 10000) if bases is None else bases[1],
        rope_scaling=read("rope_scaling", False),
        rope_scaling_factor=read("rope_scaling_factor", 1.0) if bases is None else 1.0,
        scatter_embedding_sequence_parallel=read("scatter_embedding_sequence_parallel", True),
        seq_len_interpolation_factor=read("seq_len_interpolation_factor", None),
        mtp_block_spec=prediction_spec(config, modules, stage),
        pg_collection=context.groups,
        vp_stage=stage,
    )
    if variant is not None:
        adapt_model(model, variant)
    return model
