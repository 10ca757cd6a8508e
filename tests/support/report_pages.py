"""A page of a day that never was, with something in each of its sections; no Spark needed."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta

from onward.pipeline.report import (
    Anomalies,
    AnomalyRow,
    Audit,
    AuditRow,
    Burn,
    Churn,
    ChurnRow,
    Demand,
    DemandRow,
    HotKey,
    Latency,
    LatencyLine,
    LogCompleteness,
    Matrix,
    Page,
    PathRow,
    RelayLoad,
    RelayRow,
    RelayTotal,
    Replay,
    ReplayRoute,
    ReplayRow,
    Shard,
    Shards,
    Totals,
)

DAY = date(2026, 11, 20)
MIDNIGHT = datetime(2026, 11, 20, tzinfo=UTC)


def busy_day(seed: int = 1, *, named: str = "") -> Page:
    """Return a page with content everywhere; `named` goes into all that users can name."""
    chance = random.Random(seed)
    origins = tuple(
        f"{each}{named}" for each in ("(unregistered)", "web", "mobile", "orders", "search")
    )
    dests = tuple(f"{each}{named}" for each in ("shop", "orders", "stock", "mail", "search", "pay"))
    frames = tuple(
        tuple(chance.choice((None, int(10 ** chance.uniform(1, 6)))) for _ in dests)
        for _ in origins
    )
    failed = tuple(
        tuple(int((each or 0) * chance.choice((0, 0, 0.01))) for each in row) for row in frames
    )
    times = tuple(MIDNIGHT + timedelta(minutes=5 * step) for step in range(288))
    return Page(
        day=DAY,
        brokers=tuple(
            LogCompleteness(
                f"{name}{named}", MIDNIGHT + timedelta(days=1), 1440, 2_345_678 * place, 0
            )
            for place, name in enumerate(("eu-1", "eu-2", "us-1"), start=1)
        ),
        totals=Totals(4_812_331, 4_795_310, 12_403, 1_201, 3_220, 197, 3_212_000_111),
        closed=True,
        audit=Audit(
            (
                AuditRow(f"eu-1{named}", "", 2_000_000, 2_000_000, 1_990_000, 3000, 7000, 0, 0),
                AuditRow(
                    "eu-1", f"tcp 10.0.0.1:4000>10.0.0.2:5000{named}", 800, 799, 0, 1, 0, 0, 0
                ),
                AuditRow("us-1", "tcp 10.0.0.9:4000>10.0.0.2:5000", 800, None, 0, 0, 0, 0, 0),
            ),
            0,
            0,
            0,
        ),
        matrix=Matrix(
            origins,
            dests,
            frames,
            failed,
            tuple(tuple((each or 0) * 640 for each in row) for row in frames),
            7,
            1234,
        ),
        latency=Latency(
            tuple(_line(f"{dest}{named}", times, chance) for dest in dests), minutes=5, more=3
        ),
        shards=Shards(
            tuple(
                Shard(
                    f"service=shop{named}",
                    f"{town}{named} 5f0c…",
                    int(30_000 * part),
                    part,
                    1.62,
                    1 / 3,
                )
                for town, part in (("berlin", 0.54), ("lyon", 0.25), ("quito", 0.21))
            ),
            tuple(
                HotKey(f"service=shop{named}", f"{chance.getrandbits(64):016x}", 9000 // n, 0.3 / n)
                for n in range(1, 9)
            ),
        ),
        churn=Churn(
            tuple(MIDNIGHT + timedelta(hours=hour) for hour in range(24)),
            tuple(chance.randrange(6) for _ in range(24)),
            tuple(chance.randrange(5) for _ in range(24)),
            tuple(chance.choice((0, 0, 0, 2)) for _ in range(24)),
            (
                ChurnRow(f"shop{named}", "5f0c2b11", 14, 13, 9, 41.5),
                ChurnRow(f"mail{named}", "aa01ff32", 2, 2, 0, 14_400.0),
                ChurnRow(f"pay{named}", "bb01ff32", 1, 0, 0, None),
            ),
            5,
        ),
        demand=Demand(
            (
                DemandRow(
                    f"service=shop region=mars{named}",
                    9120,
                    MIDNIGHT,
                    MIDNIGHT + timedelta(hours=5),
                    f"service=shop{named}",
                ),
                DemandRow(f"service=fax{named}", 3283, MIDNIGHT, MIDNIGHT + timedelta(hours=3), ""),
            ),
            2,
            11,
        ),
        burns=(_burn(f"shop in 50 ms{named}", times, 0.6), _burn(f"pay{named}", times, 1.4)),
        paths=Anomalies(
            (
                AnomalyRow(
                    "loop",
                    ("near/a", f"mid/b{named}", "far/c", f"mid/b{named}"),
                    12,
                    "00ab12cd34ef5678",
                ),
                AnomalyRow("black_hole", (f"near/a{named}", "mid/b"), 3, "10ab12cd34ef5678"),
            ),
            (
                PathRow((f"near/a{named}", "mid/b", "far/echo"), 4312, 1830.0),
                PathRow(("x",), 3, None),
            ),
            1,
            4,
        ),
        relays=RelayLoad(
            (
                RelayTotal(f"hub{named}", 120_000, 230_000_000, 41, 9000),
                RelayTotal("quiet", 10, 14_850, 0, 10),
            ),
            (
                RelayRow(f"hub{named}", f"{'a' * 55}{named}", f"{'b' * 55}{named}", 9, 99, 0),
                RelayRow(f"hub{named}", "", "permission_denied", 0, 0, 41),
                RelayRow("quiet", "", f"{'c' * 55}", 10, 14_850, 0),
            ),
            more=3,
        ),
        replay=Replay(
            (
                ReplayRow(f"@shard service=shop{named}", 90_000, 22_410, 0, 0, 1.62, 1.31),
                ReplayRow(f"service=fax{named}", 3283, 0, 0, 3283, 0.0, 1.0),
            ),
            (
                ReplayRoute(f"berlin{named}", 48_600, 36_000),
                ReplayRoute("lyon", 22_500, 17_900),
                ReplayRoute("quito", 18_900, 14_090),
                ReplayRoute("oslo", 0, 22_010),
            ),
            93_283,
            22_410,
            0,
            3283,
        ),
    )


def empty_day() -> Page:
    """Return a page for a day on which nothing was recorded."""
    return Page(
        day=DAY,
        audit=Audit((), 0, 0, 0),
        matrix=Matrix((), (), (), (), ()),
        latency=Latency((), 1),
        shards=Shards((), ()),
        churn=Churn((), (), (), (), ()),
        demand=Demand(()),
        burns=(),
        paths=Anomalies((), ()),
        relays=RelayLoad((), ()),
        replay=Replay((), (), 0, 0, 0, 0),
    )


def _line(dest: str, times: tuple[datetime, ...], chance: random.Random) -> LatencyLine:
    base = 10 ** chance.uniform(2.5, 4.2)
    p50 = tuple(
        base * (1.2 + math.sin(step / 46)) * chance.uniform(0.9, 1.1) for step in range(len(times))
    )
    p95 = tuple(value * chance.uniform(2, 3) for value in p50)
    p99 = tuple(value * chance.uniform(1.3, 2.4) for value in p95)
    return LatencyLine(
        dest, times, (1000,) * len(times), p50, p95, p99, (288_000, base, base * 2.5, base * 5)
    )


def _burn(name: str, times: tuple[datetime, ...], base: float) -> Burn:
    hour = tuple(base * (1 + 0.8 * math.sin(step / 30)) for step in range(len(times)))
    return Burn(name, 99_120, 100_000, times, tuple(1.3 * each for each in hour), hour, hour)
