"""From words to options: Megatron-LM's command line as argparse reads it, without losing a word.

Exact names win, then unique prefixes (argparse accepts abbreviations); `--name=value`, several values, repeated options (the
last one counts) and negative numbers are understood. Everything that is not an option is returned as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from autorecipe.errors import near_misses
from autorecipe.record import dataclass, field
from autorecipe.schema.option import MlmOption
from autorecipe.schema.value import FieldValue
from autorecipe.translate.values import ValueProblem, is_flag, parse_flag, parse_values, takes_many

_NEGATIVE = re.compile(r"-\d+$|-\d*\.\d+(?:[eE][-+]?\d+)?$|-\d+[eE][-+]?\d+$")
_UNRESOLVED = re.compile(r"\$\{?[A-Za-z_0-9@*#?!]|\$\(|`")


@dataclass(frozen=True, kw_only=True)
class Given:
    """One option as it was given.

    Attributes:
        name: as typed, such as `--num-layers`.
        option: what it is, or None for an unknown name.
        value: parsed value, or None where it cannot be parsed.
        texts: values as typed.
        problem: why the value does not count; empty where it does.
        is_unresolved: whether the value holds shell text that nothing resolves.
        overridden: whether the same option follows again and counts.
        origin: where it stands.
        near: closest known names, for an unknown one.
    """

    name: str
    option: MlmOption | None
    value: FieldValue = None
    texts: tuple[str, ...] = ()
    problem: str = ""
    is_unresolved: bool = False
    overridden: bool = False
    origin: str = "arguments"
    near: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ParsedArguments:
    """A command line, completely accounted for.

    Attributes:
        given: options in order.
        leading: words before the first option that are no known launcher.
        stray: words after it that belong to no option; Megatron-LM would refuse them.
        program: training script that the words name; empty where they name none.
        world_size: GPUs that the launcher words name, or None.
    """

    given: tuple[Given, ...]
    leading: tuple[str, ...] = ()
    stray: tuple[str, ...] = ()
    program: str = ""
    world_size: int | None = None


@dataclass(frozen=True)
class OptionTable:
    """The options of a release by every name they have.

    Attributes:
        options: by flag text of the table (aliases in one text).
        presets: mixed-precision presets of the Bridge release that they are mapped to, by name.
    """

    options: Mapping[str, MlmOption]
    presets: Mapping[str, Mapping[str, FieldValue]] = field(default_factory=dict, compare=False)
    names: dict[str, MlmOption] = field(default_factory=dict, compare=False)
    by_dest: dict[str, MlmOption] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        for option in self.options.values():
            for name in option.flag.split():
                self.names[name] = option
            current = self.by_dest.get(option.dest)
            if current is None or current.dest != _dest_of(current):
                self.by_dest[option.dest] = option

    def find(self, name: str, *, abbreviated: bool = True) -> tuple[MlmOption | None, tuple[str, ...]]:
        """Return the option that a name or unique prefix means, and the candidates of an ambiguous prefix."""
        exact = self.names.get(name)
        if exact is not None or not abbreviated:
            return exact, ()
        starts = sorted(known for known in self.names if known.startswith(name))
        meant = {id(self.names[known]) for known in starts}
        if len(meant) == 1:
            return self.names[starts[0]], ()
        return None, tuple(starts)

    def near(self, name: str) -> tuple[str, ...]:
        """Return the closest known names."""
        folded = name.replace("_", "-")
        if folded in self.names:
            return (folded,)
        return tuple(near_misses(name, list(self.names)))


def _dest_of(option: MlmOption) -> str:
    return option.flag.split()[0].removeprefix("--").replace("-", "_")


def parse_arguments(
    words: Sequence[str], table: OptionTable, *, origins: Sequence[str] = (), abbreviated: bool = True
) -> ParsedArguments:
    """Parse a command line.

    Args:
        words: after shell splitting; launcher words and the script's name may stand in front.
        table: options of the release.
        origins: where each word stands; empty for `arguments`.
        abbreviated: whether the unique beginning of a name stands for it.
    """
    start, world_size, launcher_stray = _skip_launcher(words)
    places = list(origins) if origins else ["arguments"] * len(words)
    given: list[Given] = []
    leading: list[str] = list(launcher_stray)
    stray: list[str] = []
    position = start
    while position < len(words):
        word = words[position]
        if not word.startswith("--") or word == "--":
            if word not in ("--", "\\"):
                (stray if given or "--" in word else leading).append(word)
            position += 1
            continue
        name, separator, attached = word.partition("=")
        following = _values_after(words, position + 1) if not separator else 0
        option, candidates = table.find(name, abbreviated=abbreviated)
        origin = places[position]
        if option is None:
            texts = (attached,) if separator else tuple(words[position + 1 : position + 1 + following])
            near = candidates[:5] if candidates else table.near(name)
            given.append(Given(name=name, option=None, texts=texts, origin=origin, near=tuple(near)))
            position += 1 + following
            continue
        used = 0 if is_flag(option) or separator else following if takes_many(option) else min(following, 1)
        if option.nargs.isdigit() and not separator:
            used = min(following, int(option.nargs))
        texts = (attached,) if separator else tuple(words[position + 1 : position + 1 + used])
        given.append(_read(name, option, texts, origin))
        position += 1 + used
    last = {item.option.dest: index for index, item in enumerate(given) if item.option is not None}
    return ParsedArguments(
        given=tuple(_mark_overridden(item, index, last) for index, item in enumerate(given)),
        leading=tuple(leading),
        stray=tuple(stray),
        program=words[start - 1].rsplit("/", 1)[-1] if start and words[start - 1].endswith(".py") else "",
        world_size=world_size,
    )


def _mark_overridden(item: Given, index: int, last: Mapping[str, int]) -> Given:
    if item.option is None or last[item.option.dest] == index:
        return item
    return Given(
        name=item.name,
        option=item.option,
        value=item.value,
        texts=item.texts,
        problem=item.problem,
        is_unresolved=item.is_unresolved,
        overridden=True,
        origin=item.origin,
    )


def _values_after(words: Sequence[str], position: int) -> int:
    count = 0
    while position + count < len(words):
        word = words[position + count]
        if word.startswith("-") and not _NEGATIVE.match(word) and len(word) > 1:
            break
        count += 1
    return count


def _read(name: str, option: MlmOption, texts: tuple[str, ...], origin: str) -> Given:
    if any(_UNRESOLVED.search(text) for text in texts):
        return Given(name=name, option=option, texts=texts, is_unresolved=True, origin=origin)
    if is_flag(option):
        if texts:
            return Given(name=name, option=option, texts=texts, problem="takes no value", origin=origin)
        return Given(name=name, option=option, value=parse_flag(option, name), origin=origin)
    try:
        return Given(name=name, option=option, value=parse_values(option, texts), texts=texts, origin=origin)
    except ValueProblem as error:
        return Given(name=name, option=option, texts=texts, problem=str(error), origin=origin)


_LAUNCHERS = (
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "srun",
    "mpirun",
    "mpiexec",
    "deepspeed",
    "accelerate",
    "python",
    "python3",
    "uv",
    "bash",
)
_SIZES = re.compile(r"--?(?P<name>nproc[-_]per[-_]node|nnodes|n|N|ntasks|ntasks-per-node)(?:=(?P<value>\S+))?$")


def _skip_launcher(words: Sequence[str]) -> tuple[int, int | None, tuple[str, ...]]:
    """Skip everything up to the training script, and read how many processes it starts."""
    script = next((index for index, word in enumerate(words) if word.endswith(".py")), None)
    if script is None:
        return 0, None, ()
    if script > 0 and not any(word.rsplit("/", 1)[-1] in _LAUNCHERS or "=" in word for word in words[:script]):
        return 0, None, ()
    sizes: dict[str, int] = {}
    for index in range(script):
        found = _SIZES.fullmatch(words[index])
        if found is None:
            continue
        text = found["value"] or (words[index + 1] if index + 1 < script else "")
        if text.isdigit():
            sizes[found["name"].replace("_", "-")] = int(text)
    per_node = sizes.get("nproc-per-node")
    if per_node is None:
        return script + 1, sizes.get("ntasks", sizes.get("n")), ()
    return script + 1, per_node * sizes.get("nnodes", 1), ()
