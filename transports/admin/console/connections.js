// @ts-check
// The connections: those that are open, and the last that have ended, with the reason.

import { html, useContext, useEffect, useState } from "./vendor/htm-preact.js";
import { post, usePoll } from "./api.js";
import { ago, brief, bytes, count, query, seconds, span, visible } from "./format.js";
import { Card, Empty, Failure, Loading, Mark, MOST, Operation, Self, Table, Text, useFilter } from "./parts.js";

/** @param {any} props */
function Kick({ row, again }) {
  const [text, setText] = useState("closed by an operator");
  return html`<${Operation} label="Kick" describe=${`Kick connection ${row.id}`} title=${`Close connection ${row.id}?`} confirm="Close it" danger
    onConfirm=${async () => {
      await post("/api/v1/kick", { connection: row.id, text });
      again();
    }}>
    <p>${row.service ? html`It is a destination of <code><${Text} value=${row.service} /></code>, from ` : "It is from "}<code>${visible(row.peer)}</code>.
      Its requests end, and a client may connect again.</p>
    <label for="reason">Text for the client</label>
    <input id="reason" type="text" maxlength="200" required value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} />
  <//>`;
}

/** @param {any} props */
export function Connections({ fields }) {
  const state = fields.get("state") === "closed" ? "closed" : "open";
  const reason = state === "closed" ? fields.get("reason") : null;
  const closed = state === "closed";
  const self = useContext(Self);
  const [sort, setSort] = useState({ key: closed ? "closed" : "id", down: closed });
  const [cut, setCut] = useState(false);
  const { data, error, next, again } = usePoll(
    `/api/v1/connections${query({ limit: MOST, state, reason, sort: cut ? `${sort.down ? "-" : ""}${sort.key}` : null })}`,
  );
  const rows = data && data.rows.every((/** @type {any} */ row) => row.state === state) ? data.rows : [];
  const { found, field, isFiltered } = useFilter(
    rows,
    (row) => visible(`${row.id} ${row.peer} ${row.source} ${row.service} ${row.principal ?? ""} ${row.reason ?? ""} ${row.listener} ${row.route ?? ""}`),
    "Filter the connections",
  );
  useEffect(() => setCut(Boolean(data && data.total > data.rows.length)), [data]);
  useEffect(() => setSort({ key: closed ? "closed" : "id", down: closed }), [closed]);
  const now = Date.now() / 1000;
  const columns = [
    { key: "id", label: "Id", number: true, show: (/** @type {any} */ row) => row.id },
    { key: "peer", label: "Peer", main: true, whole: true },
    { key: "service", label: "Service", wide: true, show: (/** @type {any} */ row) => (row.service ? html`<${Text} value=${row.service} most=${40} />` : html`<span class="none">requester</span>`) },
    ...(rows.some((/** @type {any} */ row) => row.principal) ? [{ key: "principal", label: "Principal" }] : []),
    ...(closed
      ? [
          { key: "reason", label: "Reason", show: (/** @type {any} */ row) => html`<${Mark} kind=${row.reason === "by the peer" ? "" : "warn"}><${Text} value=${row.reason} /><//>` },
          { key: "closed", label: "Closed", number: true, show: (/** @type {any} */ row) => ago(row.closed, now) },
          { key: "opened", label: "Lasted", number: true, value: (/** @type {any} */ row) => row.closed - row.opened, show: (/** @type {any} */ row) => seconds(row.closed - row.opened) },
        ]
      : [
          { key: "opened", label: "Open for", number: true, value: (/** @type {any} */ row) => -row.opened, show: (/** @type {any} */ row) => span(now - row.opened) },
          { key: "idle", label: "Idle", number: true, show: (/** @type {any} */ row) => seconds(row.idle) },
          { key: "streams", label: "Streams", number: true, show: (/** @type {any} */ row) => count(row.streams) },
        ]),
    { key: "requests", label: "Requests", number: true, show: (/** @type {any} */ row) => brief(row.requests) },
    { key: "received_bytes", label: "Received", number: true, show: (/** @type {any} */ row) => bytes(row.received_bytes) },
    { key: "sent_bytes", label: "Sent", number: true, show: (/** @type {any} */ row) => bytes(row.sent_bytes) },
    ...(closed || !rows.some((/** @type {any} */ row) => row.pending_bytes) ? [] : [{ key: "pending_bytes", label: "Pending", number: true, title: "Bytes that wait for the socket", show: (/** @type {any} */ row) => bytes(row.pending_bytes) }]),
    ...(!closed && self.operate ? [{ key: "kick", label: "", show: (/** @type {any} */ row) => html`<${Kick} row=${row} again=${again} />` }] : []),
  ];
  const tab = (/** @type {string} */ name, /** @type {string} */ label) => html`
    <a href=${`#/connections${query({ state: name })}`} aria-current=${name === state ? "true" : null}>${label}</a>`;
  return html`<${Failure} error=${error} next=${next} known=${data} />
    <${Card} title=${html`<span class="tabs">${tab("open", "Open")}${tab("closed", "Closed")}</span>`} extra=${field}
      about=${closed ? html`The last 1,000 of each listener.${reason && html`${" "}Only those with the reason <b>${visible(reason)}</b>. <a href="#/connections?state=closed">Show all</a>`}` : null}>
      ${!data ? !error && html`<${Loading} />` : html`<${Table} key=${state} columns=${columns} rows=${found} total=${isFiltered ? found.length : data.total} of="connection"
        sort=${{ key: closed ? "closed" : "id", down: closed }} onSort=${setSort}
        caption=${closed ? "Closed connections" : "Open connections"} id=${(/** @type {any} */ row) => `${row.listener} ${row.id}`}
        empty=${html`<${Empty} title=${isFiltered ? "No connection matches" : closed ? "No connection has ended" : "No client is connected"}>
          ${isFiltered ? "Change the filter." : closed ? "Once one does, it is shown here with the reason." : "The overview has the listeners that clients can connect to."}<//>`} />`}
    <//>`;
}
