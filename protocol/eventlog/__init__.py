"""The event log: what a node or broker records of what it routes. Pure: bytes in, records out.

A log is a folder of *segments*. Each can be read alone: it begins with a header, defines the
names, route ids and tag sets that its records refer to, and ends with a footer.

```python
segment = read_segment(path.read_bytes())
for hop in segment.hops():
    print(segment.header.broker, hop.seq, hop.latency_us)
```
"""

from ._blocks import (
    MAX_BLOCK,
    MAX_NAME,
    MAX_NAMES,
    MAX_ROUTES,
    MAX_TAGSETS,
    ROUTE_SIZE,
    block,
    block_header,
    clip_name,
    events_block,
    flows_block,
    hops_block,
    names_block,
    routes_block,
    tagsets_block,
)
from ._errors import EventLogError, SegmentCorrupt, SegmentNewer, SegmentUnfinished
from ._header import (
    LOG_ID_SIZE,
    MAGIC,
    MAX_FOOTER,
    MAX_HEADER,
    VERSION,
    SegmentFooter,
    SegmentHeader,
    read_footer,
    read_header,
)
from ._ids import asked_tags_text, asked_text, carried_tags_text, name_id, route_key, tagset_id
from ._mark import LOG_KEY, MAX_LOG_HOP, MAX_LOG_WEIGHT, LogMark, log_mark_of, with_log_mark
from ._records import (
    FLOW,
    HOP,
    PEER_BROKER,
    Asked,
    EventName,
    Flag,
    Flow,
    Hop,
    Kind,
    Outcome,
    RouteEvent,
)
from ._recover import Recovered, recover
from ._sampling import sampled, threshold_of, weight_of_rate
from ._scan import RecordBlock
from ._segment import Segment, read_segment
from ._segment_names import (
    MAX_EPOCH,
    MAX_LOG_NAME,
    OPEN,
    SEALED,
    check_log_name,
    is_log_name,
    is_segment_name,
    parse_segment_name,
    segment_name,
)

__all__ = [
    "FLOW",
    "HOP",
    "LOG_ID_SIZE",
    "LOG_KEY",
    "MAGIC",
    "MAX_BLOCK",
    "MAX_EPOCH",
    "MAX_FOOTER",
    "MAX_HEADER",
    "MAX_LOG_HOP",
    "MAX_LOG_NAME",
    "MAX_LOG_WEIGHT",
    "MAX_NAME",
    "MAX_NAMES",
    "MAX_ROUTES",
    "MAX_TAGSETS",
    "OPEN",
    "PEER_BROKER",
    "ROUTE_SIZE",
    "SEALED",
    "VERSION",
    "Asked",
    "EventLogError",
    "EventName",
    "Flag",
    "Flow",
    "Hop",
    "Kind",
    "LogMark",
    "Outcome",
    "RecordBlock",
    "Recovered",
    "RouteEvent",
    "Segment",
    "SegmentCorrupt",
    "SegmentFooter",
    "SegmentHeader",
    "SegmentNewer",
    "SegmentUnfinished",
    "asked_tags_text",
    "asked_text",
    "block",
    "block_header",
    "carried_tags_text",
    "check_log_name",
    "clip_name",
    "events_block",
    "flows_block",
    "hops_block",
    "is_log_name",
    "is_segment_name",
    "log_mark_of",
    "name_id",
    "names_block",
    "parse_segment_name",
    "read_footer",
    "read_header",
    "read_segment",
    "recover",
    "route_key",
    "routes_block",
    "sampled",
    "segment_name",
    "tagset_id",
    "tagsets_block",
    "threshold_of",
    "weight_of_rate",
    "with_log_mark",
]
