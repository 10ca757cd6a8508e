// @ts-check
// What is wrong first, then how busy the broker is.

import { html, useContext, useState } from "./vendor/htm-preact.js";
import { post, usePoll } from "./api.js";
import { ago, brief, bytes, count, date, percent, rate, seconds, span, visible } from "./format.js";
import { Card, Empty, Failure, isOfProcess, Loading, Mark, Operation, Self, Sparkline, Table, Text } from "./parts.js";

/** @type {Record<string, [string, string]>} where a kind of problem can be looked into */
const PLACES = {
  "not-ready": ["#/limits", "See the limits"],
  "slow-peers": ["#/connections?state=closed&reason=too slow", "See the closed connections"],
  authentication: ["#/connections?state=closed", "See the closed connections"],
  limit: ["#/limits", "See the limits"],
  errors: ["#/services", "See the services"],
  rejected: ["#/routes", "Resolve a query"],
  "oldest-wait": ["#/waiting", "See what waits"],
  lost: ["#/events", "See the events"],
  failures: ["#/workers", "See the workers"],
};

/** @param {any} props */
function Problems({ problems }) {
  if (!problems.length) {
    return html`<section class="card verdict" role="status"><span class="verdict-mark" aria-hidden="true"></span>
      <div><h2>Nothing is wrong</h2><p>All checks pass, and nothing of the last five minutes stands out.</p></div></section>`;
  }
  const critical = problems.filter((/** @type {any} */ each) => each.severity === "critical").length;
  const title = critical ? `${count(critical)} critical, ${count(problems.length - critical)} to look after` : `${count(problems.length)} to look after`;
  return html`<${Card} title="What is wrong" extra=${html`<span class="aside">${title}</span>`} className="problems">
    <ul>${problems.map((/** @type {any} */ each) => html`<li key=${`${each.process ?? ""} ${each.kind} ${each.subject}`} class=${each.severity}>
      <p class="what"><${Mark} kind=${each.severity === "critical" ? "bad" : "warn"}>${each.severity}<//>
        <b>${visible(each.text)}</b></p>
      ${each.subject && html`<p class="subject">${isOfProcess(each) && each.kind !== "process" && `process ${each.process}: `}<code><${Text} value=${each.subject} /></code></p>`}
      <p class="advice">${visible(each.advice)}${" "}
        ${PLACES[each.kind] && html`<a href=${PLACES[each.kind][0]}>${PLACES[each.kind][1]}</a>`}</p>
    </li>`)}</ul>
  <//>`;
}

/** @param {any} props */
function Listeners({ listeners }) {
  const columns = [
    { key: "uri", label: "Listener", main: true, whole: true },
    { key: "connections", label: "Connections", number: true, show: (/** @type {any} */ row) => count(row.connections) },
    { key: "streams", label: "Streams", number: true, show: (/** @type {any} */ row) => count(row.streams) },
    { key: "requests", label: "Requests", number: true, show: (/** @type {any} */ row) => brief(row.requests) },
    { key: "refused", label: "Refused", number: true, title: "Requests that could not be parsed or routed at once", show: (/** @type {any} */ row) => count(row.refused) },
    { key: "received_bytes", label: "Received", number: true, show: (/** @type {any} */ row) => bytes(row.received_bytes) },
    { key: "sent_bytes", label: "Sent", number: true, show: (/** @type {any} */ row) => bytes(row.sent_bytes) },
    { key: "pending_bytes", label: "Pending", number: true, title: "Bytes that wait for the sockets", show: (/** @type {any} */ row) => bytes(row.pending_bytes) },
    { key: "tls", label: "Certificate", value: (/** @type {any} */ row) => row.tls?.not_after ?? null, show: (/** @type {any} */ row) => (row.tls?.not_after ? `until ${date(row.tls.not_after)}` : row.tls ? "TLS" : "no TLS") },
  ];
  return html`<${Card} title="Listeners">
    <${Table} columns=${columns} rows=${listeners} of="listener" caption="Listeners" id=${(/** @type {any} */ row) => row.uri}
      empty=${html`<${Empty} title="No listener">Clients cannot connect.<//>`} />
  <//>`;
}

const LEVELS = ["debug", "info", "warning", "error"];

