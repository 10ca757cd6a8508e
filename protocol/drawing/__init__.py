"""Pictures of boxes and arrows as SVG: topologies, and the surroundings of a broker. Pure.

```python
boxes = [Box("near", [Row("client", "Worker")]), Box("far")]
svg = draw(lay_out("Two nodes", boxes, [Arrow("near", "far", "link · tcp")]))
```
"""

from ._picture import (
    HEAD,
    Arrow,
    Box,
    Label,
    Picture,
    Row,
    lay_out,
    points,
    shortened,
)
from ._svg import draw
from ._svg_page import escaped, page

__all__ = [
    "HEAD",
    "Arrow",
    "Box",
    "Label",
    "Picture",
    "Row",
    "draw",
    "escaped",
    "lay_out",
    "page",
    "points",
    "shortened",
]
