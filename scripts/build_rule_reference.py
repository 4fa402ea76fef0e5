"""Write docs/reference/rules.md from the declared rules: `python scripts/build_rule_reference.py [--check]`."""

from __future__ import annotations

import sys
from pathlib import Path

from autorecipe.rules.pages import render_reference

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "rules.md"


def main() -> int:
    """Write the page, or with --check say whether it is up to date."""
    text = render_reference()
    if "--check" in sys.argv[1:]:
        current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        if current != text:
            print(f"{PAGE} is out of date: run python {Path(__file__).name}", file=sys.stderr)
            return 1
        return 0
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
