"""One check for all classes of options: of what type a field is, and in what range.

The types are those of the annotations, and the ranges stand beside them:

```python
@dataclass(frozen=True, slots=True)
class QueueOptions:
    limit: Count = 1000
    patience: Seconds | None = 5.0
    overflow: Overflow = Overflow.FAIL

    def __post_init__(self) -> None:
        check_options(self)
```

`QueueOptions(limit=0)` raises `ValueError`: "QueueOptions.limit must be a whole number of at least
1, not 0". Options of a transport of one's own are checked the same way.
"""

from ._check import check_options, check_value
from ._kinds import fold, spelling
from ._ranges import Count, Probability, Range, Seconds, SecondsOrZero, Size
from ._timeouts import check_timeout

__all__ = [
    "Count",
    "Probability",
    "Range",
    "Seconds",
    "SecondsOrZero",
    "Size",
    "check_options",
    "check_timeout",
    "check_value",
    "fold",
    "spelling",
]
