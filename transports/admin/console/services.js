// @ts-check
// The services: how many requests each gets, how they end, and how long they take.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { usePoll } from "./api.js";
import { count, percent, quantile, query, rate, seconds, span, visible } from "./format.js";
import { Card, Empty, Failure, Loading, Mark, MOST, Table, Text, useFilter } from "./parts.js";

const KEPT = 31;

/**
 * Return the services with their figures between two readings; of the first one, since the start.
 * @param {any[]} rows
 * @param {any} before by the name of the service
 * @param {number} past the seconds between
 */
export function between(rows, before, past) {
  return rows.map((row) => {
    const early = before?.[row.service];
    if (!early || past <= 0) return { ...row, rate: null };
    const answered = row.answered == null ? null : row.answered - early.answered;
    let whole = 0;
    for (const name of ENDS) whole += (row[name] ?? 0) - (early[name] ?? 0);
    return {
      ...row,
      rate: (row.requests - early.requests) / past,
      success: answered == null || whole <= 0 ? null : answered / whole,
      p50: row.durations && early.durations ? quantile(0.5, early.durations, row.durations) : null,
      p99: row.durations && early.durations ? quantile(0.99, early.durations, row.durations) : null,
    };
  });
}

const ENDS = ["answered", "no_destination", "rejected", "invalid", "canceled", "error"];

/**
 * Return the last readings with one more, and the rows between the oldest and it.
 * @param {any} data
 */
function useWindow(data) {
  const readings = useRef(/** @type {any[]} */ ([]));
  const [found, setFound] = useState(/** @type {any} */ ({ rows: [], past: 0 }));
  useEffect(() => {
    if (!data) return;
    const now = performance.now() / 1000;
    const kept = readings.current.filter((each) => now - each.at < 62);
    const first = kept[0];
    const past = first ? now - first.at : 0;
    setFound({ rows: between(data.rows, first?.rows, past), past });
    const byName = Object.fromEntries(data.rows.map((/** @type {any} */ row) => [row.service, row]));
    readings.current = [...kept, { at: now, rows: byName }].slice(-KEPT);
  }, [data]);
  return found;
}

/** @param {any} props */
export function Services() {
  const [sort, setSort] = useState({ key: "requests", down: true });
  const [cut, setCut] = useState(false);
  const known = cut && sort.key !== "rate" ? `${sort.down ? "-" : ""}${sort.key}` : null;
  const { data, error, next } = usePoll(`/api/v1/services${query({ limit: MOST, sort: known })}`);
  const { rows, past } = useWindow(data);
  const { found, field, isFiltered } = useFilter(rows, (row) => visible(row.service), "Filter the services");
  useEffect(() => setCut(Boolean(data && data.total > data.rows.length)), [data]);
  if (!data) return error ? html`<${Failure} error=${error} next=${next} />` : html`<${Loading} />`;
  const columns = [
    { key: "service", label: "Service", main: true },
    { key: "rate", label: "Rate", number: true, title: "Requests by the second", show: (/** @type {any} */ row) => rate(row.rate) },
    { key: "success", label: "Success", number: true, title: "The share that was answered without an error",
      show: (/** @type {any} */ row) => html`<span class=${row.success != null && row.success < 0.99 ? "isbad" : ""}>${percent(row.success)}</span>` },
    { key: "p50", label: "p50", number: true, show: (/** @type {any} */ row) => seconds(row.p50) },
    { key: "p99", label: "p99", number: true, show: (/** @type {any} */ row) => seconds(row.p99) },
    { key: "in_progress", label: "In progress", number: true, show: (/** @type {any} */ row) => count(row.in_progress) },
    { key: "destinations", label: "Destinations", number: true,
      show: (/** @type {any} */ row) => html`${count(row.destinations)}${row.busy > 0 && html`${" "}<${Mark} kind="warn">${count(row.busy)} busy<//>`}` },
    { key: "requests", label: "Requests", number: true, title: "Since the start", show: (/** @type {any} */ row) => count(row.requests) },
  ];
  const about = past > 0
    ? `Rate, success and latency of the last ${span(Math.round(past))}.`
    : "Success and latency since the start.";
  return html`<${Failure} error=${error} next=${next} known />
    <${Card} about=${about} extra=${field} title="By service">
      <${Table} columns=${columns} rows=${found} total=${isFiltered ? found.length : data.total} of="service" sort=${sort} onSort=${setSort}
        caption="Services" id=${(/** @type {any} */ row) => row.service}
        empty=${html`<${Empty} title=${isFiltered ? "No service matches" : "No service has registered"}>
          ${isFiltered ? "Change the filter." : html`A client registers when it connects with a service name.`}<//>`} />
    <//>`;
}
