"""`python -m onward.cli` is the `onward` command."""

from __future__ import annotations

import sys

from ._start import main

if __name__ == "__main__":
    sys.exit(main())
