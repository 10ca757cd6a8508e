// @ts-check
// The workers of the node as a tree, with what each has done, and does now.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { usePoll } from "./api.js";
import { brief, count, query, rate, span, visible } from "./format.js";
import { Bar, Card, Empty, Failure, Loading, Mark, MOST, Table, Text, useFilter } from "./parts.js";

const KEPT = 31;

/**
 * Return the rows in the order of their tree, each with its depth.
 *
 * A row whose parent is not among them is at the top.
 * @param {any[]} rows
 */
export function tree(rows) {
  const known = new Set(rows.map((row) => row.address));
  /** @type {Map<string | null, any[]>} */
  const below = new Map();
  for (const row of rows) {
    const parent = known.has(row.parent) ? row.parent : null;
    below.set(parent, [...(below.get(parent) ?? []), row]);
  }
  /** @type {any[]} */
  const found = [];
  const left = (below.get(null) ?? []).map((row) => ({ row, depth: 0 })).reverse();
  while (left.length) {
    const { row, depth } = /** @type {any} */ (left.pop());
    found.push({ ...row, depth, place: found.length });
    for (const each of [...(below.get(row.address) ?? [])].reverse()) left.push({ row: each, depth: depth + 1 });
  }
  return found;
}

/** @param {any} props */
export function Workers() {
  const [sort, setSort] = useState({ key: "tree", down: false });
  const [cut, setCut] = useState(false);
  const readings = useRef(/** @type {any[]} */ ([]));
  const own = ["tree", "rate"].includes(sort.key) ? "waiting" : sort.key;
  const { data, error, next } = usePoll(`/api/v1/workers${query({ limit: MOST, sort: cut ? `${sort.down || own === "waiting" ? "-" : ""}${own}` : null })}`);
  useEffect(() => setCut(Boolean(data && data.total > data.rows.length)), [data]);
  const { rows, past } = useMemo(() => {
    if (!data) return { rows: [], past: 0 };
    const now = performance.now() / 1000;
    const kept = readings.current.filter((each) => now - each.at < 62 && each.data !== data);
    const first = kept[0];
    const past = first ? now - first.at : 0;
    const handled = Object.fromEntries(data.rows.map((/** @type {any} */ row) => [row.address, row.handled]));
    readings.current = [...kept, { at: now, data, handled }].slice(-KEPT);
    const withRate = data.rows.map((/** @type {any} */ row) => {
      const early = first?.handled[row.address];
      return { ...row, rate: early == null || past <= 0 ? null : (row.handled - early) / past };
    });
    return { rows: tree(withRate), past };
  }, [data]);
  const { found, field, isFiltered } = useFilter(rows, (row) => visible(`${row.address} ${row.kind} ${row.state}`), "Filter the workers");
  if (!data) return error ? html`<${Failure} error=${error} next=${next} />` : html`<${Loading} />`;
  const some = (/** @type {number} */ value) => html`<span class=${value > 0 ? "isbad" : "dim"}>${count(value)}</span>`;
  const columns = [
    { key: "tree", label: "Worker", main: true, whole: true, value: (/** @type {any} */ row) => row.place,
      show: (/** @type {any} */ row) => html`<span class="branch" style=${{ paddingLeft: `${Math.min(row.depth, 6) * 18}px` }}>
        ${row.depth > 0 && html`<i aria-hidden="true">└</i>`}<code><${Text} value=${row.address.replace(/^0#/, "")} most=${24} /></code></span>` },
    { key: "kind", label: "Class" },
    { key: "state", label: "State", show: (/** @type {any} */ row) => html`<${Mark} kind=${row.state === "idle" ? "" : row.state === "busy" ? "good" : "warn"}>${visible(row.state)}<//>` },
    { key: "waiting", label: "Mailbox", number: true, title: "Messages that wait, and the limit",
      show: (/** @type {any} */ row) => html`<span class="used mailbox"><${Bar} share=${row.waiting / row.limit} label=${`${row.waiting} of ${row.limit}`} />${count(row.waiting)}</span>` },
    { key: "rate", label: "Rate", number: true, title: "Messages handled by the second", show: (/** @type {any} */ row) => rate(row.rate) },
    { key: "handled", label: "Handled", number: true, show: (/** @type {any} */ row) => brief(row.handled) },
    { key: "failed", label: "Failed", number: true, show: (/** @type {any} */ row) => some(row.failed) },
    { key: "restarts", label: "Restarts", number: true, show: (/** @type {any} */ row) => some(row.restarts) },
    { key: "refused", label: "Refused", number: true, title: "Messages refused because the mailbox was full", show: (/** @type {any} */ row) => some(row.refused) },
    { key: "dropped", label: "Dropped", number: true, show: (/** @type {any} */ row) => some(row.dropped) },
  ];
  const about = past > 0 ? `Rates of the last ${span(Math.round(past))}.` : "Rates come with the second reading.";
  return html`<${Failure} error=${error} next=${next} known />
    <${Card} title="By tree" about=${about} extra=${field}>
      <${Table} columns=${columns} rows=${found} total=${isFiltered ? found.length : data.total} of="worker" sort=${sort} onSort=${setSort}
        caption="Workers" id=${(/** @type {any} */ row) => row.address}
        empty=${html`<${Empty} title="No worker matches">Change the filter.<//>`} />
    <//>`;
}
