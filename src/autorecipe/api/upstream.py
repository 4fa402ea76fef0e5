"""Where upstream's training programs are, and the words that start them: one home for `--engine` and `parity run`.

A program is looked for at the place that the user names, then where its environment variable points, then in `3rdparty/`, then
among the installed packages. A place is a checkout, or a folder with upstream's packages (an unpacked wheel):
`autorecipe.engine.upstream` starts both. Without CUDA, the options that the CPU needs are added and said. Start at
`find_place`; running is `api.upstream_run`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import autorecipe
from autorecipe.absent import is_installed
from autorecipe.api.machine import read_machine
from autorecipe.api.train import TrainRequest
from autorecipe.api.translate import load_mlm_mapping, to_mlm
from autorecipe.errors import EnvironmentProblem, NegativeAnswer, Problem
from autorecipe.record import dataclass, field
from autorecipe.translate.to_mlm import mlm_words

STARTER = "autorecipe.engine.upstream"

MLM_ON_HOST = (
    "--transformer-impl",
    "local",
    "--no-gradient-accumulation-fusion",
    "--no-masked-softmax-fusion",
    "--no-bias-gelu-fusion",
    "--no-bias-swiglu-fusion",
    "--no-bias-dropout-fusion",
    "--no-rope-fusion",
    "--no-persist-layer-norm",
)
"""What Megatron-LM needs without CUDA; fusions and layer implementation only, so rounding may drift."""

BRIDGE_ON_HOST = (
    "model.transformer_impl=local",
    "model.masked_softmax_fusion=false",
    "model.gradient_accumulation_fusion=false",
    "checkpoint.save=null",
)
"""The same for Megatron Bridge."""


@dataclass(frozen=True, kw_only=True)
class UpstreamKind:
    """One of upstream's programs.

    Attributes:
        engine: its name here: `mlm` or `bridge`.
        title: what people call it.
        variable: environment variable that names a place.
        option: option of `parity run` that names one.
        folder: where a checkout is looked for otherwise.
        script: upstream's script in a checkout.
        package: folder of the package without which there is nothing to start.
        module: the same as an import name.
    """

    engine: str
    title: str
    variable: str
    option: str
    folder: str
    script: str
    package: str
    module: str


KINDS: Mapping[str, UpstreamKind] = {
    kind.engine: kind
    for kind in (
        UpstreamKind(
            engine="mlm",
            title="Megatron-LM",
            variable="MEGATRON_LM",
            option="--megatron-lm",
            folder="3rdparty/Megatron-LM",
            script="pretrain_gpt.py",
            package="megatron/training",
            module="megatron.training",
        ),
        UpstreamKind(
            engine="bridge",
            title="Megatron Bridge",
            variable="MEGATRON_BRIDGE",
            option="--bridge",
            folder="3rdparty/Megatron-Bridge",
            script="scripts/training/run_recipe.py",
            package="megatron/bridge",
            module="megatron.bridge",
        ),
    )
}


@dataclass(frozen=True, kw_only=True)
class UpstreamPlace:
    """Where a program of upstream is.

    Attributes:
        engine: `mlm` or `bridge`.
        path: checkout or folder with packages; None for the packages installed beside this one.
        found_by: what led there, for people.
    """

    engine: str
    path: Path | None
    found_by: str

    @property
    def is_checkout(self) -> bool:
        """Whether upstream's own script is there."""
        return self.path is not None and (self.path / KINDS[self.engine].script).is_file()


@dataclass(frozen=True, kw_only=True)
class UpstreamProgram:
    """A program to start, in one process or under a process launcher.

    Attributes:
        engine: `mlm` or `bridge`.
        words: what follows the interpreter: `-m MODULE` and arguments.
        environment: variables to set besides the process's own.
        notes: what was added, left out or translated, for people.
    """

    engine: str
    words: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def find_place(engine: str, given: Path | None = None) -> UpstreamPlace:
    """Find a program of upstream.

    Args:
        engine: `mlm` or `bridge`.
        given: the place that the user named; nothing else is tried then.

    Raises:
        EnvironmentProblem: it is at none of the places, or not where the user says.
    """
    place = look_up_place(engine, given)
    if place is not None:
        return place
    kind = KINDS[engine]
    raise EnvironmentProblem(
        Problem(
            code="no-upstream",
            path=f"--engine {engine}",
            message=f"{kind.title} is nowhere: {kind.variable} is not set, {kind.folder} holds no {kind.script}, "
            f"and {kind.module} is not installed",
            hint=f"set {kind.variable}=PATH to a checkout or an unpacked wheel (`parity run` also takes {kind.option} PATH); "
            "--engine core needs neither",
        )
    )


