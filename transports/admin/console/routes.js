// @ts-check
// The destinations, and where a request would go: why there, and why not elsewhere.

import { html, useEffect, useState } from "./vendor/htm-preact.js";
import { get, usePoll } from "./api.js";
import { brief, count, counted, query, seconds, span, visible } from "./format.js";
import { Card, Empty, Failure, Loading, Mark, MOST, Table, Tags, Text, useFilter } from "./parts.js";

/** @param {any} row */
function Where({ row }) {
  return html`<span><b><${Text} value=${row.service} most=${40} /></b>${" "}<${Tags} tags=${row.tags} />${" "}<span class="dim">${visible(row.peer)}</span></span>`;
}

/** @param {any} props */
function Answer({ found }) {
  const chosen = found.matching.find((/** @type {any} */ row) => row.route === found.next);
  const how = found.routing === "multicast" ? "All of them get it." : `One is chosen by ${found.method}.`;
  const others = found.others.filter((/** @type {any} */ each) => each.missing.length + each.different.length > 0);
  return html`<div class="answer" role="status">
    ${found.matches
      ? html`<p><${Mark} kind="good">${counted(found.matches, "destination")} ${found.matches === 1 ? "matches" : "match"}<//> ${how}
          ${chosen && html`${" "}Next: <${Where} row=${chosen} />`}</p>`
      : html`<p><${Mark} kind="bad">No destination matches<//>
          ${found.expected ? " One that does is expected, and not here yet." : ""}
          ${found.wait > 0 ? ` A request would wait ${seconds(found.wait)} for one.` : " A request would be rejected at once."}</p>`}
    ${found.matching.length > 0 && html`<ul class="reasons">${found.matching.slice(0, 20).map((/** @type {any} */ row) => html`
      <li key=${row.route}><${Mark} kind="good">matches<//><${Where} row=${row} /></li>`)}</ul>`}
    ${others.length > 0 && html`<h3>Why not the others?</h3>
      <ul class="reasons">${others.slice(0, 20).map((/** @type {any} */ each) => html`<li key=${each.route.route}>
        <span>${each.different.length > 0 && html`<span class="isbad">has ${each.different.map((/** @type {string} */ tag) => html`<code class="tag"><${Text} value=${tag} most=${50} /></code>${" "}`)}</span>`}
        ${each.missing.length > 0 && html`<span class="isbad">lacks ${each.missing.map((/** @type {string} */ tag) => html`<code class="tag"><${Text} value=${tag} most=${50} /></code>${" "}`)}</span>`}</span>
        <${Where} row=${each.route} /></li>`)}</ul>
      ${found.routes - found.matches > others.slice(0, 20).length && html`<p class="more">The ${count(Math.min(20, others.length))} nearest of ${count(found.routes - found.matches)}.</p>`}`}
  </div>`;
}

/** @param {any} props */
function Resolve({ first }) {
  const [text, setText] = useState(first);
  const [found, setFound] = useState(/** @type {any} */ (null));
  const [error, setError] = useState("");
  const ask = async (/** @type {string} */ asked) => {
    setError("");
    try {
      setFound(await get(`/api/v1/resolve${query({ q: asked })}`));
    } catch (failed) {
      setFound(null);
      setError(visible(/** @type {Error} */ (failed).message));
    }
  };
  useEffect(() => {
    if (first) ask(first);
  }, [first]);
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (text.trim()) ask(text.trim());
  };
  return html`<${Card} title="Where would a request go?" about=${html`Tags as in an address: <code>service=orders region=eu</code>, <code>@multicast service=orders</code>, <code>@shard=user service=orders user=42</code>.`}>
    <form class="ask" onSubmit=${submit}>
      <input type="text" aria-label="The tags of the request" placeholder="service=orders region=eu" spellcheck="false" autocapitalize="off" autocomplete="off" value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} />
      <button type="submit" class="primary">Resolve</button>
    </form>
    ${error && html`<p class="error" role="alert">${error}</p>`}
    ${found && html`<${Answer} found=${found} />`}
  <//>`;
}

/** @param {any} props */
export function Routes({ fields }) {
  const [sort, setSort] = useState({ key: "service", down: false });
  const [cut, setCut] = useState(false);
  const { data, error, next } = usePoll(`/api/v1/routes${query({ limit: MOST, sort: cut ? `${sort.down ? "-" : ""}${sort.key}` : null })}`);
  const { found, field, isFiltered } = useFilter(
    data?.rows ?? [],
    (row) => visible(`${row.service} ${row.route} ${row.peer} ${Object.entries(row.tags).map((each) => each.join("=")).join(" ")}`),
    "Filter the destinations",
  );
  useEffect(() => setCut(Boolean(data && data.total > data.rows.length)), [data]);
  const now = Date.now() / 1000;
  const columns = [
    { key: "service", label: "Service", main: true, show: (/** @type {any} */ row) => html`<${Text} value=${row.service} most=${60} />` },
    { key: "tags", label: "Tags", wide: true, value: (/** @type {any} */ row) => JSON.stringify(row.tags), show: (/** @type {any} */ row) => html`<${Tags} tags=${row.tags} />` },
    { key: "peer", label: "Peer" },
    { key: "busy", label: "State", value: (/** @type {any} */ row) => (row.expected ? 2 : Number(row.busy)),
      show: (/** @type {any} */ row) => (row.expected ? html`<${Mark} kind="">expected<//>` : row.busy ? html`<${Mark} kind="warn">busy<//>` : html`<${Mark} kind="good">ready<//>`) },
    { key: "outstanding", label: "In progress", number: true, show: (/** @type {any} */ row) => count(row.outstanding) },
    { key: "requests", label: "Requests", number: true, show: (/** @type {any} */ row) => brief(row.requests) },
    { key: "latency", label: "Latency", number: true, title: "A moving average of the answers", show: (/** @type {any} */ row) => seconds(row.latency || null) },
    { key: "since", label: "Since", number: true, value: (/** @type {any} */ row) => -row.since, show: (/** @type {any} */ row) => (row.since ? span(now - row.since) : "–") },
  ];
  return html`<${Failure} error=${error} next=${next} known=${data} />
    <${Resolve} first=${fields.get("q") ?? ""} />
    <${Card} title="Destinations" extra=${field}>
      ${!data ? !error && html`<${Loading} />` : html`<${Table} columns=${columns} rows=${found} total=${isFiltered ? found.length : data.total} of="destination" sort=${sort} onSort=${setSort}
        caption="Destinations" id=${(/** @type {any} */ row) => row.route}
        empty=${html`<${Empty} title=${isFiltered ? "No destination matches" : "No destination has registered"}>${isFiltered ? "Change the filter." : "Requests wait for one, or are rejected."}<//>`} />`}
    <//>`;
}
