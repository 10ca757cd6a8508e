"""The jobs of the command `onward pipeline`; only they read and write tables."""

from ._audit import run_audit
from ._index import LogsOf, run_index, run_index_of_log, run_verify
from ._progress import JobStage, Progress, Silent, stage
from ._replay import Gates, Rehearsed, ReplayMethods, run_replay
from ._reports import AUDIT_AHEAD, AUDIT_DAYS, EVENT_DAYS, REPORTS, Day, bounds
from ._run import FORMATS, Format, Reported, names_of, replay_tables, run_report
from ._tables import MAX_SHOWN, Shown, flattened, shown
from ._utc import NotUtc, in_utc

__all__ = [
    "AUDIT_AHEAD",
    "AUDIT_DAYS",
    "EVENT_DAYS",
    "FORMATS",
    "MAX_SHOWN",
    "REPORTS",
    "Day",
    "Format",
    "Gates",
    "JobStage",
    "LogsOf",
    "NotUtc",
    "Progress",
    "Rehearsed",
    "ReplayMethods",
    "Reported",
    "Shown",
    "Silent",
    "bounds",
    "flattened",
    "in_utc",
    "names_of",
    "replay_tables",
    "run_audit",
    "run_index",
    "run_index_of_log",
    "run_replay",
    "run_report",
    "run_verify",
    "shown",
    "stage",
]
