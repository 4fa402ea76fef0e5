"""All rules of a release: those with a function of their own, and one for each remaining row of the option table.

The option table of the release says which Bridge field an option corresponds to. `data/mlm_mapping.jsonl` is the reviewed part:
options without a counterpart and why, options that act only under a condition, options whose default is not worth setting.
Start reading at `load_mapping`.
"""

from __future__ import annotations

import fnmatch
import functools
import json
import re
from collections.abc import Mapping
from importlib import resources

from autorecipe.errors import InternalError
from autorecipe.record import dataclass, field
from autorecipe.schema.layer import Layer
from autorecipe.schema.option import MlmOption
from autorecipe.schema.translation import Status
from autorecipe.schema.value import FieldValue
from autorecipe.translate.architecture import ARCHITECTURE_RULES
from autorecipe.translate.arguments import OptionTable
from autorecipe.translate.conditions import CONDITIONS
from autorecipe.translate.corpus import DATA_RULES
from autorecipe.translate.effective import MlmConfig
from autorecipe.translate.parallel import PARALLEL_RULES
from autorecipe.translate.precision import DTYPE_DESTS, PRECISION_RULES, dtype_rule
from autorecipe.translate.profiling import PROFILING_RULES
from autorecipe.translate.rule import BridgeView, Cell, Rule
from autorecipe.translate.schedule import SCHEDULE_RULES

SPECIAL_RULES = (*ARCHITECTURE_RULES, *PARALLEL_RULES, *PRECISION_RULES, *SCHEDULE_RULES, *DATA_RULES, *PROFILING_RULES)


@dataclass(frozen=True, kw_only=True)
class Note:
    """One reviewed row.

    Attributes:
        status: what becomes of the option; None leaves it to its rule.
        reason: why it does not map, or why its default is not set.
        when: condition under which it acts; empty for always.
        implicit: `never` where a differing default is not worth setting.
        layer: layer of change where the table's is wrong for a translation.
        note: what to know when it is used.
        path: Bridge path, where the table has none.
    """

    status: Status | None = None
    reason: str = ""
    when: str = ""
    implicit: str = ""
    layer: Layer | None = None
    note: str = ""
    path: str = ""


@dataclass(frozen=True)
class Entry:
    """One option with what becomes of it.

    Attributes:
        option: row of the release's table.
        rule: rule that translates it, or None.
        status: what becomes of it in general.
        note: reviewed row.
        layer: layer of change.
    """

    option: MlmOption
    rule: Rule | None
    status: Status
    note: Note
    layer: Layer | None

    def acts(self, config: MlmConfig) -> bool:
        """Return whether the option acts in a configuration."""
        return CONDITIONS[self.note.when].holds(config) if self.note.when else True

    @property
    def needs(self) -> str:
        """What has to be given for the option to act; empty where it always does."""
        return CONDITIONS[self.note.when].needs if self.note.when else ""


@dataclass(frozen=True)
class MappingTable:
    """Everything a translation needs to know about a release's options.

    Attributes:
        table: options by name.
        entries: destination -> entry.
        rules: every rule once.
    """

    table: OptionTable
    entries: Mapping[str, Entry]
    rules: tuple[Rule, ...]
    paths: Mapping[str, Rule] = field(default_factory=dict)


def load_mapping(options: Mapping[str, MlmOption], presets: Mapping[str, Mapping[str, FieldValue]] | None = None) -> MappingTable:
    """Build the mapping of a release.

    Args:
        options: option table of the release, by flag.
        presets: its mixed-precision presets, by name.

    Raises:
        InternalError: an option without a status (the reviewed table has a gap).
    """
    table = OptionTable(options, presets or {})
    special = {dest: rule for rule in SPECIAL_RULES for dest in rule.dests}
    entries: dict[str, Entry] = {}
    rules: dict[str, Rule] = {rule.name: rule for rule in SPECIAL_RULES}
    gaps: list[str] = []
    for option in table.by_dest.values():
        note = find_note(option)
        rule = special.get(option.dest)
        if rule is None and note.status in (None, Status.DERIVED):
            rule = _table_rule(option, note)
            if rule is not None:
                rules[rule.name] = rule
        status = note.status or (_status_of(option, rule) if rule is not None else None)
        if status is None:
            status = Status.UNMAPPED
            note = Note(status=status, reason=option.note or "Bridge has no field for it", layer=note.layer, when=note.when)
        if status is None:
            gaps.append(option.flag)
        entries[option.dest] = Entry(option, rule, status, note, note.layer or option.layer)
    if gaps:
        raise InternalError(f"options without a status: {', '.join(gaps)}")
    paths = {path: rule for rule in rules.values() for path in rule.paths}
    return MappingTable(table, entries, tuple(rules.values()), paths)


