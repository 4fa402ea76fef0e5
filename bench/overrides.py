"""Random override strings: none may crash the parser, and none may be accepted that Megatron Bridge's own machinery refuses.

    python bench/overrides.py [--count 100000] [--seed 1] [--recipe llama3_8b_pretrain_config]

Each accepted string is applied a second time by Hydra and OmegaConf, as Bridge does it, to a structured configuration that
has just the fields of the recipe around its key. Prints a table; exits 1 on a crash or a wrong acceptance.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from autorecipe.catalog.store import open_catalog
from autorecipe.config.annotations import TypeSpec
from autorecipe.config.apply import apply_overrides
from autorecipe.config.grammar import render_value
from autorecipe.config.keys import locate_key
from autorecipe.config.origins import Origins
from autorecipe.config.overrides import parse_overrides, render_overrides
from autorecipe.config.state import Resolution
from autorecipe.errors import UsageError
from autorecipe.schema import ConfigSchema, Recipe

ALPHABET = "abcxyzABZ019_.-=+~@/:,'\"\\[]{}()$ \t#%*?|!&;<>\u00e9\u96ea\n"
VALUES = [
    *["1", "0", "-7", "2.5", "1e-4", ".5", "inf", "nan", "007", "1_0", "0x1", "999999999999999999999"],
    *["true", "False", "null", "none", "yes", "bf16", "full", "cosine", "/data/x", "a=b", "a:b", "'x,y'", '"x"', "'it\\'s'"],
    *["[1,2]", "[]", "{}", "{a:1}", "[a,[b]]", "1,2", "choice(1,2)", "range(1,3)", "int(3)", "str(4)"],
    *["${rng.seed}", "${oc.env:HOME}", "${nope}", "${nope"],
]


def legal_value(rng: random.Random, spec: TypeSpec) -> str:
    """Return a text that the type should accept."""
    member = rng.choice(spec.members())
    if member.kind in ("literal", "enum"):
        return render_value(rng.choice(member.choices))
    if member.kind in ("list", "set", "tuple"):
        items = member.arguments or (TypeSpec("int"),)
        count = len(items) if member.kind == "tuple" else rng.randrange(3)
        return "[" + ",".join(legal_value(rng, items[index % len(items)]) for index in range(count)) + "]"
    plain = {"bool": [True, False], "int": [0, 1, 7, -3], "float": [0.5, 1e-5, 3], "str": ["x", "a b", "/x"], "none": [None]}
    return render_value(rng.choice(plain.get(member.kind, ["bf16", {"a": 1}, 5])))


def random_text(rng: random.Random, paths: Sequence[str], schema: ConfigSchema) -> str:
    """Return one override string: noise, a real key with any value, a mistyped key, or a mutated legal override."""
    kind = rng.random()
    if kind < 0.15:
        return "".join(rng.choice(ALPHABET) for _ in range(rng.randrange(0, 40)))
    path = rng.choice(paths)
    if kind < 0.35:
        path = mutate(rng, path, "abcdefghijklmnopqrstuvwxyz_.")
    prefix = rng.choice(["", "", "", "", "", "+", "++", "~"])
    value = legal_value(rng, locate_key(path, schema).spec) if rng.random() < 0.4 else rng.choice(VALUES)
    text = f"{prefix}{path}={value}"
    if kind > 0.8:
        text = mutate(rng, text, ALPHABET)
    if prefix == "~" and rng.random() < 0.5:
        text = text.partition("=")[0]
    return text


def mutate(rng: random.Random, text: str, alphabet: str) -> str:
    """Insert, replace, delete or repeat a few characters."""
    characters = list(text)
    for _ in range(rng.randrange(1, 4)):
        where = rng.randrange(len(characters) + 1)
        action = rng.randrange(4)
        if action == 0:
            characters.insert(where, rng.choice(alphabet))
        elif characters and action == 1:
            characters[where % len(characters)] = rng.choice(alphabet)
        elif characters and action == 2:
            del characters[where % len(characters)]
        else:
            characters[where:where] = characters[: rng.randrange(6)]
    return "".join(characters)


def accept(text: str, recipe: Recipe, schema: ConfigSchema, origins: Mapping[str, Any]) -> tuple[str, Resolution | None]:
    """Return the outcome for one string (`accepted`, or the code of the first problem) and the state after it."""
    state = Resolution(recipe=recipe, schema=schema, world_size=None, values=dict(recipe.fields), origins=dict(origins))
    try:
        apply_overrides(state, parse_overrides([text], schema, base=recipe.fields))
    except UsageError as error:
        return error.problems[0].code, None
    return "accepted", state


def upstream_refuses(text: str, fields: Mapping[str, Any]) -> str:
    """Apply a string as Bridge does, on the part of the recipe around its key; return why it is refused, or nothing."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    try:
        parsed = OverridesParser.create().parse_overrides([text])
        config = OmegaConf.create(tree_of(str(parsed[0].key_or_group), fields))
        OmegaConf.set_struct(config, True)
        ConfigLoaderImpl._apply_overrides_to_config(overrides=parsed, cfg=config)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return ""


