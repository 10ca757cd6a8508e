"""The metrics of the process, by the names that all Prometheus clients give them."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

from ...protocol.metrics import PROCESS, Metric, MetricFamily
from ...protocol.rsocket import Connection
from .._reloads import Reloads
from ._health import HealthChecks, Stage
from ._lag import LoopLag

__all__ = [
    "HEALTH_FAMILIES",
    "PROCESSES_FAMILIES",
    "PROCESS_FAMILIES",
    "RELOAD_FAMILIES",
    "health_metrics",
    "process_metrics",
    "processes_metrics",
    "reload_metrics",
]

_BUILD = MetricFamily(
    "onward_build_info",
    "gauge",
    "Always 1, with the version of Onward and of Python, and whether the hot path is compiled.",
    ("version", "python", "compiled"),
    across="max",
)
_STARTED = MetricFamily(
    "onward_start_time_seconds",
    "gauge",
    "The time at which the monitor was started, in seconds since 1970.",
    across="min",
)
_LAG = MetricFamily(
    "onward_loop_lag_seconds",
    "histogram",
    "How late a timer was called that is due every 0.5 s.",
)
_CPU = MetricFamily(
    "process_cpu_seconds_total",
    "counter",
    "User and system processor time of the process.",
    across="process",
)
_RESIDENT = MetricFamily(
    "process_resident_memory_bytes", "gauge", "Resident memory.", across="process"
)
_VIRTUAL = MetricFamily(
    "process_virtual_memory_bytes", "gauge", "Virtual memory.", across="process"
)
_OPEN = MetricFamily("process_open_fds", "gauge", "Open file descriptors.", across="process")
_MOST = MetricFamily(
    "process_max_fds", "gauge", "The maximum number of open file descriptors.", across="process"
)
_BEGAN = MetricFamily(
    "process_start_time_seconds",
    "gauge",
    "The time at which the process was started, in seconds since 1970.",
    across="process",
)

_RELOADED = MetricFamily(
    "onward_config_last_reload_successful",
    "gauge",
    "Whether the last reload was applied: 1, also before the first one, or 0.",
    across="min",
)
_RELOADS = MetricFamily(
    "onward_config_reloads_total", "counter", "Reloads, applied or refused.", ("result",), "max"
)

_APPLIED = MetricFamily(
    "onward_config_last_reload_success_timestamp_seconds",
    "gauge",
    "The time of the last reload that was applied, or of the start, in seconds since 1970.",
    across="min",
)

_HEALTHY = MetricFamily(
    "onward_healthy",
    "gauge",
    "Whether all health checks of a stage have passed: live, started, ready.",
    ("stage",),
    "min",
)

_UP = MetricFamily(
    "onward_process_up",
    "gauge",
    "Of a broker with several processes: whether a process has answered: 1, or 0. Without an "
    "answer its gauges are missing, and its counters are those of the last one.",
    (PROCESS,),
)
_ENDS = MetricFamily(
    "onward_process_ends_total", "counter", "How often a process has ended.", (PROCESS,)
)
_FAULTS = MetricFamily(
    "onward_process_event_faults_total",
    "counter",
    "How often the events of a process could not be read, and some were lost.",
    (PROCESS,),
)
_REFUSED = MetricFamily(
    "onward_process_questions_refused_total",
    "counter",
    "Requests of the admin interface for which the processes were not asked, as too many were in "
    "hand: of the client, of all that are anonymous, or of all.",
    ("reason",),
)

HEALTH_FAMILIES: Final = (_HEALTHY,)

PROCESSES_FAMILIES: Final = (_UP, _ENDS, _FAULTS, _REFUSED)

RELOAD_FAMILIES: Final = (_RELOADED, _APPLIED, _RELOADS)

PROCESS_FAMILIES: Final = (
    _BUILD,
    _STARTED,
    _LAG,
    _CPU,
    _RESIDENT,
    _VIRTUAL,
    _OPEN,
    _MOST,
    _BEGAN,
)


def process_metrics(started: float, lag: LoopLag) -> Iterator[Metric]:
    """Yield the metrics of the process. Those of `/proc` are missing on other systems.

    Args:
        started: The time at which the monitor was started.
        lag: The lag of the loop.
    """
    compiled = not str(sys.modules[Connection.__module__].__file__).endswith(".py")
    python = ".".join(str(each) for each in sys.version_info[:3])
    yield Metric(_BUILD, (((version("onward"), python, str(compiled).lower()), 1),))
    yield Metric(_STARTED, (((), started),))
    yield Metric(_LAG, (((), lag.histogram.read()),))
    times = os.times()
    yield Metric(_CPU, (((), times.user + times.system),))
    yield Metric(_MOST, (((), resource.getrlimit(resource.RLIMIT_NOFILE)[0]),))
    with contextlib.suppress(OSError, ValueError, IndexError):
        yield Metric(_OPEN, (((), len(os.listdir("/proc/self/fd"))),))  # noqa: PTH208 - the fastest
    with contextlib.suppress(OSError, ValueError, IndexError):
        # proc(5): after the name in parentheses; starttime is the 22nd field, vsize the 23rd, in
        # bytes, and rss the 24th, in pages.
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        yield Metric(_VIRTUAL, (((), int(fields[20])),))
        yield Metric(_RESIDENT, (((), int(fields[21]) * os.sysconf("SC_PAGE_SIZE")),))
        yield Metric(_BEGAN, (((), _started_at(int(fields[19]))),))


def _started_at(ticks: int) -> float:
    """Return a time since 1970 for one in clock ticks since the start of the system."""
    since = ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since


def health_metrics(checks: HealthChecks) -> Iterator[Metric]:
    """Yield whether the checks of each stage have passed."""
    yield Metric(
        _HEALTHY,
        tuple(((stage.value,), all(each.passed for each in checks.run(stage))) for stage in Stage),
    )


def reload_metrics(reloads: Reloads) -> Iterator[Metric]:
    """Yield the metrics of reloads."""
    figures = reloads.statistics()
    yield Metric(_RELOADED, (((), not figures.error),))
    yield Metric(_APPLIED, (((), figures.applied),))
    yield Metric(_RELOADS, ((("applied",), figures.done), (("refused",), figures.failed)))


def processes_metrics(
    up: Mapping[int, bool],
    ends: Mapping[int, int],
    faults: Mapping[int, int],
    refused: Mapping[str, int],
) -> Iterator[Metric]:
    """Yield the metrics of the processes of a broker.

    Args:
        up: Whether each process has answered, by its number.
        ends: How often each has ended.
        faults: How often its events could not be read.
        refused: The requests that were refused as too many were in hand, by reason.
    """
    yield Metric(_UP, tuple(((str(number),), answered) for number, answered in up.items()))
    yield Metric(_ENDS, tuple(((str(number),), count) for number, count in ends.items()))
    yield Metric(_FAULTS, tuple(((str(number),), count) for number, count in faults.items()))
    yield Metric(_REFUSED, tuple(((reason,), count) for reason, count in refused.items()))
