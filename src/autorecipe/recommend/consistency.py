"""Join what a question says with what options say, and refuse what contradicts itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autorecipe.errors import Problem, UsageError, unknown_name
from autorecipe.recommend.question import OPTIONS
from autorecipe.record import field_names, replace
from autorecipe.schema.recommendation import Question
from autorecipe.units import MOST_GPUS


def merge_options(question: Question, options: Mapping[str, object]) -> tuple[Question, tuple[tuple[str, object, object], ...]]:
    """Let options win over what was read from text.

    Returns:
        the merged question, and (name, value in the text, value of the option) for each value that an option replaced.
    """
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    current = {name: getattr(question, name) for name in field_names(question) or ()}
    replaced = tuple(
        (name, current[name], value)
        for name, value in given.items()
        if current[name] not in (None, False, value) and name in OPTIONS
    )
    return replace(question, **given), replaced  # type: ignore[arg-type]


def check_question(question: Question, *, presets: Sequence[str]) -> None:
    """Refuse a question whose parts contradict each other.

    Raises:
        UsageError: naming every contradiction.
    """
    problems = []
    for name in ("num_gpus", "num_nodes", "gpus_per_node", "seq_length"):
        value = getattr(question, name)
        if value is not None and value < 1:
            message = f"is {value}, and must be a whole number from 1 on"
            problems.append(
                Problem(code="bad-value", path=OPTIONS[name].split()[0], message=message, hint=f"give {OPTIONS[name]}")
            )
        elif value is not None and name != "seq_length" and value > MOST_GPUS:
            message = f"is {value}, and no cluster has more than {MOST_GPUS}"
            problems.append(
                Problem(code="bad-value", path=OPTIONS[name].split()[0], message=message, hint=f"give {OPTIONS[name]}")
            )
    if problems:
        raise UsageError(problems)
    if question.dataset is not None and question.dataset not in presets:
        problems.append(unknown_name("dataset preset", question.dataset, presets, hint=f"presets: {', '.join(presets)}"))
    if question.num_nodes and question.gpus_per_node and question.num_gpus:
        product = question.num_nodes * question.gpus_per_node
        if product != question.num_gpus:
            problems.append(
                Problem(
                    code="ambiguous-question",
                    path="num_gpus",
                    message=f"{question.num_nodes} hosts x {question.gpus_per_node} GPUs are {product}, not {question.num_gpus}",
                    hint="give two of --nodes, --gpus-per-node and --gpus",
                )
            )
    elif question.num_gpus and (question.num_nodes or question.gpus_per_node):
        part = question.num_nodes or question.gpus_per_node or 1
        if question.num_gpus % part:
            word = "hosts" if question.num_nodes else "GPUs per host"
            problems.append(
                Problem(
                    code="ambiguous-question",
                    path="num_gpus",
                    message=f"{question.num_gpus} GPUs do not divide into {part} {word}",
                    hint="give --gpus as a multiple of --nodes and of --gpus-per-node",
                )
            )
    if question.benchmark and question.adapter == "dora":
        problems.append(
            Problem(
                code="BR-PEFT-05",
                path="--goal dora",
                message="benchmark PEFT recipes are fixed LoRA; DoRA cannot be benchmarked with them",
                hint="ask for --goal dora without a benchmark to get the library recipe, which takes DoRA",
            )
        )
    if problems:
        raise UsageError(problems)
