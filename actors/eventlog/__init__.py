"""The event log of a node or broker: recorded on the loop, written by a thread."""

from ._options import Fsync, LogOptions
from ._statistics import EventLogStatistics, LogWriterStatistics, RecorderStatistics
from ._worker import EventLog
from .recording._recorder import Recorder
from .storage._files import LogInUse
from .storage._writer import LogWriter

__all__ = [
    "EventLog",
    "EventLogStatistics",
    "Fsync",
    "LogInUse",
    "LogOptions",
    "LogWriter",
    "LogWriterStatistics",
    "Recorder",
    "RecorderStatistics",
]
