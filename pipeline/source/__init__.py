"""The data source `onward`: event logs as tables, for batches and streams.

```python
flows = spark.read.format("onward").option("table", "flows").load("/var/log/onward")
```
"""

from ._arrow import arrow_schema
from ._decode import MAX_ROWS, decode, decode_batches
from ._options import columns_of
from ._reading import MAX_FILES, PACK_BYTES, load_segment, pack
from ._source import EventLogReader, EventLogSource, register
from ._stream import EventLogStream

__all__ = [
    "MAX_FILES",
    "MAX_ROWS",
    "PACK_BYTES",
    "EventLogReader",
    "EventLogSource",
    "EventLogStream",
    "arrow_schema",
    "columns_of",
    "decode",
    "decode_batches",
    "load_segment",
    "pack",
    "register",
]
