"""The virtual loop, by the name under which most tests have it."""

from __future__ import annotations

from onward.actors.testing import Deadlock, VirtualLoop, run_virtual, virtual_time

__all__ = ["Deadlock", "VirtualLoop", "run_virtual", "virtual_time"]
