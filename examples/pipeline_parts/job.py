"""The pipeline for spark-submit: `spark-submit ... job.py report --lake ... --day 2026-11-20`."""

from __future__ import annotations

import sys

from onward.cli import main

if __name__ == "__main__":
    sys.exit(main(["pipeline", *sys.argv[1:]]))
