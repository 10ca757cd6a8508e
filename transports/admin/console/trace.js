// @ts-check
// The path of a message, hop by hop: where it waited, and who was silent.

import { html, useContext, useState } from "./vendor/htm-preact.js";
import { post } from "./api.js";
import { bytes, counted, seconds, visible } from "./format.js";
import { Card, Empty, Mark, Self, Text } from "./parts.js";

const RESULTS = /** @type {Record<string, string>} */ ({ handled: "good", failed: "bad" });

/** @param {any} props */
function Hop({ hop, first }) {
  return html`<li>
    <span class="dim">${seconds(hop.at - first)}</span>
    <div>
      <p><b>${visible(hop.kind)}</b> of ${visible(hop.node || hop.node_id)}${" "}<code class="dim"><${Text} value=${hop.worker.replace(/^0#/, "")} most=${60} /></code></p>
      <p class="dim">${hop.waited != null && `waited ${seconds(hop.waited)}, `}${hop.handled != null && `took ${seconds(hop.handled)}, `}${bytes(hop.bytes)}${" "}
        <${Mark} kind=${RESULTS[hop.result] ?? ""}>${visible(hop.result)}<//></p>
    </div>
  </li>`;
}

/** @param {any} props */
function Path({ found }) {
  const first = found.hops.length ? Math.min(...found.hops.map((/** @type {any} */ hop) => hop.at)) : 0;
  return html`<${Card} title=${counted(found.hops.length, "hop")} extra=${html`<span class="aside">${seconds(found.took)} in all</span>`}>
    ${found.answer
      ? html`<p role="status"><${Mark} kind="good">answered<//>${" "}<code><${Text} value=${asText(found.answer.payload)} most=${120} /></code></p>`
      : html`<p role="status"><${Mark} kind="bad">no answer<//> None came in time.</p>`}
    ${found.lost && html`<p><${Mark} kind="bad">lost<//>${" "}${visible(found.lost)}</p>`}
    ${found.hops.length
      ? html`<ol class="hops">${found.hops.map((/** @type {any} */ hop, /** @type {number} */ at) => html`<${Hop} key=${at} hop=${hop} first=${first} />`)}</ol>`
      : html`<${Empty} title="No hop was reported">Nodes report hops if they run with <code>--trace</code>.<//>`}
    ${found.silent.length > 0 && html`<h3>Silent</h3><ul class="reasons">${found.silent.map((/** @type {any} */ gap) => html`<li>
      <${Mark} kind="warn">after hop ${gap.after}<//><code><${Text} value=${gap.passed} most=${120} /></code></li>`)}</ul>`}
  <//>`;
}

/**
 * Return bytes in hexadecimal digits as text, if they are UTF-8.
 * @param {string} digits
 */
export function asText(digits) {
  const octets = Uint8Array.from(digits.match(/../g) ?? [], (each) => parseInt(each, 16));
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(octets);
  } catch {
    return digits;
  }
}

export function Trace() {
  const self = useContext(Self);
  const [kind, setKind] = useState("query");
  const [target, setTarget] = useState("");
  const [payload, setPayload] = useState("");
  const [found, setFound] = useState(/** @type {any} */ (null));
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  if (!self.operate) {
    return html`<div class="note" role="status"><h2>You may not trace</h2>
      <p>A trace sends a message, which may go anywhere: it needs the permission to operate the broker.</p></div>`;
  }
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    setError("");
    setFound(null);
    try {
      setFound(await post("/api/v1/trace", { [kind]: target.trim(), payload }));
    } catch (failed) {
      setError(visible(/** @type {Error} */ (failed).message));
    }
    setBusy(false);
  };
  return html`
    <${Card} title="Send a message and follow it" about=${html`It is a real message: its receiver handles it. The broker reports hops if it runs with <code>--trace</code>.`}>
      <form class="ask" onSubmit=${submit}>
        <select aria-label="How the receiver is named" value=${kind} onChange=${(/** @type {any} */ event) => setKind(event.target.value)}>
          <option value="query">tags</option><option value="route">route</option>
        </select>
        <input type="text" required aria-label="The receiver" placeholder=${kind === "query" ? "service=orders region=eu" : "1#127.0.0.1:4000 => echo"} spellcheck="false" autocapitalize="off" autocomplete="off" value=${target} onInput=${(/** @type {any} */ event) => setTarget(event.target.value)} />
        <input type="text" aria-label="The payload" placeholder="payload" value=${payload} onInput=${(/** @type {any} */ event) => setPayload(event.target.value)} />
        <button type="submit" class="primary" disabled=${busy}>${busy ? "Tracing …" : "Trace"}</button>
      </form>
      ${error && html`<p class="error" role="alert">${error}</p>`}
    <//>
    ${found && html`<${Path} found=${found} />`}`;
}
