"""The sections of the page, each with its HTML and its plots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from ._page import Page
from ._page_audit import Audit, AuditRow
from ._page_requests import Burn, Demand, Latency, Matrix
from ._page_routes import Anomalies, Churn, Replay, Shards
from ._parts import more, none, note, plot, table, way
from ._plots import Figure
from ._plots_requests import (
    MAX_BURNS,
    burn_figure,
    demand_figure,
    lines_figure,
    matrix_figure,
    ranges_figure,
)
from ._plots_routes import churn_figure, replay_figure, shards_figure
from ._text import amount, clock, duration, html, share, short

__all__ = ["Section", "sections_of"]


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page.

    Attributes:
        name: The anchor that links refer to.
        title: The heading.
        body: The HTML.
        figures: The plots, by the ids of their elements.
    """

    name: str
    title: str
    body: str
    figures: Mapping[str, Figure] = field(default_factory=dict[str, Figure])


def sections_of(page: Page) -> list[Section]:
    """Return the requested sections, in the order of the page."""
    found: list[Section] = []
    if page.matrix is not None:
        found.append(_matrix(page.matrix, page.totals.untagged))
    if page.latency is not None:
        found.append(_latency(page.latency, page.totals.untagged))
    if page.burns is not None:
        found.append(_burns(page.burns))
    if page.demand is not None:
        found.append(_demand(page.demand))
    if page.shards is not None:
        found.append(_shards(page.shards))
    if page.churn is not None:
        found.append(_churn(page.churn))
    if page.paths is not None:
        found.append(_paths(page.paths))
    if page.replay is not None:
        found.append(_replay(page.replay))
    if page.audit is not None:
        found.append(_audit(page.audit))
    found.append(_logs(page))
    return found


def _matrix(matrix: Matrix, untagged: int) -> Section:
    body = note(
        "Requests through brokers: rows have asked, columns were asked; the more, the stronger the "
        "colour. A triangle marks where some failed. All count here, not only those that are "
        "sampled."
    ) + _untagged(untagged)
    if not matrix.origins:
        return Section(
            "traffic", "Traffic between services", body + none("Nothing was sent on this day.")
        )
    body += plot("matrix", wide=len(matrix.dests) > 5)
    body += more(matrix.more, "pair", "pairs", f", with {_counted(matrix.more_frames, 'frame')}")
    return Section("traffic", "Traffic between services", body, {"matrix": matrix_figure(matrix)})


def _untagged(count: int) -> str:
    if not count:
        return ""
    return note(
        f"Without tags in the log: {_counted(count, 'request')}. The tags were too long, too many, "
        "or could not be read. Such requests count in the figures at the top, and are not in here."
    )


def _latency(latency: Latency, untagged: int) -> Section:
    title = "How long it took"
    body = note(
        "From the first frame of a request to its end, as the broker saw it. Look for a gap "
        "between half and 99 %: it is what waiting looks like."
    ) + _untagged(untagged)
    if not latency.lines:
        return Section("latency", title, body + none("No request of this day was sampled."))
    options = "".join(
        f"<option value={number}>{html(short(line.dest, 48))}</option>"
        for number, line in enumerate(latency.lines)
    )
    minutes = "minute" if latency.minutes == 1 else f"{latency.minutes} minutes"
    body += (
        "<div class=pair><div><h3>The whole day, by destination</h3>"
        f"{plot('ranges')}</div><div><h3>Over time, for each {minutes}: "
        f"<select data-plot=lines aria-label=Destination>{options}</select></h3>"
        f"{plot('lines')}</div></div>" + more(latency.more, "destination", "destinations")
    )
    figures = {"ranges": ranges_figure(latency), "lines": lines_figure(latency)}
    return Section("latency", title, body, figures)


def _burns(burns: tuple[Burn, ...]) -> Section:
    title = "Objectives"
    body = note(
        "How fast each objective uses up what it allows to go wrong. At 1 the budget lasts exactly "
        "as long as it should; above the dashed line it will not."
    )
    if not burns:
        text = "No objective was given: onward pipeline report --slo NAME:SERVICE:MS:TARGET"
        return Section("slo", title, body + none(text))
    rows = [
        (
            html(burn.objective),
            amount(burn.total),
            _bad(amount(burn.total - burn.good), burn.total > burn.good),
            share(burn.good, burn.total),
            _worst(burn.burn_1h),
        )
        for burn in burns
    ]
    headings = ("Objective", "Requests", "Missed it", "Met it", "Worst hour, \u00d7 budget")
    body += table(headings, rows, range(1, 5))
    drawn = burns[:MAX_BURNS]
    body += plot("burn") + more(
        len(burns) - len(drawn), "objective", "objectives", " in the table only"
    )
    return Section("slo", title, body, {"burn": burn_figure(drawn)})