def tree_of(key: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nested fields that matter for a key: those on its way, at it and below it, or three of its section."""
    section = key.split(".", 1)[0]
    wanted = [path for path in fields if path == key or path.startswith(key + ".") or key.startswith(path + ".")]
    tree: dict[str, Any] = {}
    for path in wanted or [path for path in fields if path.split(".", 1)[0] == section][:3]:
        *parents, leaf = path.split(".")
        node = tree
        for part in parents:
            child = node.get(part)
            if not isinstance(child, dict):
                child = node[part] = {}
            node = child
        if leaf != "_class" and not isinstance(node.get(leaf), dict):
            value = fields[path]  # `${CWD}` in the catalog is a placeholder for the working directory
            node[leaf] = value.replace("${CWD}", ".") if isinstance(value, str) else value
    return tree


def survives_rendering(text: str, recipe: Recipe, schema: ConfigSchema) -> bool:
    """Whether rendering what was parsed, and parsing that, gives the same paths and values."""
    parsed = parse_overrides([text], schema, base=recipe.fields)
    again = parse_overrides(render_overrides(parsed), schema, base=recipe.fields)
    return [(item.path, repr(item.value)) for item in again] == [(item.path, repr(item.value)) for item in parsed]


def main() -> int:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recipe", default="llama3_8b_pretrain_config")
    options = parser.parse_args()
    catalog = open_catalog()
    schema, recipe = catalog.schema(), catalog.load(options.recipe)
    origins = Origins(recipe, schema)
    paths = sorted({*schema, *recipe.fields, "env_vars.NEW", "dataset.dataset_kwargs.a.b", "model.recompute_modules.0"})
    rng = random.Random(options.seed)
    outcomes: collections.Counter[str] = collections.Counter()
    crashes: list[str] = []
    wrong: list[str] = []
    seconds = 0.0
    for _ in range(options.count):
        text = random_text(rng, paths, schema)
        started = time.perf_counter()
        try:
            outcome, state = accept(text, recipe, schema, origins)
        except Exception as error:
            crashes.append(f"{text!r}: {type(error).__name__}: {error}")
            continue
        finally:
            seconds += time.perf_counter() - started
        outcomes[outcome] += 1
        if state is None:
            continue
        refused = upstream_refuses(text, recipe.fields)
        if refused and not any(note.startswith("TRAP-NEWKEY") for note in state.notes):
            wrong.append(f"{text!r}: {refused}")
        if not survives_rendering(text, recipe, schema):
            wrong.append(f"{text!r}: does not survive rendering")
    print(f"{'outcome':<20} {'strings':>9} {'share':>8}")
    for name, count in outcomes.most_common():
        print(f"{name:<20} {count:>9,} {count / options.count:>8.1%}")
    print(f"{'crashes':<20} {len(crashes):>9,}")
    print(f"{'wrongly accepted':<20} {len(wrong):>9,}")
    print(f"{seconds / options.count * 1e3:.2f} ms a string, recipe {recipe.name}, seed {options.seed}")
    for line in (crashes + wrong)[:40]:
        print(f"  {line}")
    return 1 if crashes or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
