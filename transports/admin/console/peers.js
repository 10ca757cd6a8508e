// @ts-check
// The other brokers of the cluster: whether there is a link, and what is known of their routes.

import { html } from "./vendor/htm-preact.js";
import { usePoll } from "./api.js";
import { ago, count, counted, query, seconds, visible } from "./format.js";
import { Card, Empty, Failure, Loading, Mark, MOST, Table, Text, useFilter } from "./parts.js";

/** The states in which requests go to the broker. */
const REACHED = ["up", "joining"];

/**
 * Return the state of a peer broker in the words of `onward peers`.
 * @param {any} row
 */
export function stateOf(row) {
  const state = row.draining ? `${row.state}, drains` : row.state;
  return row.java ? `${state} (Java: routes since the link)` : state;
}

/**
 * Return why the last link was lost, or why there is none.
 * @param {any} row
 */
export function whyOf(row) {
  const told = row.state === "connecting" && row.reported_by ? `reported by ${row.reported_by}; ` : "";
  return told + (row.reason ?? "");
}

/**
 * Return the number of the routes of a broker that are known, and of the suspended sessions that it
 * has told of, as `onward peers` does.
 * @param {any} row
 */
export function routesOf(row) {
  return row.suspended ? `${count(row.routes)}, ${count(row.suspended)} suspended` : count(row.routes);
}

/**
 * Return the number of groups that are known by a broker of another zone, and of those that others
 * are folded into.
 * @param {any} row
 */
export function groupsOf(row) {
  return row.folded ? `${count(row.groups)}, ${count(row.folded)} folded` : count(row.groups);
}

/**
 * Return the brokers of some rows, with whether all links to each are up, and its routes. Several
 * processes have a link each to a broker, and know the same routes of it.
 * @param {any[]} rows
 */
export function brokersOf(rows) {
  const found = new Map();
  for (const row of rows) {
    const id = row.broker_id || row.uri;
    const known = found.get(id) ?? { up: true, routes: 0 };
    found.set(id, { up: known.up && row.state === "up", routes: Math.max(known.routes, row.routes) });
  }
  return [...found.values()];
}

/** @param {any} row */
function State({ row }) {
  const reached = REACHED.includes(row.state);
  return html`<${Mark} kind=${!reached ? "bad" : row.draining || row.state !== "up" ? "warn" : "good"}><${Text} value=${stateOf(row)} /><//>`;
}

export function Peers() {
  const { data, error, next } = usePoll(`/api/v1/peers${query({ kind: "broker", limit: MOST })}`);
  const rows = data?.rows ?? [];
  const { found, field, isFiltered } = useFilter(
    rows,
    (row) => visible(`${row.peer} ${row.uri} ${row.broker_id} ${row.zone ?? ""} ${stateOf(row)} ${whyOf(row)}`),
    "Filter the peer brokers",
  );
  const now = Date.now() / 1000;
  const brokers = brokersOf(rows);
  const up = brokers.filter((each) => each.up).length;
  const routes = brokers.reduce((sum, each) => sum + each.routes, 0);
  const about = brokers.length
    ? `${count(up)} of ${counted(brokers.length, "peer broker")} up; ${counted(routes, "route")} of them here.`
    : "The other brokers of the cluster.";
  const columns = [
    { key: "peer", label: "Peer", main: true, whole: true, show: (/** @type {any} */ row) => html`<span title=${visible(row.uri)}><${Text} value=${row.peer} most=${40} /></span>` },
    { key: "state", label: "State", value: stateOf, show: (/** @type {any} */ row) => html`<${State} row=${row} />` },
    ...(rows.some((/** @type {any} */ row) => row.zone) ? [{ key: "zone", label: "Zone" }] : []),
    { key: "instance", label: "Instance", number: true, title: "When it was started", show: (/** @type {any} */ row) => ago(row.instance, now) },
    { key: "round_trip", label: "Round trip", number: true, show: (/** @type {any} */ row) => seconds(row.round_trip || null) },
    { key: "routes", label: "Routes", number: true, title: "Its routes that are known here, and its suspended sessions, for which route ids are kept", show: routesOf },
    ...(rows.some((/** @type {any} */ row) => row.groups) ? [{ key: "groups", label: "Groups", number: true, title: "Groups of its zone that are known here, and those into which others of their service are folded", show: groupsOf }] : []),
    { key: "behind", label: "Behind", number: true, title: "The time by which its routes may be behind", show: (/** @type {any} */ row) => seconds(row.behind) },
    { key: "in_flight", label: "In flight", number: true, title: "Forwarded requests that have not ended, either way", show: (/** @type {any} */ row) => count(row.in_flight) },
    { key: "losses", label: "Losses", number: true, title: "Links lost since the start", show: (/** @type {any} */ row) => count(row.losses) },
    { key: "since", label: "Since", number: true, show: (/** @type {any} */ row) => ago(row.since, now) },
    { key: "reason", label: "Last loss", wide: true, value: whyOf, show: (/** @type {any} */ row) => html`<${Text} value=${whyOf(row) || "\u2013"} most=${60} />` },
  ];
  return html`<${Failure} error=${error} next=${next} known=${data} />
    <${Card} title="Peer brokers" extra=${field} about=${about}>
      ${!data ? !error && html`<${Loading} />` : html`<${Table} columns=${columns} rows=${found} total=${isFiltered ? found.length : data.total} of=${brokers.length < rows.length ? "link" : "peer broker"}
        sort=${{ key: "peer", down: false }} caption="Peer brokers" id=${(/** @type {any} */ row) => `${row.broker_id} ${row.uri}`}
        empty=${html`<${Empty} title=${isFiltered ? "No peer broker matches" : "There is no peer broker"}>
          ${isFiltered ? "Change the filter." : "This broker is in no cluster, or knows no other one."}<//>`} />`}
    <//>`;
}
