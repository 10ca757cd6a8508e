"""See whether there is a Java that Spark could run on: `python tools/check_java.py`.

Runs under whatever Python the machine has, before anything is installed: the module of the pipeline
that knows needs nothing but the standard library.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

MODULE = Path(__file__).resolve().parent.parent / "pipeline" / "_java.py"


def main() -> int:
    """Print what is missing, and return the exit status."""
    spec = importlib.util.spec_from_file_location("_java", MODULE)
    assert spec is not None
    assert spec.loader is not None
    java: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(java)
    try:
        java.find_java()
    except java.JavaMissing as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
