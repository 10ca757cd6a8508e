"""A conformance suite for transports of this package and your own.

From a test file, for pytest:

```python
from onward.transports.testing import Claims, conformance

test_mine = conformance("mine://{tmp}/{n}", Claims(threads=False), transport=MineTransport)
```

From the command line, with a table and an exit status:

```
python -m onward.transports.testing tcp://127.0.0.1:0
```
"""

from ._case import Case
from ._claims import Claims, Raw
from ._known import known_claims
from ._run import CASES, CaseOutcome, LoopFactory, Report, conformance, run_case, run_suite
from ._stage import Stage

__all__ = [
    "CASES",
    "Case",
    "CaseOutcome",
    "Claims",
    "LoopFactory",
    "Raw",
    "Report",
    "Stage",
    "conformance",
    "known_claims",
    "run_case",
    "run_suite",
]
