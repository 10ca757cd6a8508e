"""The event log of a node or broker: recorded on the loop, written by a thread."""

from ._counts import LogWriterStatistics
from ._errors import LogInUse
from ._options import Fsync, LogOptions
from ._recorder import Recorder
from ._sink import Receipt
from ._statistics import RecorderStatistics
from ._worker import EventLog, EventLogStatistics
from ._writer import LogWriter

__all__ = [
    "EventLog",
    "EventLogStatistics",
    "Fsync",
    "LogInUse",
    "LogOptions",
    "LogWriter",
    "LogWriterStatistics",
    "Receipt",
    "Recorder",
    "RecorderStatistics",
]
