"""Acknowledgement of read segments to the logs, which delete those first."""

from __future__ import annotations

import logging
from pathlib import Path

from ._files import write_json
from ._state import LakeState

__all__ = ["acknowledge"]

_log = logging.getLogger(__name__)


def acknowledge(log: Path, query: str, state: LakeState) -> None:
    """Write `.acks/<query>.json` into each broker's folder that still exists.

    A log that cannot be written to keeps its segments by age and bytes alone. This is logged and
    is no error.
    """
    for name, broker in state.brokers.items():
        folder = log / name
        if not (broker.segment and folder.is_dir()):
            continue
        try:
            write_json(folder / ".acks" / f"{query}.json", {"segment": broker.segment})
        except OSError as error:
            _log.warning("%s: what was read cannot be acknowledged: %s", folder, error.strerror)
