"""Designing a comparison: which fields of two configurations are not matched, and the commands that match them.

Pure: resolved configurations in, findings and text out. Start reading at `find_unmatched` and `render_command`.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from autorecipe.config.diff import diff_configs
from autorecipe.schema.change import Change
from autorecipe.schema.field import ConfigSchema
from autorecipe.schema.layer import Layer
from autorecipe.schema.parity import SideKind
from autorecipe.schema.run import OriginKind, RunConfig

MLM_SCRIPT = "3rdparty/Megatron-LM/pretrain_gpt.py"
BRIDGE_SCRIPT = "scripts/training/run_recipe.py"
LAUNCHER = "uv run python -m torch.distributed.run"

CHECKLIST = (
    "Bridge recipe: vanilla_gpt_pretrain_config (it leaves the defaults of pretrain_gpt.py as they are)",
    f"Bridge entry point: {BRIDGE_SCRIPT}",
    f"Megatron-LM entry point: {MLM_SCRIPT}",
    f"both start through `{LAUNCHER}`",
    "remove nemo_experiments before each Bridge run: a checkpoint left there is resumed without a word",
    "Megatron-LM needs PYTHONPATH=3rdparty/Megatron-LM:$PYTHONPATH",
    "matched settings give the same lm loss at each iteration within BF16 rounding; compare with `autorecipe parity compare`",
    "never change a file below 3rdparty/Megatron-LM/",
)
"""What to state before a first comparison of the two frameworks."""

_COMPANIONS = {"scheduler.end_weight_decay": "optimizer.weight_decay"}
_NOT_COMPARED = ("checkpoint.", "logger.", "derived.", "env_vars.", "profiling.")
_FIX_ORDER = (
    "scheduler.lr_decay_style",
    "scheduler.lr_warmup_iters",
    "optimizer.adam_beta2",
    "scheduler.start_weight_decay",
    "scheduler.end_weight_decay",
)


def find_unmatched(a: RunConfig, b: RunConfig, schema: ConfigSchema) -> tuple[tuple[Change, ...], tuple[Change, ...]]:
    """Return the acting fields that differ and that a user can set: convergence first, then what may only drift.

    Args:
        a: first configuration, in Bridge's fields.
        b: second configuration.
        schema: schema of the release.
    """
    convergence: list[Change] = []
    execution: list[Change] = []
    for change in diff_configs(a, b, schema):
        if change.inert or change.path.startswith(_NOT_COMPARED) or _is_computed(change, a, b, schema):
            continue
        if "does not act" in change.reason or change.path.endswith("._class"):
            continue
        if change.layer is Layer.IO:
            continue
        target = convergence if change.layer in (Layer.CONVERGENCE, None) else execution
        target.append(change)
    return tuple(sorted(convergence, key=_order)), tuple(execution)


def _order(change: Change) -> tuple[int, str]:
    known = change.path in _FIX_ORDER
    return (_FIX_ORDER.index(change.path) if known else len(_FIX_ORDER), change.path)


def _is_computed(change: Change, a: RunConfig, b: RunConfig, schema: ConfigSchema) -> bool:
    field = schema.get(change.path)
    if field is not None and field.settable == "derived":
        return True
    if change.reason.startswith("computed"):
        return True
    kinds = {config.origins[change.path].kind for config in (a, b) if change.path in config.origins}
    return kinds == {OriginKind.DERIVED}


def companion_of(path: str) -> str | None:
    """Return the field that does not act but is kept equal to a path's value, or None."""
    return _COMPANIONS.get(path)


def render_command(
    kind: SideKind, words: Sequence[str], *, recipe: str, processes: int, mock: bool, megatron_lm: str = "3rdparty/Megatron-LM"
) -> str:
    """Render the command of one side as it is pasted into a shell.

    Args:
        kind: which program.
        words: options or overrides, unquoted.
        recipe: Bridge recipe.
        processes: processes on one node.
        mock: whether Bridge trains on mock data.
        megatron_lm: Megatron-LM checkout.
    """
    launch = f"{LAUNCHER} --nproc_per_node={processes}"
    if kind is SideKind.MEGATRON_LM:
        head = [f"PYTHONPATH={megatron_lm}:$PYTHONPATH", launch, f"  {megatron_lm}/pretrain_gpt.py"]
        rows = _group_options(words)
    else:
        dataset = " --dataset mock" if mock else ""
        head = ["rm -rf nemo_experiments &&", launch, f"  {BRIDGE_SCRIPT}", f"  --recipe {recipe}{dataset}"]
        rows = [shlex.quote(word) for word in words]
    return " \\\n".join([*head, *(f"  {row}" for row in _fill(rows))])


def _group_options(words: Sequence[str]) -> list[str]:
    rows: list[str] = []
    for word in words:
        if word.startswith("--") or not rows:
            rows.append(shlex.quote(word))
        else:
            rows[-1] += f" {shlex.quote(word)}"
    return rows


def _fill(rows: Sequence[str], width: int = 96) -> list[str]:
    lines: list[str] = []
    for row in rows:
        if lines and len(lines[-1]) + len(row) < width:
            lines[-1] += f" {row}"
        else:
            lines.append(row)
    return lines