def look_up_place(engine: str, given: Path | None = None) -> UpstreamPlace | None:
    """As `find_place`, with None where the program is at none of the usual places.

    Raises:
        EnvironmentProblem: it is not where the user says.
    """
    kind = KINDS[engine]
    for path, reason in ((given, kind.option), (_named_place(kind), kind.variable)):
        if path is None:
            continue
        if not _holds(kind, path):
            raise EnvironmentProblem(
                Problem(
                    code="no-checkout",
                    path=f"{reason}={path}",
                    message=f"holds neither {kind.script} nor {kind.package}, so there is no {kind.title} to start",
                    hint=f"name a checkout of {kind.title}, or a folder into which its wheel was unpacked",
                )
            )
        return UpstreamPlace(engine=engine, path=path, found_by=reason)
    usual = Path(kind.folder)
    if _holds(kind, usual):
        return UpstreamPlace(engine=engine, path=usual, found_by=kind.folder)
    if is_installed(kind.module):
        return UpstreamPlace(engine=engine, path=None, found_by=f"the installed {kind.module}")
    return None


def megatron_lm_program(place: UpstreamPlace, words: Sequence[str], *, notes: Sequence[str] = ()) -> UpstreamProgram:
    """Return what starts Megatron-LM.

    Args:
        place: where it is.
        words: its options.
        notes: what is to be said besides.
    """
    added = () if has_cuda() else MLM_ON_HOST
    said = [*notes, *([f"no CUDA: added for Megatron-LM: {' '.join(added)}"] if added else [])]
    return _program(place, [*words, *added], said)


def bridge_program(
    place: UpstreamPlace,
    recipe: str,
    overrides: Sequence[str],
    *,
    dataset: str | None = None,
    mode: str | None = None,
    dataset_paths: Sequence[str] = (),
    core: Path | None = None,
    notes: Sequence[str] = (),
) -> UpstreamProgram:
    """Return what starts Megatron Bridge.

    Args:
        place: where it is.
        recipe: recipe name.
        overrides: `KEY=VALUE` texts.
        dataset: data set preset of Bridge.
        mode: pretrain, sft, lora or dora.
        dataset_paths: indexed data prefixes.
        core: folder whose `megatron.core` is used where the place brings none; None takes the installed one.
        notes: what is to be said besides.
    """
    added = () if has_cuda() else BRIDGE_ON_HOST
    said = [*notes, *([f"no CUDA: added for Megatron Bridge: {' '.join(added)}"] if added else [])]
    words = ["--recipe", recipe]
    words += ["--mode", mode] if mode else []
    words += ["--dataset", dataset] if dataset else []
    words += [word for path in dataset_paths for word in ("--dataset-path", path)]
    return _program(place, [*words, *overrides, *added], said, behind=core)


def find_program(request: TrainRequest, *, dataset_paths: Sequence[str] = ()) -> UpstreamProgram:
    """Find upstream's program for a training request and translate the configuration for it.

    Args:
        request: what to run; `engine` is bridge or mlm.
        dataset_paths: indexed data prefixes, for Bridge's own flag.

    Raises:
        EnvironmentProblem: the program is not here.
        NegativeAnswer: a setting that changes the training has no Megatron-LM option.
    """
    place = find_place(request.engine)
    own = [text for text in request.overrides if text.startswith("engine.")]
    overrides = [text for text in request.overrides if not text.startswith("engine.")]
    notes = [f"not for {KINDS[request.engine].title}, left out: {' '.join(own)}"] if own else []
    if request.engine == "bridge":
        core = look_up_place("mlm")
        return bridge_program(
            place,
            request.recipe,
            overrides,
            dataset=request.dataset,
            mode=request.mode,
            dataset_paths=dataset_paths,
            core=core.path if core is not None else None,
            notes=notes,
        )
    translation = to_mlm(request.recipe, overrides, gpus=request.world_size)
    lost = [
        Problem(
            code="not-in-megatron-lm",
            path=outcome.name,
            message=f"={outcome.value}: Megatron-LM has no option for it, so another model would be trained",
            hint="use --engine core or --engine bridge",
        )
        for outcome in translation.lost
    ]
    if translation.problems or lost:
        raise NegativeAnswer([*translation.problems, *lost])
    words = mlm_words(translation, load_mlm_mapping())
    return megatron_lm_program(place, words, notes=[*notes, *translation.notes])


def has_cuda() -> bool:
    """Return whether this machine has an NVIDIA GPU that a process may use."""
    return read_machine().num_gpus > 0


def _named_place(kind: UpstreamKind) -> Path | None:
    text = os.environ.get(kind.variable)
    return Path(text) if text else None


def _holds(kind: UpstreamKind, path: Path) -> bool:
    return (path / kind.script).is_file() or (path / kind.package).is_dir()


def _program(place: UpstreamPlace, words: Sequence[str], notes: Sequence[str], *, behind: Path | None = None) -> UpstreamProgram:
    source = str(Path(autorecipe.__file__).resolve().parents[1])
    later = [str(behind.resolve())] if behind is not None else []
    path = os.pathsep.join([source, *later, *filter(None, [os.environ.get("PYTHONPATH")])])
    where = str(place.path.resolve()) if place.path is not None else "-"
    return UpstreamProgram(
        engine=place.engine,
        words=("-m", STARTER, place.engine, where, *words),
        environment={"PYTHONPATH": path},
        notes=tuple(notes),
    )
