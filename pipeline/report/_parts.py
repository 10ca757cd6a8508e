"""The parts of the page as HTML: tables, paths, tiles. Each function escapes its texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ._text import amount, html

__all__ = ["more", "none", "note", "plot", "table", "tile", "way"]


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()
) -> str:
    """Return a table. The cells are HTML already; `numbers` are the indexes of numeric columns."""
    right = set(numbers)

    def cells(kind: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{kind}{' class=n' if place in right else ' class=t'}>{cell}</{kind}>"
            for place, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    head = cells("th", [html(each) for each in headings])
    inner = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f"<div class=scroll><table>{inner}</table></div>"


def plot(name: str, *, wide: bool = False) -> str:
    """Return the element of a plot; a wide one can be scrolled on a narrow screen."""
    place = f'<div class=plot id="plot-{html(name)}"></div>'
    return f'<div class="scroll wide">{place}</div>' if wide else place


def tile(label: str, value: str, *, bad: bool = False) -> str:
    """Return a tile with one of the day's totals."""
    mark = " bad" if bad else ""
    return f'<div class="tile{mark}"><b>{html(value)}</b><span>{html(label)}</span></div>'


def note(text: str) -> str:
    """Return the paragraph that explains a section."""
    return f"<p class=see>{html(text)}</p>"


def none(text: str) -> str:
    """Return the line of an empty section."""
    return f"<p class=none>{html(text)}</p>"


def more(number: int, one: str, many: str, rest: str = "") -> str:
    """Return a line with the number of items that are not shown; empty if all are.

    Args:
        number: The number of items.
        one: The noun for one item.
        many: The noun for several items.
        rest: Text after the noun.
    """
    what = one if number == 1 else many
    return f"<p class=more>and {amount(number)} more {html(what + rest)}</p>" if number > 0 else ""


def way(path: Sequence[str], *, lost: bool = False) -> str:
    """Return a path as names with arrows between; a repeated name is marked."""
    seen: set[str] = set()
    parts: list[str] = []
    for name in path:
        again = " class=again" if name in seen else ""
        seen.add(name)
        parts.append(f"<span{again}>{html(name)}</span>")
    end = " <i class=end>→ nothing</i>" if lost else ""
    return f"<div class=way>{' <i>→</i> '.join(parts)}{end}</div>"
