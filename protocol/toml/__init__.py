"""Files of TOML, read with all their faults at once, each with its line.

```python
problems = Problems("example.toml", limit=100)
top = FileTable(problems, (), read_toml("retrys = 3", problems, size=1024, depth=4))
top.take("retries", count, 1)
top.finish()
problems.check()  # FileError: example.toml:1: retrys: unknown key; ... did you mean 'retries'?
```
"""

from ._errors import FileError, Position, Problem
from ._fields import FileTable, Problems
from ._locate import Path, path_text
from ._nearest import nearest, suggestion
from ._read import read_toml
from ._values import (
    count,
    finite_number,
    flag,
    one_of,
    positive_seconds,
    seconds,
    shown,
    size,
    table,
    text,
    texts,
)

__all__ = [
    "FileError",
    "FileTable",
    "Path",
    "Position",
    "Problem",
    "Problems",
    "count",
    "finite_number",
    "flag",
    "nearest",
    "one_of",
    "path_text",
    "positive_seconds",
    "read_toml",
    "seconds",
    "shown",
    "size",
    "suggestion",
    "table",
    "text",
    "texts",
]
