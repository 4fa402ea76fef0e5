"""Upstream trees to evaluate: a wheel, a source checkout, or an installed package.

`open_bridge` and `open_core` give a directory to import from, the release, and a digest of the files, and say exactly what is
wrong with anything else.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from autorecipe.errors import EnvironmentProblem, Problem, UsageError
from autorecipe.record import dataclass

BRIDGE_HINT = "give a megatron_bridge-*.whl, or a Megatron-Bridge checkout (the directory that holds src/megatron/bridge)"
CORE_HINT = "give a megatron_core-*.whl, or a Megatron-LM checkout (the directory that holds megatron/core)"
SUBMODULE = Path("3rdparty/Megatron-LM")
"""Where a Bridge checkout keeps the Megatron-LM it is pinned to."""


@dataclass(frozen=True, kw_only=True)
class Tree:
    """Files of one upstream package.

    Attributes:
        directory: put on the import path; contains `megatron/`.
        release: version that the tree states; with `+local.DIGEST` for a checkout, so that it never passes for a release.
        digest: SHA-256 over names and contents of its files.
        origin: what was given, for messages.
    """

    directory: Path
    release: str
    digest: str
    origin: str


@contextlib.contextmanager
def open_bridge(path: Path) -> Iterator[Tree]:
    """Open a Megatron Bridge wheel or checkout; a wheel is unpacked for as long as the block runs.

    Raises:
        UsageError: nothing there.
        EnvironmentProblem: a damaged file, or not a Megatron Bridge.
    """
    with _open(path, package="bridge", hint=BRIDGE_HINT) as tree:
        recipes = [tree.directory / "megatron" / "bridge" / name for name in ("recipes", "perf_recipes")]
        if not any(item.is_dir() for item in recipes):
            raise _not_a(path, "it holds megatron/bridge, but neither recipes nor perf_recipes", BRIDGE_HINT)
        yield tree


@contextlib.contextmanager
def open_core(path: Path | None, *, bridge: Path | None = None) -> Iterator[Tree]:
    """Open a Megatron-Core wheel or checkout.

    Args:
        path: wheel or checkout; None takes the submodule of a Bridge checkout, else the installed package.
        bridge: what was given for the bridge.

    Raises:
        UsageError: nothing there.
        EnvironmentProblem: a damaged file, not a Megatron-Core, or none installed.
    """
    if path is None and bridge is not None and (bridge / SUBMODULE / "megatron" / "core").is_dir():
        path = bridge / SUBMODULE
    if path is None:
        yield _installed_core()
        return
    with _open(path, package="core", hint=CORE_HINT) as tree:
        yield tree


def _installed_core() -> Tree:
    found = importlib.util.find_spec("megatron")
    for location in (found.submodule_search_locations if found else None) or ():
        core = Path(location) / "core"
        if core.is_dir():
            digest = digest_tree(core)
            release = _stated_release(core) or "unknown"
            return Tree(directory=Path(location).parent, release=release, digest=digest, origin="installed megatron-core")
    raise EnvironmentProblem(
        Problem(code="no-core", message="no Megatron-Core is installed and none was given", hint=f"--core: {CORE_HINT}")
    )


@contextlib.contextmanager
def _open(path: Path, *, package: str, hint: str) -> Iterator[Tree]:
    if not path.exists():
        raise UsageError(Problem(code="no-such-file", path=str(path), message="no such file or directory", hint=hint))
    if path.is_dir():
        for root in (path / "src", path):
            if (root / "megatron" / package).is_dir():
                yield _tree(root, package, path, is_checkout=True)
                return
        raise _not_a(path, f"the directory holds neither src/megatron/{package} nor megatron/{package}", hint)
    with tempfile.TemporaryDirectory(prefix="autorecipe-tree-") as temporary:
        root = Path(temporary)
        _unpack(path, root, hint)
        if not (root / "megatron" / package).is_dir():
            raise _not_a(path, f"the archive holds no megatron/{package}", hint)
        yield _tree(root, package, path, is_checkout=False)


def _tree(root: Path, package: str, given: Path, *, is_checkout: bool) -> Tree:
    digest = digest_tree(root / "megatron" / package)
    stated = _wheel_release(root) or _stated_release(root / "megatron" / package) or "0.0.0"
    is_unpacked_wheel = _wheel_release(root) is not None
    release = f"{stated}+local.{digest[:8]}" if is_checkout and not is_unpacked_wheel else stated
    return Tree(directory=root.resolve(), release=release, digest=digest, origin=str(given))


def _unpack(path: Path, root: Path, hint: str) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
            if damaged is not None:
                raise _corrupt(path, f"{damaged} is damaged", hint)
            for info in archive.infolist():
                target = (root / info.filename).resolve()
                if not target.is_relative_to(root.resolve()):
                    raise _corrupt(path, f"{info.filename!r} points outside the archive", hint)
                if info.is_dir():
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(info) as source, target.open("wb") as destination:
                    shutil.copyfileobj(source, destination)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError) as error:
        if isinstance(error, OSError) and not isinstance(error, FileExistsError | IsADirectoryError):
            raise EnvironmentProblem(Problem(code="unreadable", path=str(path), message=str(error))) from None
        raise _corrupt(path, str(error), hint) from None


def digest_tree(directory: Path) -> str:
    """Return the SHA-256 over names and contents of every file, compiled files left out."""
    total = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".pyc", ".so"):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{path.relative_to(directory).as_posix()} {content}\n".encode())
    return total.hexdigest()


def _wheel_release(root: Path) -> str | None:
    for metadata in sorted(root.glob("megatron_*.dist-info/METADATA")):
        match = re.search(r"^Version: (\S+)$", metadata.read_text(encoding="utf-8"), re.MULTILINE)
        if match:
            return match[1]
    return None


def _stated_release(package: Path) -> str | None:
    """Read `package_info.py` without running it."""
    path = package / "package_info.py"
    if not path.is_file():
        return None
    text = path.read_text(encoding="utf-8")
    numbers = [re.search(rf"^{name} = (\d+)$", text, re.MULTILINE) for name in ("MAJOR", "MINOR", "PATCH")]
    if not all(numbers):
        return None
    suffix = re.search(r"""^PRE_RELEASE = ["']([^"']*)["']$""", text, re.MULTILINE)
    return ".".join(match[1] for match in numbers if match) + (suffix[1] if suffix else "")


def _not_a(path: Path, why: str, hint: str) -> EnvironmentProblem:
    return EnvironmentProblem(Problem(code="wrong-tree", path=str(path), message=why, hint=hint))


def _corrupt(path: Path, why: str, hint: str) -> EnvironmentProblem:
    return EnvironmentProblem(Problem(code="corrupt-archive", path=str(path), message=f"not a readable wheel: {why}", hint=hint))
