"""Rehearsals: logged requests resolved again with another table or another method.

A rehearsal resolves each request of an event log twice, by the code that a broker runs: with the
current table and methods, and with the candidates. A request that gets another route is *moved*,
one that no longer has a route is *lost*, and one that has a route only now is *gained*.

```python
with replay(spark, hops, tagsets, "now.onwx", "then.onwx", shard_new="jump") as result:
    print(result.totals, check_gates(result.totals, max_moved=0.1, fail_if_lost=True))
    result.summary.show()
```
"""

from ._gates import MIN_SAMPLES_EACH, GateFailed, ReplayTotals, check_gates
from ._memo import MAX_PART_BYTES, MAX_REMEMBERED_BYTES, MAX_REMEMBERED_SETS
from ._questions import MethodSet, Question, read_question
from ._rehearsal import Rehearsal, RehearsalPlan
from ._replay import MAX_SENT_BYTES, MAX_SENT_SETS, ReplayResult, frames_of, replay
from ._resolver import Resolver, Standing
from ._tables import MAX_TABLES, OpenTable, open_table
from ._turns import turn_of

__all__ = [
    "MAX_PART_BYTES",
    "MAX_REMEMBERED_BYTES",
    "MAX_REMEMBERED_SETS",
    "MAX_SENT_BYTES",
    "MAX_SENT_SETS",
    "MAX_TABLES",
    "MIN_SAMPLES_EACH",
    "GateFailed",
    "MethodSet",
    "OpenTable",
    "Question",
    "Rehearsal",
    "RehearsalPlan",
    "ReplayResult",
    "ReplayTotals",
    "Resolver",
    "Standing",
    "check_gates",
    "frames_of",
    "open_table",
    "read_question",
    "replay",
    "turn_of",
]