def _worst(values: tuple[float | None, ...]) -> str:
    known = [value for value in values if value is not None]
    return _bad(f"{max(known):.2f}", max(known) > 1) if known else "\u2013"


def _demand(demand: Demand) -> Section:
    title = "Asked for, and not found"
    body = note(
        "Requests that no destination could take. The nearest tags are the largest part of what "
        "was asked that some destination did carry: what is left out of them is what was missing."
    )
    if not demand.rows:
        return Section(
            "unroutable", title, body + none("Everything that was asked for had a route.")
        )
    rows = [
        (
            f"<code>{html(row.tagset)}</code>",
            f"<code>{html(row.nearest)}</code>" if row.nearest else "none of them",
            amount(row.frames),
            f"{clock(row.first)} \u2013 {clock(row.last)}",
        )
        for row in demand.rows
    ]
    headings = ("Asked for", "Nearest that had a route", "Requests", "From \u2013 to, UTC")
    body += plot("demand") + table(headings, rows, (2, 3))
    body += more(
        demand.more, "tag set", "tag sets", f", with {_counted(demand.more_frames, 'request')}"
    )
    return Section("unroutable", title, body, {"demand": demand_figure(demand)})


def _shards(shards: Shards) -> Section:
    title = "How even the shards are"
    body = note(
        "The part of each route in what was asked by shard; the mark is an even part. Orange has "
        "more than one and a half of that. Keys appear as hashes only: they are never recorded."
    )
    if not shards.shards:
        return Section("shards", title, body + none("Nothing was asked for by shard."))
    keys = [
        (
            f"<code>{html(key.key)}</code>",
            f"<code>{html(key.tagset)}</code>",
            amount(key.frames),
            share(key.share, 1),
        )
        for key in shards.keys
    ]
    hot = (
        table(("Key (hash)", "Asked for", "Frames", "Part, worst hour"), keys, (2, 3))
        if keys
        else none("No key was sampled.")
    )
    body += (
        f"<div class=pair><div><h3>Load by route</h3>{plot('shards')}"
        f"{more(shards.more, 'route', 'routes')}</div><div><h3>Hot keys</h3>{hot}</div></div>"
    )
    return Section("shards", title, body, {"shards": shards_figure(shards)})


def _churn(churn: Churn) -> Section:
    title = "Destinations that came and went"
    body = note(
        "Destinations that registered (up) and left (down) in each hour. A diamond is one that was "
        "back soon: a restart, or a connection that does not hold."
    )
    if not churn.hours:
        return Section("churn", title, body + none("No destination came or went."))
    rows = [
        (
            html(row.service or "\u2013"),
            f"<code>{html(row.route)}</code>",
            amount(row.ups),
            amount(row.downs),
            _bad(amount(row.flaps), row.flaps > 0),
            "\u2013" if row.life is None else duration(row.life * 1_000_000),
        )
        for row in churn.rows
    ]
    headings = ("Service", "Route", "Came", "Went", "Soon back", "Stayed (median)")
    body += (
        plot("churn")
        + table(headings, rows, range(2, 6))
        + more(churn.more, "destination", "destinations")
    )
    return Section("churn", title, body, {"churn": churn_figure(churn)})


_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {"loop": "Loop", "black_hole": "Black hole", "return_asymmetry": "Other way back"}
)


def _paths(paths: Anomalies) -> Section:
    title = "Ways that went wrong, and ways most taken"
    body = note(
        "From the hops of sampled messages. A loop comes to the same place twice; a black hole is "
        "a message that was handed on and never heard of again."
    )
    if not (paths.rows or paths.paths):
        return Section("paths", title, body + none("No message of this day was sampled."))
    if paths.rows:
        rows = [
            (
                f"<span class=tag>{html(_KINDS.get(row.kind, row.kind))}</span>",
                way(row.path, lost=row.kind == "black_hole"),
                amount(row.traces),
                f"<code>{html(row.example)}</code>",
            )
            for row in paths.rows
        ]
        body += table(("What", "Way", "Messages", "One of them"), rows, (2, 3))
        body += more(paths.more, "way", "ways", " that went wrong")
    else:
        body += none("No loop, no black hole.")
    taken = [
        (way(row.path), amount(row.traces), "\u2013" if row.p95 is None else duration(row.p95))
        for row in paths.paths
    ]
    if taken:
        body += "<h3>Most taken</h3>" + table(("Way", "Messages", "95 % within"), taken, (1, 2))
        body += more(paths.more_paths, "way", "ways")
    return Section("paths", title, body)


