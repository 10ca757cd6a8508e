"""The sections of the page, each with its HTML and its plots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from .._schema import FROM_DISPATCHERS, FROM_HOLD, FROM_PEERS
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
from ._section_names import names_body
from ._section_relays import relays_body
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
    if page.names is not None:
        found.append(Section("names", "Names", names_body(page.names)))
    if page.relays is not None:
        found.append(Section("relays", "Relays of identities", relays_body(page.relays)))
    if page.replay is not None:
        found.append(_replay(page.replay))
    if page.audit is not None:
        found.append(_audit(page.audit))
    found.append(_logs(page))
    return found


def _matrix(matrix: Matrix, untagged: int) -> Section:
    body = note(
        "Requests through brokers: a row for each requester, a column for each destination. The "
        "colour shows the number of requests, a triangle that some failed. Every request is "
        "counted, not only the sample."
    ) + _untagged(untagged)
    if not matrix.origins:
        return Section(
            "traffic", "Traffic matrix", body + none("There were no requests on this day.")
        )
    body += plot("matrix", wide=len(matrix.dests) > 5)
    body += more(matrix.more, "pair", "pairs", f", with {_counted(matrix.more_frames, 'frame')}")
    return Section("traffic", "Traffic matrix", body, {"matrix": matrix_figure(matrix)})


def _untagged(count: int) -> str:
    if not count:
        return ""
    return note(
        f"Requests without tags in the log: {amount(count)}. The tags were too long, too many, or "
        "not readable. The totals at the top include these requests, this section does not."
    )


def _latency(latency: Latency, untagged: int) -> Section:
    title = "Latency"
    body = note(
        "The time from the first frame of a request to its end, measured at the broker. A large "
        "gap between p50 and p99 indicates queueing."
    ) + _untagged(untagged)
    if not latency.lines:
        return Section("latency", title, body + none("No requests of this day were sampled."))
    options = "".join(
        f"<option value={number}>{html(short(line.dest, 48))}</option>"
        for number, line in enumerate(latency.lines)
    )
    minutes = "minute" if latency.minutes == 1 else f"{latency.minutes} minutes"
    body += (
        "<div class=pair><div><h3>Whole day, by destination</h3>"
        f"{plot('ranges')}</div><div><h3>Over the day, by {minutes}: "
        f"<select data-plot=lines aria-label=Destination>{options}</select></h3>"
        f"{plot('lines')}</div></div>" + more(latency.more, "destination", "destinations")
    )
    figures = {"ranges": ranges_figure(latency), "lines": lines_figure(latency)}
    return Section("latency", title, body, figures)


def _burns(burns: tuple[Burn, ...]) -> Section:
    title = "Service-level objectives"
    body = note(
        "The burn rate of the error budget of each objective. At 1, the dashed line, the budget "
        "lasts exactly for the period of the objective. At more than 1, it does not last."
    )
    if not burns:
        text = "No objectives are set: onward pipeline report --slo NAME:SERVICE:MS:TARGET"
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
    headings = ("Objective", "Requests", "Missed", "Met", "Highest burn rate in 1 h")
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
    title = "Unroutable requests"
    body = note(
        "Requests with tags that matched no destination. The nearest match is the largest subset "
        "of these tags that a destination carried; the other tags are the likely cause."
    )
    if not demand.rows:
        return Section("unroutable", title, body + none("All requests had a route."))
    rows = [
        (
            f"<code>{html(row.tagset)}</code>",
            f"<code>{html(row.nearest)}</code>" if row.nearest else "none",
            amount(row.frames),
            f"{clock(row.first)} \u2013 {clock(row.last)}",
        )
        for row in demand.rows
    ]
    headings = ("Tags requested", "Nearest match", "Requests", "First \u2013 last, UTC")
    body += plot("demand") + table(headings, rows, (2, 3))
    body += more(
        demand.more, "tag set", "tag sets", f", with {_counted(demand.more_frames, 'request')}"
    )
    return Section("unroutable", title, body, {"demand": demand_figure(demand)})


def _shards(shards: Shards) -> Section:
    title = "Shard balance"
    body = note(
        "The share of each route in the shard requests of its tag set; the mark is an equal "
        "share. Orange is more than 1.5 times that. Keys are recorded as hashes only."
    )
    if not shards.shards:
        return Section("shards", title, body + none("There were no shard requests."))
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
        table(("Key (hash)", "Tags requested", "Requests", "Highest share in 1 h"), keys, (2, 3))
        if keys
        else none("No key was sampled.")
    )
    body += (
        f"<div class=pair><div><h3>Load by route</h3>{plot('shards')}"
        f"{more(shards.more, 'route', 'routes')}</div><div><h3>Hot keys</h3>{hot}</div></div>"
    )
    return Section("shards", title, body, {"shards": shards_figure(shards)})


def _churn(churn: Churn) -> Section:
    title = "Route churn"
    body = note(
        "Destinations that registered (up) and left (down) in each hour. A diamond marks flaps: "
        "destinations that returned within 60 seconds, after a restart or a broken connection."
    )
    if not churn.hours:
        return Section("churn", title, body + none("No destination registered or left."))
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
    headings = ("Service", "Route", "Registered", "Left", "Flaps", "Median lifetime")
    body += (
        plot("churn")
        + table(headings, rows, range(2, 6))
        + more(churn.more, "destination", "destinations")
    )
    return Section("churn", title, body, {"churn": churn_figure(churn)})


_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {"loop": "Loop", "black_hole": "Black hole", "return_asymmetry": "Asymmetric return"}
)


def _paths(paths: Anomalies) -> Section:
    title = "Message paths"
    body = note(
        "From the hops of sampled messages. In a loop, a message visits a worker twice; in a black "
        "hole, it was sent and no further hop was recorded."
    )
    if not (paths.rows or paths.paths):
        return Section("paths", title, body + none("No messages of this day were sampled."))
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
        body += table(("Anomaly", "Path", "Messages", "Example trace"), rows, (2, 3))
        body += more(paths.more, "anomaly", "anomalies")
    else:
        body += none("No anomalies.")
    taken = [
        (way(row.path), amount(row.traces), "\u2013" if row.p95 is None else duration(row.p95))
        for row in paths.paths
    ]
    if taken:
        body += "<h3>Most frequent paths</h3>" + table(("Path", "Messages", "p95"), taken, (1, 2))
        body += more(paths.more_paths, "path", "paths")
    return Section("paths", title, body)


def _replay(replay: Replay) -> Section:
    title = "Rehearsal of a change"
    body = note(
        "The day's sampled traffic, resolved again by the broker's code with the changed routing "
        "table or method."
    )
    if replay.about:
        body += f"<p>{html(replay.about)}</p>"
    if not replay.frames:
        return Section("replay", title, body + none("There was no sampled traffic to resolve."))
    lost = _bad(amount(replay.lost), replay.lost > 0)
    body += (
        f"<p>Of {_counted(replay.frames, 'frame')} <b>{amount(replay.moved)}</b> "
        f"({share(replay.moved, replay.frames)}) would go to another route, {lost} would lose "
        f"their route, and {amount(replay.gained)} without a route would gain one.</p>"
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
    headings = ("Tags requested", "Frames", "Moved", "Lost", "Gained", "Skew")
    figures: dict[str, Figure] = {}
    if replay.routes:
        body += plot("replay") + more(replay.more_routes, "route", "routes")
        figures["replay"] = replay_figure(replay)
    body += table(headings, rows, range(1, 6)) + more(replay.more, "tag set", "tag sets")
    return Section("replay", title, body, figures)


def _where(dst: str) -> str:
    """Return what a row of the audit is of, besides its broker or node."""
    if dst in (FROM_PEERS, FROM_DISPATCHERS, FROM_HOLD):
        return f" {html(dst)}"
    return f" → <code>{html(dst)}</code>" if dst else ""


def _audit(audit: Audit) -> Section:
    title = "Audit"
    body = note(
        "Each request that a broker has read must have an outcome: delivered, dropped with a "
        "reason, or unroutable. For links, the counts of both ends are compared. Missing requests "
        "have no outcome in the lake; amber: their broker still runs, so they may be in progress. "
        "Duplicated requests have more than one outcome; amber: the run began before the audit, "
        "so they may have been in progress then. What a broker of a cluster has forwarded is in "
        "its own row, and in one (from peer brokers) of the other broker; so are messages to "
        "names, in one (from other dispatchers). A dash: not known, as "
        "reads were not recorded or "
        "that end has no log. If a log is incomplete, the balance proves nothing."
    )
    body += _holes(audit)
    if not audit.rows:
        return Section("audit", title, body + none("No requests were recorded on this day."))
    rows = [
        (
            html(row.src) + _where(row.dst),
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
        *("Broker, node or link", "Read or sent", "Forwarded", "Delivered", "Dropped"),
        *("Unroutable", "Missing", "Duplicated"),
    )
    body += table(headings, rows, range(1, 8)) + more(audit.more, "row", "rows")
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
    headings = ("Incomplete log", "Not recorded", "Missing from the lake", "Reason")
    return table(headings, rows, (1, 2)) + more(audit.more_holes, "log", "logs")


def _logs(page: Page) -> Section:
    body = note(
        "The logs that this page is computed from. A log is complete when the lake has all of it "
        "up to the end of the day. Missing events were lost before they were ingested."
    )
    if not page.brokers:
        return Section("logs", "Event logs", body + none("The lake has no log of this day."))
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
            f"<p class=more>Events that came after the day was closed: {amount(page.late)}. This "
            "page includes them; earlier pages of the day do not.</p>"
        )
    return Section("logs", "Event logs", body)


def _counted(number: int, noun: str) -> str:
    return f"{amount(number)} {noun}{'' if number == 1 else 's'}"


def _bad(text: str, wrong: bool) -> str:
    return f"<span class=isbad>{text}</span>" if wrong else text
