"""`autorecipe recommend`: the right recipe for a question, and the command that starts it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from autorecipe.cli.output import format_option

if TYPE_CHECKING:
    from autorecipe.api.recommend import Understood

GOALS = ("pretrain", "sft", "peft", "lora", "dora", "benchmark")


@click.command(
    "recommend",
    epilog="Exit codes: 0 answered; 1 it does not fit, or there is no such recipe; 2 something must be said first.",
)
@click.argument("question", nargs=-1)
@click.option("--model", metavar="NAME", help="Model name, Hugging Face id, recipe name, or path of a config.json.")
@click.option("--gpus", type=click.IntRange(min=1), metavar="N", help="GPUs in total.")
@click.option("--gpu", metavar="TYPE", help="GPU type, such as h100 or gb200.")
@click.option("--goal", type=click.Choice(GOALS), help="What the run is for.")
@click.option("--seq-length", type=click.IntRange(min=1), metavar="N", help="Tokens per sample.")
@click.option("--nodes", type=click.IntRange(min=1), metavar="N", help="Hosts.")
@click.option("--gpus-per-node", type=click.IntRange(min=1), metavar="N", help="GPUs of each host.")
@click.option("--dataset", metavar="PRESET", help="Dataset preset, such as mock, squad or tulu3.")
@click.option("--precision", metavar="NAME", help="Precision of a benchmark recipe: bf16, fp8cs, fp8mx or nvfp4.")
@click.option("--first-run", is_flag=True, help="A first run that works: the smoke test of Megatron Bridge.")
@click.option("--bridge", "release", metavar="RELEASE", help="Megatron Bridge release of the catalog; the newest by default.")
@click.option("--lang", type=click.Choice(["en", "ja"]), default="en", show_default=True, help="Language of the answer.")
@click.option("--brief", is_flag=True, help="Only summary, command, overrides, check and checklist.")
@format_option
@click.pass_context
def recommend(
    ctx: click.Context,
    /,
    *,
    question: Sequence[str],
    release: str | None,
    lang: str,
    brief: bool,
    output_format: str,
    **given: Any,
) -> int:
    """Recommend a recipe and the command that starts it.

    QUESTION is free text, English or Japanese, with as much as you know: model, size, GPUs, goal, sequence length.
    Options say the same and win. Several questions are separated by `;`. What is missing is asked for.

    \b
    autorecipe recommend "fine-tune qwen3 8b with lora on one h100, 16k context"
    autorecipe recommend "Qwen3 30B-A3B" --gpus 16 --gpu h100 --goal sft
    autorecipe recommend --first-run
    """
    gc.disable()  # the answer is made once and kept: collecting while modules load costs a tenth of the time
    try:
        return _answer(ctx, question, given, release=release, lang=lang, brief=brief, output_format=output_format)
    finally:
        gc.enable()


def _answer(
    ctx: click.Context,
    question: Sequence[str],
    given: dict[str, Any],
    *,
    release: str | None,
    lang: str,
    brief: bool,
    output_format: str,
) -> int:
    options = _read_options(given)
    if not question and not options:
        click.echo(ctx.get_help())
        return 0
    from autorecipe.api.recommend import read_questions
    from autorecipe.api.recommend import recommend as answer

    text = " ".join(question)
    if sys.stdin.isatty() and sys.stdout.isatty():
        understood = read_questions(text, options, release=release)
        if len(understood) == 1:
            options |= _ask(understood[0], lang)
    answers = answer(text, options, release=release, lang=lang)
    if output_format == "json":
        import json

        from autorecipe.schema.value import to_jsonable

        click.echo(json.dumps({"answers": to_jsonable(answers)}, ensure_ascii=False, indent=2))
    else:
        from autorecipe.recommend.render import render_answers

        click.echo(render_answers(answers, lang=lang, brief=brief), nl=False)
    return 0 if all(item.command for item in answers) else 1


def _read_options(given: dict[str, Any]) -> dict[str, Any]:
    """Turn command-line options into fields of a question."""
    options = {
        "model": given["model"],
        "num_gpus": given["gpus"],
        "gpu": _gpu_id(given["gpu"]),
        "seq_length": given["seq_length"],
        "num_nodes": given["nodes"],
        "gpus_per_node": given["gpus_per_node"],
        "dataset": given["dataset"],
        "precision": given["precision"],
        "first_run": given["first_run"] or None,
        **_read_goal(given["goal"]),
    }
    return {name: value for name, value in options.items() if value is not None}


def _read_goal(goal: str | None) -> dict[str, Any]:
    if goal is None:
        return {}
    from autorecipe.schema.recipe import Mode

    if goal == "benchmark":
        return {"benchmark": True}
    if goal in ("lora", "dora"):
        return {"mode": Mode.PEFT, "adapter": goal}
    return {"mode": Mode(goal)}


def _gpu_id(name: str | None) -> str | None:
    if name is None:
        return None
    from autorecipe.catalog.hardware import find_gpu

    return find_gpu(name).name


def _ask(understood: Understood, lang: str) -> dict[str, Any]:
    """Ask for what is missing, by name; an empty answer leaves an optional input to its default."""
    from autorecipe.recommend.language import render_statement

    answers: dict[str, Any] = {}
    for missing in understood.missing:
        text = f"{missing.option}: {render_statement(missing.reason, lang)}"
        kind = click.Choice(missing.choices) if missing.choices else None
        default = None if missing.required else ""
        reply = click.prompt(text, type=kind, default=default, show_default=False, err=True)
        if reply in ("", None):
            continue
        if missing.name == "mode":
            answers |= _read_goal(str(reply))
        elif missing.name == "gpu":
            answers["gpu"] = _gpu_id(str(reply))
        else:
            answers[missing.name] = int(reply) if missing.name in ("num_gpus", "seq_length") else str(reply)
    return answers