/** @param {any} props */
function Operations({ draining, again }) {
  const [level, setLevel] = useState("info");
  const [said, setSaid] = useState("");
  const self = useContext(Self);
  if (!self.operate) return null;
  const asked = (/** @type {string} */ name, /** @type {string} */ done) => async () => {
    await post(`/api/v1/${name}`);
    setSaid(done);
    again();
  };
  return html`<${Card} title="Operate" about="What you do here is logged with your name.">
    <div class="operations">
      ${draining
        ? html`<${Operation} name="undo-drain" label="Undo the drain" title="Undo the drain?" confirm="Undo the drain" onConfirm=${asked("undo-drain", "The broker serves again.")}>
            <p>The broker goes on as if it had not drained. That is possible until it has closed its sockets, at the end of the grace.</p><//>`
        : html`<${Operation} name="drain" label="Drain" danger title=${`Drain ${visible(self.node)}?`} confirm="Drain and stop" onConfirm=${asked("drain", "The broker drains, and stops then.")}>
            <p>The broker stops listening, lets the requests in progress end, closes its connections one by one, and <b>stops</b>. This page ends with it.</p><//>`}
      <${Operation} name="reload" label="Reload" title="Reload the files?" confirm="Reload" onConfirm=${asked("reload", "Reloaded.")}>
        <p>Certificates, principals and rules are read again. All of them are applied, or none.</p><//>
      <${Operation} label="Log level" title="Set the level of the log" confirm="Set the level"
        onConfirm=${async () => {
          const found = await post("/api/v1/log-level", { level });
          setSaid(`The level of the log is ${found.effective}.`);
        }}>
        <label for="level">Lines of this level and above are logged</label>
        <select id="level" value=${level} onChange=${(/** @type {any} */ event) => setLevel(event.target.value)}>
          ${LEVELS.map((each) => html`<option value=${each}>${each}</option>`)}
        </select><//>
    </div>
    <p class="said" role="status">${said}</p>
  <//>`;
}

/** @param {any} props */
export function Overview({ onReturn }) {
  const { data, error, next, again } = usePoll("/api/v1/overview");
  const self = useContext(Self);
  if (!data) return error ? html`<${Failure} error=${error} next=${next} />` : html`<${Loading} />`;
  const { points, broker } = data;
  const last = (/** @type {string} */ name) => points[name][points[name].length - 1];
  const chart = (/** @type {string} */ name, /** @type {string} */ label, /** @type {any} */ show, more = {}) =>
    html`<${Sparkline} values=${points[name]} at=${points.at} label=${label} show=${show} ...${more} />`;
  return html`
    <${Failure} error=${error} next=${next} known />
    <${Problems} problems=${data.problems} />
    <section class="card" aria-label="The last five minutes">
      <div class="sparks">
        ${broker && chart("rate", "requests", rate)}
        ${broker && chart("success", "success", percent, { zero: false, most: 1 })}
        ${broker && chart("p50", "p50", seconds)}
        ${broker && chart("p99", "p99", seconds)}
        ${broker && chart("connections", "connections", count)}
        ${broker && chart("waiting", "waiting", count)}
        ${chart("lag", "loop lag, at most", seconds)}
      </div>
    </section>
    ${broker && html`<${Listeners} listeners=${broker.listeners} />`}
    <${Card} title="The process">
      <dl class="facts">
        <div><dt>Up for</dt><dd>${span(data.at - self.started)}</dd></div>
        <div><dt>State</dt><dd>${broker?.draining ? html`<${Mark} kind="warn">drains, ${count(broker.connections_left)} connections left<//>` : "serves"}</dd></div>
        ${broker && html`<div><dt>Destinations</dt><dd>${count(broker.routes)}${broker.expected > 0 && `, ${count(broker.expected)} expected`}</dd></div>
        <div><dt>Rejected</dt><dd>${count(broker.rejected)}</dd></div>
        <div><dt>Lost</dt><dd>${count(broker.lost)}</dd></div>`}
        <div><dt>Workers</dt><dd>${count(data.node.workers)}</dd></div>
        <div><dt>Messages</dt><dd>${brief(data.node.messages)}</dd></div>
      </dl>
    <//>
    <${Operations} draining=${broker?.draining} again=${() => { again(); onReturn(); }} />`;
}