@functools.cache
def _notes() -> tuple[dict[str, Note], list[tuple[str, Note]], dict[str, Note]]:
    text = (resources.files("autorecipe") / "data" / "mlm_mapping.jsonl").read_text(encoding="utf-8")
    exact: dict[str, Note] = {}
    patterns: list[tuple[str, Note]] = []
    groups: dict[str, Note] = {}
    for line in text.splitlines():
        row = json.loads(line)
        note = Note(
            status=Status(row["status"]) if "status" in row else None,
            reason=row.get("reason", ""),
            when=row.get("when", ""),
            implicit=row.get("implicit", ""),
            layer=Layer(row["layer"]) if "layer" in row else None,
            note=row.get("note", ""),
            path=row.get("path", ""),
        )
        if "group" in row:
            groups[row["group"]] = note
        elif "*" in row["dest"]:
            patterns.append((row["dest"], note))
        else:
            exact[row["dest"]] = note
    return exact, patterns, groups


def find_note(option: MlmOption) -> Note:
    """Return the reviewed row of an option: by name, else by the longest pattern, else (without a field) by group."""
    exact, patterns, groups = _notes()
    if option.dest in exact:
        return exact[option.dest]
    matching = [(len(pattern), note) for pattern, note in patterns if fnmatch.fnmatchcase(option.dest, pattern)]
    if matching:
        return max(matching, key=lambda pair: pair[0])[1]
    if option.group in groups and not option.bridge_field:
        return groups[option.group]
    return Note()


def _table_rule(option: MlmOption, note: Note) -> Rule | None:
    """Return the rule of a row whose field and transform say everything."""
    text = note.path or option.bridge_field
    if not text or not re.fullmatch(r"[a-z_0-9.A-Z]+(;[a-z_0-9.A-Z]+)*", text):
        return None
    paths = tuple(text.split(";"))
    dest = option.dest
    if dest in DTYPE_DESTS:
        return dtype_rule(dest, paths[0])
    negated = "inverted" in option.transform and option.type == "flag(store_true)"

    def forward(config: MlmConfig) -> list[Cell]:
        value = config.get(dest)
        value = (not value) if negated else value
        why = config.derived.get(dest, "")
        return [Cell(path, value, (dest,), why) for path in paths]

    def backward(view: BridgeView) -> dict[str, FieldValue]:
        known = next((path for path in paths if view.knows(path)), None)
        if known is None:
            return {}
        value = view.get(known)
        return {dest: (not value) if negated else value}

    return Rule(name=dest, dests=(dest,), paths=paths, status=_generic_status(option, paths), forward=forward, backward=backward)


def _generic_status(option: MlmOption, paths: tuple[str, ...]) -> Status:
    if len(paths) > 1:
        return Status.EXPANDS
    if "inverted" in option.transform:
        return Status.INVERTED
    flag = option.flag.split()[0].removeprefix("--").replace("-", "_")
    return Status.SAME if paths[0].rsplit(".", 1)[-1] == flag else Status.RENAMED


def _status_of(option: MlmOption, rule: Rule) -> Status:
    if rule.status in (Status.SAME, Status.RENAMED) and rule.dests != (option.dest,) and rule.paths:
        flag = option.flag.split()[0].removeprefix("--").replace("-", "_")
        return Status.SAME if any(path.rsplit(".", 1)[-1] == flag for path in rule.paths) else Status.RENAMED
    return rule.status
