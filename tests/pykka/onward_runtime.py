"""What is put into the `conftest` of Pykka's own tests: our two kinds of actor.

Imported by a copy of Pykka's tests in a process of its own, never by ours.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from onward.actors import LoopFuture, ThreadWorker, Worker


def add_to(runtimes: dict[str, Any], runtime_class: Any) -> None:
    """Add `Worker` and `ThreadWorker` to the runtimes Pykka's tests are run with."""
    for actor_class in (Worker, ThreadWorker):
        name = f"onward-{actor_class.__name__}"
        runtime = runtime_class(
            name=name,
            actor_class=actor_class,
            event_class=threading.Event,
            future_class=LoopFuture,
            sleep_func=time.sleep,
        )
        runtimes[name] = pytest.param(runtime, id=name)