def _replay(replay: Replay) -> Section:
    title = "What the change would do"
    body = note(
        "The day's sampled traffic, resolved once more by the broker's own code, with the table or "
        "the method as it would be."
    )
    if replay.about:
        body += f"<p>{html(replay.about)}</p>"
    if not replay.frames:
        return Section("replay", title, body + none("There was no traffic to rehearse with."))
    lost = _bad(amount(replay.lost), replay.lost > 0)
    body += (
        f"<p>Of {_counted(replay.frames, 'frame')} <b>{amount(replay.moved)}</b> "
        f"({share(replay.moved, replay.frames)}) would go elsewhere, {lost} would have no route "
        f"any more, and {amount(replay.gained)} that had none would have one.</p>"
    )
    rows = [
        (
            f"<code>{html(row.tagset)}</code>",
            amount(row.frames),
            amount(row.moved),
            _bad(amount(row.lost), row.lost > 0),
            amount(row.gained),
            f"{row.skew_old:.2f} → {row.skew_new:.2f}",
        )
        for row in replay.rows
    ]
    headings = ("Asked for", "Frames", "Moved", "Lost", "Gained", "Skew")
    figures: dict[str, Figure] = {}
    if replay.routes:
        body += plot("replay") + more(replay.more_routes, "route", "routes")
        figures["replay"] = replay_figure(replay)
    body += table(headings, rows, range(1, 6)) + more(replay.more, "tag set", "tag sets")
    return Section("replay", title, body, figures)


def _audit(audit: Audit) -> Section:
    title = "Does it add up?"
    body = note(
        "What was read must have ended: delivered, dropped with a reason, or without a route. For "
        "links both ends count. What is missing has not ended in what the lake has. Amber, it is "
        "of a broker that goes on: in hand, or lost, which cannot be told before that run has "
        "ended. What ended twice is amber of a broker that was there before what is counted "
        "here begins: it may have had it in hand then. A dash: what was taken was not recorded, or "
        "that end keeps no log, and nothing can be said. If a log lacks something, a balance says "
        "nothing."
    )
    body += _holes(audit)
    if not audit.rows:
        return Section("audit", title, body + none("Nothing was counted on this day."))
    rows = [
        (
            html(row.src) + (f" → <code>{html(row.dst)}</code>" if row.dst else ""),
            "\u2013" if row.sent is None or row.untold else amount(row.sent),
            "\u2013" if row.received is None else amount(row.received),
            amount(row.delivered),
            amount(row.dropped),
            amount(row.unroutable),
            *_balance(row),
        )
        for row in audit.rows
    ]
    headings = (
        *("Broker, node or link", "Read or sent", "Handed on", "Delivered", "Dropped", "No route"),
        *("Missing", "Twice"),
    )
    body += table(headings, rows, range(1, 8)) + more(audit.more, "of them", "of them")
    return Section("audit", title, body)


def _balance(row: AuditRow) -> tuple[str, str]:
    """Return the texts for `missing` and `duplicated`, as far as they are known."""
    if row.untold:
        return "\u2013", "\u2013"
    return (
        _may(amount(row.missing), row.missing != 0, in_hand=row.going),
        _may(amount(row.duplicated), row.duplicated != 0, in_hand=row.earlier),
    )


def _may(text: str, bad: bool, *, in_hand: bool) -> str:
    return f"<span class=isopen>{text}</span>" if bad and in_hand else _bad(text, bad)


def _holes(audit: Audit) -> str:
    if not audit.holes:
        return ""
    rows = [
        (
            html(hole.log),
            _bad(amount(hole.unrecorded), hole.unrecorded > 0),
            _bad(amount(hole.absent), hole.absent > 0),
            html(", ".join(hole.reasons)) or "\u2013",
        )
        for hole in audit.holes
    ]
    headings = ("Log that lacks something", "Not recorded", "Missing from the lake", "Reason")
    return table(headings, rows, (1, 2)) + more(audit.more_holes, "log", "logs")


def _logs(page: Page) -> Section:
    body = note(
        "What this page is made of. A log is complete when all of it up to the end of the day is "
        "in the lake; numbers that are missing were lost before they got there."
    )
    if not page.brokers:
        return Section("logs", "The logs", body + none("The lake holds no log for this day."))
    rows = [
        (
            html(broker.name),
            "\u2013" if broker.sealed_through is None else f"{broker.sealed_through:%Y-%m-%d %X}",
            amount(broker.segments),
            amount(broker.events),
            _bad(amount(broker.missing), broker.missing > 0),
        )
        for broker in page.brokers
    ]
    headings = ("Log", "In the lake until, UTC", "Segments", "Events", "Missing")
    body += table(headings, rows, range(1, 5)) + more(page.more_brokers, "log", "logs")
    if page.late:
        body += (
            f"<p class=more>Came after the day had been closed: {_counted(page.late, 'event')}. "
            "That is in this page; pages that were made before lack it.</p>"
        )
    return Section("logs", "The logs", body)


def _counted(number: int, noun: str) -> str:
    return f"{amount(number)} {noun}{'' if number == 1 else 's'}"


def _bad(text: str, wrong: bool) -> str:
    return f"<span class=isbad>{text}</span>" if wrong else text
