// @ts-check
// The requests that wait for a destination, by what they ask for.

import { html, useState } from "./vendor/htm-preact.js";
import { usePoll } from "./api.js";
import { bytes, count, query, seconds } from "./format.js";
import { Card, Empty, Failure, Loading, MOST, Table, Text } from "./parts.js";

export function Waiting() {
  const [sort, setSort] = useState({ key: "oldest", down: true });
  const { data, error, next } = usePoll(`/api/v1/waiting${query({ limit: MOST, sort: `${sort.down ? "-" : ""}${sort.key}` })}`);
  if (!data) return error ? html`<${Failure} error=${error} next=${next} />` : html`<${Loading} />`;
  const columns = [
    { key: "query", label: "Query", main: true, show: (/** @type {any} */ row) => html`<code><${Text} value=${row.query} most=${120} /></code>` },
    { key: "requests", label: "Requests", number: true, show: (/** @type {any} */ row) => count(row.requests) },
    { key: "oldest", label: "Oldest", number: true, title: "How long the oldest of them has waited",
      show: (/** @type {any} */ row) => html`<span class=${row.oldest > 10 ? "isbad" : ""}>${seconds(row.oldest)}</span>` },
    { key: "sources", label: "Requesters", number: true, show: (/** @type {any} */ row) => count(row.sources) },
    { key: "bytes", label: "Size", number: true, show: (/** @type {any} */ row) => bytes(row.bytes) },
    { key: "why", label: "Why", value: () => "", show: (/** @type {any} */ row) => html`<a href=${`#/routes${query({ q: row.query })}`}>Why does it wait?</a>` },
  ];
  return html`<${Failure} error=${error} next=${next} known />
    <${Card} title="By query" about="A request waits when no destination carries its tags, or when all that do are busy.">
      <${Table} columns=${columns} rows=${data.rows} total=${data.total} of="query" sort=${sort} onSort=${(/** @type {any} */ next) => next.key !== "why" && setSort(next)}
        caption="Requests that wait, by query" id=${(/** @type {any} */ row) => row.query}
        empty=${html`<${Empty} title="No request waits">Each request has found a destination.<//>`} />
    <//>`;
}
