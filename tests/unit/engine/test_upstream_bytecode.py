from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from pathlib import Path
from autorecipe.engine.upstream.bytecode import keep_out_of
tree, folder = Path(sys.argv[1]), Path(sys.argv[2])
sys.path[:0] = [str(tree)]
keep_out_of([tree], folder)
import pack.inside
print(pack.inside.VALUE, pack.inside.__file__)
"""


def test_bytecode_of_a_tree_is_kept_elsewhere_and_used_again(tmp_path: Path) -> None:
    tree, folder = tmp_path / "tree", tmp_path / "cache"
    (tree / "pack").mkdir(parents=True)
    (tree / "pack" / "__init__.py").touch()
    (tree / "pack" / "inside.py").write_text("VALUE = 41\n")
    before = sorted(path.relative_to(tree) for path in tree.rglob("*"))
    for _ in range(2):
        done = run(tree, folder)
        assert done.stdout.split() == ["41", str(tree / "pack" / "inside.py")], done.stderr
    assert sorted(path.relative_to(tree) for path in tree.rglob("*")) == before
    kept = [path for path in folder.rglob("*.pyc") if path.name.startswith("inside.")]
    assert len(kept) == 1
    (tree / "pack" / "inside.py").write_text("VALUE = 4200\n")
    assert run(tree, folder).stdout.split()[0] == "4200"


def run(tree: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", SCRIPT, str(tree), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
