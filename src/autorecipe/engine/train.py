"""Trains a resolved configuration: `train(run, options)`. Start reading here, then `loop.training`.

Purpose: puts model, optimizer, data, checkpoints and loop together in the order that upstream draws random numbers in.
Leaves out: resolving and checking a configuration, which the caller has done.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist

from autorecipe import __version__
from autorecipe.config.views import view_model
from autorecipe.engine import build, compat, optimizer, parallel, step
from autorecipe.engine.adapters.settings import read_adapter
from autorecipe.engine.checkpoint import folder
from autorecipe.engine.checkpoint.content import restore_generators
from autorecipe.engine.checkpoint.folder import Candidate, Manifest
from autorecipe.engine.checkpoint.identity import describe_identity
from autorecipe.engine.checkpoint.pretrained import find_pretrained, load_pretrained
from autorecipe.engine.checkpoint.resume import ResumePlan, load_newest, plan_resume
from autorecipe.engine.checkpoint.saver import CheckpointSaver
from autorecipe.engine.data.datasets import Streams, build_datasets, build_streams
from autorecipe.engine.data.spec import DataSpec, read_data_spec
from autorecipe.engine.data.tokenizer import Tokenizer, resolve_vocabulary
from autorecipe.engine.finetune.data import build_finetune_data, open_finetune_streams, share_over_ranks
from autorecipe.engine.finetune.spec import FinetuneSpec, is_finetuning, read_finetune_spec
from autorecipe.engine.loop.batch import BatchPlan, check_batch
from autorecipe.engine.loop.outputs import check_outputs
from autorecipe.engine.loop.reporter import Reporter
from autorecipe.engine.loop.router import SideLosses
from autorecipe.engine.loop.schedule import build_scheduler, read_schedule
from autorecipe.engine.loop.settings import LoopSettings, read_settings
from autorecipe.engine.loop.training import TrainingLoop, TrainingParts, TrainState
from autorecipe.engine.loop.unsupported import check_supported
from autorecipe.engine.precision import view_precision
from autorecipe.engine.refusals import check_model
from autorecipe.errors import AutorecipeError, EnvironmentProblem, Problem
from autorecipe.schema.run import OriginKind, RunConfig
from autorecipe.schema.value import to_jsonable


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """How to run, besides the configuration.

    Attributes:
        fresh: ignore earlier checkpoints; those in `checkpoint.save` are moved aside, not deleted.
        metrics_path: JSON Lines file of all numbers; None puts `metrics.jsonl` beside the checkpoint folder, where there is
            one.
        from_scratch: fine-tune random weights where there are no others, to try out a run.
        max_bad_rows: rows of each fine-tuning source that cannot be read and may be left out.
    """

    fresh: bool = False
    metrics_path: Path | None = None
    from_scratch: bool = False
    max_bad_rows: int = 0


def train(run: RunConfig, options: TrainOptions | None = None) -> int:
    """Train to the end of the run, or to a signal.

    Args:
        run: a resolved configuration.
        options: how to run.

    Returns:
        exit code: 0 done, 128 + signal when stopped by one, 3 when the last checkpoint could not be written.

    Raises:
        AutorecipeError: on every rank alike; the caller prints it once.
    """
    options = options or TrainOptions()
    check_model(run)
    unused = check_supported(run, from_scratch=options.from_scratch)
    settings = read_settings(run)
    spec = read_finetune_spec(run) if is_finetuning(run) else read_data_spec(run)
    vocabulary = resolve_vocabulary(run, mock=isinstance(spec, DataSpec) and spec.mock)
    run = vocabulary.run
    schedule = read_schedule(run, settings)
    identity = describe_identity(run)
    shape = view_model(run)
    context = parallel.initialize(run)
    _quiet_core()
    try:
        check_batch(settings, data_parallel_size=context.data_parallel_size)
        say = _speaker(context.rank)
        for note in (*run.notes, *unused, *vocabulary.notes, *schedule.notes):
            say(f"note: {note}")
        for line in _header(run):
            say(line)
        say(f"layout {context.layout.render()}, {context.world_size} processes ({context.backend}); {spec.render()}")
        metrics_path = options.metrics_path or _default_metrics_path(settings)
        plan = _share(lambda: _find_checkpoints(run, settings, options, identity, say), context.rank)
        base = _share(lambda: find_pretrained(run, identity=describe_identity(run, with_adapter=False)), context.rank)
        _share(lambda: check_outputs(settings, metrics_path), context.rank)
        if isinstance(spec, FinetuneSpec):
            _check_start(run, plan, base, options, say)
        open_streams = _prepare_data(spec, settings, vocabulary.tokenizer, context, options, say)
        chunks = _build_model(run, context, plan, base, say)
        adam = optimizer.build_optimizer(run, chunks, context)
        scheduler = build_scheduler(schedule, adam)
        state, resumed = TrainState(), None
        if plan is not None:
            for message in plan.messages:
                say(message)
            resumed = load_newest(
                plan,
                chunks,
                adam,
                layout=context.layout.render(),
                with_optimizer=settings.load_optim and not settings.finetune,
                with_rng=settings.load_rng and not settings.finetune,
                say=say,
            )
            if not settings.finetune:
                state = _resume_state(resumed.manifest, scheduler, say)
        reporter = Reporter(
            settings,
            shape,
            rank=context.rank,
            world_size=context.world_size,
            padded_vocab_size=build.padded_vocab_size(run, context.layout.tp),
            metrics_path=metrics_path,
            resumed_at=state.iteration,
            facts={
                "framework": "autorecipe",
                "recipe": run.recipe,
                "precision": _precision_name(run),
                "train_iters": settings.train_iters,
                "world_size": context.world_size,
                "layout": context.layout.render(),
            },
            config=run.values,
        )
        reporter.report_parameters(
            sum(parameter.numel() for chunk in chunks for parameter in chunk.parameters()),
            tensor_rank=context.tensor_rank,
            pipeline_rank=context.pipeline_rank,
            speaks=context.groups.dp_cp.rank() == 0,
        )
        streams = open_streams(state)
        step.prepare_schedule(run, chunks, adam)
        saver = None
        if settings.save_dir is not None:
            saver = CheckpointSaver(
                settings.save_dir,
                keep=settings.keep_recent,
                asynchronous=settings.async_save,
                with_optimizer=settings.save_optim,
                with_rng=settings.save_rng,
                checksums=settings.verify_integrity,
                say=say,
            )
        parts = TrainingParts(
            context=context,
            chunks=chunks,
            optimizer=adam,
            scheduler=scheduler,
            streams=streams,
            batch=BatchPlan(settings, data_parallel_size=context.data_parallel_size),
            side_losses=SideLosses(run, shape, context.groups),
            saver=saver,
            describe=_describer(run, identity, context, settings, scheduler),
        )
        if resumed is not None and resumed.generators is not None:
            restore_generators(resumed.generators)
        if state.iteration >= settings.train_iters and not settings.skip_train:
            say(
                f"nothing left to train: iteration {state.iteration} of {settings.train_iters} is done; raise train.train_iters "
                "to go on, or start over with --fresh"
            )
        try:
            return TrainingLoop(settings, parts, state, reporter).run()
        finally:
            reporter.close()
    finally:
        parallel.shut_down()


def _prepare_data(
    spec: DataSpec | FinetuneSpec,
    settings: LoopSettings,
    tokenizer: Tokenizer,
    context: parallel.ParallelContext,
    options: TrainOptions,
    say: Callable[[str], None],
) -> Callable[[TrainState], Streams]:
    """Prepare the data; returns what opens its streams where a run stands."""
    place = {"data_parallel_rank": context.data_parallel_rank, "data_parallel_size": context.data_parallel_size}
    if isinstance(spec, FinetuneSpec):
        data = build_finetune_data(spec, tokenizer, max_bad_rows=options.max_bad_rows, share=share_over_ranks(context))
        for note in data.notes:
            say(f"note: {note}")
        open_finetune = partial(open_finetune_streams, data, spec, settings, **place)
        return lambda state: open_finetune(
            consumed_train=state.consumed_train_samples, consumed_valid=state.consumed_valid_samples
        )
    return lambda state: build_streams(
        build_datasets(spec, settings, tokenizer),
        spec,
        settings,
        consumed_train=state.consumed_train_samples,
        consumed_valid=state.consumed_valid_samples,
        **place,
    )


def _check_start(
    run: RunConfig, plan: ResumePlan | None, base: Candidate | None, options: TrainOptions, say: Callable[[str], None]
) -> None:
    """Check that fine-tuning starts from something.

    Raises:
        EnvironmentProblem: neither a run to resume nor pretrained weights are there.
    """
    if plan is not None or base is not None:
        return
    if options.from_scratch:
        say("note: --from-scratch: fine-tuning starts from random weights; its losses say nothing about the recipe")
        return
    message = f"is not set, and checkpoint.load={run.get('checkpoint.load', None)!r} holds no checkpoint: nothing to fine-tune"
    hint = (
        "add checkpoint.pretrained_checkpoint=FOLDER (`autorecipe checkpoint import` makes one of a Hugging Face model); "
        "--from-scratch tries the run out on random weights"
    )
    raise EnvironmentProblem(Problem(path="checkpoint.pretrained_checkpoint", code="CKP032", message=message, hint=hint))


def _build_model(
    run: RunConfig, context: parallel.ParallelContext, plan: ResumePlan | None, base: Candidate | None, say: Callable[[str], None]
) -> list[Any]:
    """Build the model from the weights that it starts with, and its adapter where the run trains one."""
    adapter = read_adapter(run)
    chunks = build.build_bare_model(run, context)
    if base is not None and (adapter is not None or plan is None):
        load_pretrained(base, chunks)
        say(f"weights from {base.path}")
    if adapter is not None:
        from autorecipe.engine.adapters.attach import attach_adapters, count_trainable

        attach_adapters(chunks, adapter, seed=int(run.get("rng.seed", None) or 1234))
        say(f"adapter: {adapter.render()}; {count_trainable(chunks):,} parameters of rank 0 train, the others are frozen")
    return build.wrap_model(run, chunks, context)


def _header(run: RunConfig) -> list[str]:
    """Return what a log must say first: which program, which recipe, and every override."""
    typed = [f"{path}={run.values[path]}" for path, origin in run.origins.items() if origin.kind is OriginKind.OVERRIDE]
    lines = [
        f"autorecipe {__version__}, engine core, Megatron-Core {compat.core_release()}: recipe {run.recipe or 'none'} of release "
        f"{run.release or 'unknown'}, mixed_precision={_precision_name(run)}"
    ]
    return [*lines, f"overrides: {' '.join(typed)}"] if typed else lines


def _precision_name(run: RunConfig) -> str:
    precision = view_precision(run)
    return "bf16" if precision.bf16 else "fp16" if precision.fp16 else "fp32"


def _quiet_core() -> None:
    """Leave out what core and torch print on every rank and every run, and that no user can act on."""
    for name in ("megatron.core.rerun_state_machine", "megatron.core.datasets.gpt_dataset"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\..*")


def _speaker(rank: int) -> Callable[[str], None]:
    def say(text: str) -> None:
        if rank == 0:
            print(text, flush=True)

    return say


def _share(action: Callable[[], Any], rank: int) -> Any:
    """Run an action on rank 0 and give its result, or its error, to every rank."""
    answer: list[Any] = [None]
    if rank == 0:
        try:
            answer = [action()]
        except AutorecipeError as error:
            answer = [error]
    dist.broadcast_object_list(answer, src=0)
    if isinstance(answer[0], AutorecipeError):
        raise answer[0]
    return answer[0]


def _find_checkpoints(
    run: RunConfig, settings: LoopSettings, options: TrainOptions, identity: dict[str, Any], say: Callable[[str], None]
) -> ResumePlan | None:
    """Look for what to resume from (rank 0 only), after clearing what a kill left behind."""
    if settings.save_dir is not None:
        for name in folder.clear_leftovers(settings.save_dir):
            say(f"removed {settings.save_dir / name}: an earlier run was killed while writing it")
    if options.fresh:
        aside = folder.set_aside(settings.save_dir) if settings.save_dir is not None else None
        if aside is not None:
            say(f"--fresh: the checkpoints of an earlier run are now in {aside}; nothing is resumed")
        return None
    return plan_resume(settings.load_dir, identity=identity, config=to_jsonable(run.values))


def _resume_state(manifest: Manifest, scheduler: Any, say: Callable[[str], None]) -> TrainState:
    """Return the state of a checkpoint, and put the schedule where it was."""
    saved = dict(manifest.scheduler)
    current = scheduler.state_dict()
    differing = {
        name: (saved[name], current[name])
        for name in current
        if name in saved and name != "num_steps" and saved[name] != current[name]
    }
    if scheduler.use_checkpoint_opt_param_scheduler:
        scheduler.load_state_dict({**saved, "num_steps": 0})
        differing = {}
    for name, (before, now) in differing.items():
        say(f"schedule changed since the checkpoint: {name} {before!r} -> {now!r}; the new one acts")
    scheduler.num_steps = saved["num_steps"]
    scheduler.step(increment=0)
    return TrainState(
        iteration=manifest.iteration,
        consumed_train_samples=manifest.consumed_train_samples,
        consumed_valid_samples=manifest.consumed_valid_samples,
        skipped_train_samples=manifest.skipped_train_samples,
    )


def _default_metrics_path(settings: LoopSettings) -> Path | None:
    return None if settings.save_dir is None else settings.save_dir.parent / "metrics.jsonl"


def _describer(
    run: RunConfig, identity: dict[str, Any], context: parallel.ParallelContext, settings: LoopSettings, scheduler: Any
) -> Callable[[TrainState], Manifest]:
    config = to_jsonable(run.values)

    def describe(state: TrainState) -> Manifest:
        return Manifest(
            iteration=state.iteration,
            consumed_train_samples=state.consumed_train_samples,
            consumed_valid_samples=state.consumed_valid_samples,
            skipped_train_samples=state.skipped_train_samples,
            world_size=context.world_size,
            layout=context.layout.render(),
            identity=identity,
            config=config,
            scheduler=scheduler.state_dict(),
            core_release=compat.core_release(),
            has_optimizer=settings.save_optim,
            has_rng=settings.save_rng,
        )

    return describe
