// @ts-check
// The limits that are shared, with what is used of each.

import { html } from "./vendor/htm-preact.js";
import { usePoll } from "./api.js";
import { bytes, count, percent, query, visible } from "./format.js";
import { Bar, Card, Failure, Loading, MOST, Table } from "./parts.js";

/**
 * Whether a limit is one of bytes. Its name says so, or what it holds does.
 * @param {string} name
 */
export function isOfBytes(name) {
  return /bytes$|pending_total|gathered|held|unfinished/.test(name);
}

export function Limits() {
  const { data, error, next } = usePoll(`/api/v1/limits${query({ limit: MOST })}`);
  if (!data) return error ? html`<${Failure} error=${error} next=${next} />` : html`<${Loading} />`;
  const size = (/** @type {any} */ row, /** @type {number} */ value) => (isOfBytes(row.name) ? bytes(value) : count(value));
  const share = (/** @type {any} */ row) => (row.limit > 0 ? row.used / row.limit : 0);
  const columns = [
    { key: "name", label: "Limit", main: true, show: (/** @type {any} */ row) => html`<code>${visible(row.name)}</code>` },
    { key: "listener", label: "Of", show: (/** @type {any} */ row) => (row.listener ? visible(row.listener) : html`<span class="none">the broker</span>`) },
    { key: "share", label: "Used", number: true, value: share,
      show: (/** @type {any} */ row) => html`<span class="used"><${Bar} share=${share(row)} label=${percent(share(row))} />${percent(share(row))}</span>` },
    { key: "used", label: "Now", number: true, show: (/** @type {any} */ row) => size(row, row.used) },
    { key: "limit", label: "At most", number: true, show: (/** @type {any} */ row) => size(row, row.limit) },
    { key: "reached", label: "Refused", number: true, title: "How often something was refused because of it, since the start",
      show: (/** @type {any} */ row) => html`<span class=${row.reached > 0 ? "isbad" : ""}>${count(row.reached)}</span>` },
  ];
  return html`<${Failure} error=${error} next=${next} known />
    <${Card} title="Used against limit" about="Limits of a single connection or worker are not here; the pages of connections and workers have what each of them holds.">
      <${Table} columns=${columns} rows=${data.rows} total=${data.total} of="limit" sort=${{ key: "share", down: true }} caption="Limits"
        id=${(/** @type {any} */ row) => `${row.name} ${row.listener}`} />
    <//>`;
}
