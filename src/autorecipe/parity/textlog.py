"""Reading the console output of a training run.

Understands the iteration lines of Megatron-LM, Megatron Bridge and autorecipe: `iteration N/ M | name: number | ...`,
wherever they stand in the line, so that time stamps, rank prefixes and scheduler prefixes do not matter. Leaves out
validation lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from autorecipe.parity.framework import read_header
from autorecipe.parity.metrics import canonical_metric, parse_reading
from autorecipe.record import dataclass
from autorecipe.schema.parity import LOSS, LogForm, Reading, TrainingLog

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|\x1b[@-Z\\-_]")
_START = re.compile(r"iteration\s+(?P<number>\d+)\s*/\s*(?P<total>\d+)\s*\|")
_STAMP = re.compile(r"\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?\]?|\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b")


@dataclass(frozen=True, kw_only=True)
class _Line:
    number: int
    total: int
    origin: str
    metrics: dict[str, Reading]
    is_cut: bool


def strip_escapes(text: str) -> str:
    """Remove terminal escape sequences and turn carriage returns into line ends."""
    return _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")


def parse_text_log(text: str, *, name: str) -> TrainingLog:
    """Parse console output.

    Args:
        text: everything the run printed.
        name: file it came from, for messages.

    Returns:
        the log; `steps` is empty where no iteration line was found.
    """
    text = strip_escapes(text)
    header = read_header(text)
    lines = list(_iteration_lines(text))
    steps: dict[int, dict[str, Reading]] = {}
    origins: dict[int, str] = {}
    notes: list[str] = []
    repeated = conflicting = cut = 0
    restarts: list[int] = []
    previous = 0
    for line in lines:
        if line.is_cut:
            cut += 1
        known = steps.get(line.number)
        if known is None:
            steps[line.number], origins[line.number] = line.metrics, line.origin
        elif origins[line.number] != line.origin or (line.number == previous and line.metrics == known):
            repeated += 1
            conflicting += _conflict(known, line.metrics)
            steps[line.number] = {**line.metrics, **known}
        else:
            if line.number <= previous:
                restarts.append(line.number)
            steps[line.number] = line.metrics
        previous = line.number
    if repeated:
        notes.append(
            f"{repeated} lines repeat an iteration, as ranks that print the same do; the first rank that reports one is used"
        )
    if conflicting:
        notes.append(f"{conflicting} of them report other numbers than the first rank")
    if restarts:
        notes.append(f"the run went back to iteration {restarts[0]} (a restart); the later lines are used")
    if cut:
        notes.append(f"iteration {lines[-1].number} is cut off in the middle of its line; only its complete numbers are used")
    samples = header.facts.get("global_batch_size", header.facts.get("train.global_batch_size"))
    length = header.facts.get("seq_length", header.facts.get("dataset.seq_length", header.facts.get("model.seq_length")))
    return TrainingLog(
        name=name,
        form=LogForm.TEXT,
        framework=header.framework,
        framework_reason=header.reason,
        steps={number: row for number, row in sorted(steps.items()) if row},
        announced_iterations=lines[-1].total if lines else None,
        precision=header.precision,
        num_parameters=header.num_parameters,
        tokens_per_step=_product(samples, length),
        facts=header.facts,
        notes=tuple(notes),
        fine_timestamps=header.fine_timestamps,
    )


def _product(samples: str | None, length: str | None) -> int | None:
    if samples is None or length is None or not samples.isdigit() or not length.isdigit():
        return None
    return int(samples) * int(length)


def _conflict(known: dict[str, Reading], other: dict[str, Reading]) -> bool:
    return LOSS in known and LOSS in other and known[LOSS].value != other[LOSS].value


def _iteration_lines(text: str) -> Iterator[_Line]:
    """Yield iteration reports; two reports that ranks printed into one line are two."""
    rows = text.split("\n")
    last_row = len(rows) - 1 if rows[-1] else -1
    for position, row in enumerate(rows):
        starts = list(_START.finditer(row))
        for index, start in enumerate(starts):
            end = starts[index + 1].start() if index + 1 < len(starts) else len(row)
            before = row[starts[index - 1].end() : start.start()].rsplit("|", 1)[-1] if index else row[: start.start()]
            body = row[start.end() : end]
            is_last_of_file = position == last_row and index + 1 == len(starts)
            metrics, is_cut = _parse_fields(body, may_be_cut=is_last_of_file)
            yield _Line(
                number=int(start["number"]),
                total=int(start["total"]),
                origin=_STAMP.sub("", before).strip(),
                metrics=metrics,
                is_cut=is_cut,
            )


def _parse_fields(body: str, *, may_be_cut: bool) -> tuple[dict[str, Reading], bool]:
    fields = body.split("|")
    is_closed = not fields[-1].strip()
    is_cut = may_be_cut and not is_closed
    if is_cut:
        fields = fields[:-1]
    metrics: dict[str, Reading] = {}
    for text in fields:
        name, separator, number = text.rpartition(":")
        if not separator:
            continue
        reading = parse_reading(number)
        if reading is not None and name.strip():
            metrics.setdefault(canonical_metric(name), reading)
    return metrics, is_cut
