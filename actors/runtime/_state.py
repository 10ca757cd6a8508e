"""The states of a worker.

```
NEW ──▶ BUSY ◀──▶ RUNNING ──▶ STOPPING ──▶ STOPPED
 │        └───────────────────────▲             ▲
 └────────────────────────────────┴─────────────┘
```

Plain numbers: the state is compared before every turn.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BUSY", "NAMES", "NEW", "RUNNING", "STOPPED", "STOPPING"]

NEW: Final = 0
"""`on_start` is still to be called, as the first turn."""

RUNNING: Final = 1
"""The worker handles messages."""

BUSY: Final = 2
"""A coroutine of the worker, or a start or restart of it, is under way."""

STOPPING: Final = 3
"""Children are stopping, or `on_stop` is running."""

STOPPED: Final = 4
"""The worker is removed from the table and accepts no messages."""

NAMES: Final = ("starting", "idle", "busy", "stopping", "stopped")
