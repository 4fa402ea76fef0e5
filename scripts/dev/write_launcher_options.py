#!/usr/bin/env python3
"""Write docs/reference/launcher-options.md from the parsers of the programs in scripts/. `--check` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # this checkout, not one that is installed

from autorecipe.cli.programs.reference import render_reference

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "launcher-options.md"


def main() -> int:
    """Write the page, or say whether it is up to date."""
    text = render_reference()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
