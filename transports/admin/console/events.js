// @ts-check
// The events of the broker, as they happen.

import { html, useCallback, useRef, useState } from "./vendor/htm-preact.js";
import { useEvents } from "./api.js";
import { clock, count, visible } from "./format.js";
import { Card, Empty, Failure, Mark, Tags, Text, useFilter } from "./parts.js";

const MOST = 500;
const KINDS = /** @type {Record<string, string>} */ ({ joined: "good", serving: "good", "peer-up": "good", left: "", replaced: "", rejected: "warn", draining: "warn", lost: "bad", "peer-lost": "bad" });

/** @param {any} props */
function Row({ data }) {
  return html`<li class="event">
    <time datetime=${new Date(data.at * 1000).toISOString()}>${clock(data.at)}</time>
    <${Mark} kind=${KINDS[data.kind] ?? ""}>${visible(data.kind)}<//>
    <span class="event-text">
      ${data.service && html`<b><${Text} value=${data.service} most=${60} /></b>${" "}`}
      ${data.query && html`<a href=${`#/routes?${new URLSearchParams({ q: data.query })}`}><code><${Text} value=${data.query} most=${80} /></code></a>${" "}`}
      ${data.tags && html`<${Tags} tags=${Object.fromEntries(data.tags)} />${" "}`}
      ${data.peer && html`<span class="dim">${visible(data.peer)}</span>${" "}`}
      ${data.principal && html`<span class="dim">as ${visible(data.principal)}</span>${" "}`}
      ${data.reason && html`<span class="dim">${visible(data.reason)}</span>`}
    </span>
  </li>`;
}

export function Events() {
  const [events, setEvents] = useState(/** @type {any[]} */ ([]));
  const [missed, setMissed] = useState(0);
  const [paused, setPaused] = useState(/** @type {any[] | null} */ (null));
  const isPaused = useRef(false);
  const onEvents = useCallback((/** @type {any[]} */ found) => {
    setMissed((before) => before + found.reduce((sum, each) => sum + each.data.missed, 0));
    setEvents((before) => [...[...found].reverse(), ...before].slice(0, MOST));
  }, []);
  const { error, next } = useEvents(onEvents);
  const rows = paused ?? events;
  const { found, field, isFiltered } = useFilter(
    rows,
    ({ data }) => visible(`${data.kind} ${data.service} ${data.query} ${data.peer} ${data.reason} ${data.tags.map((/** @type {any} */ tag) => tag.join("=")).join(" ")}`),
    "Filter the events",
  );
  const pause = () => {
    isPaused.current = !isPaused.current;
    setPaused(isPaused.current ? events : null);
  };
  const extra = html`<span class="tools">${field}<button type="button" aria-pressed=${String(paused !== null)} onClick=${pause}>${paused ? "Go on" : "Pause"}</button></span>`;
  return html`<${Failure} error=${error} next=${next} known=${events.length > 0} />
    <${Card} title="As they happen" extra=${extra} about=${missed > 0 ? html`<${Mark} kind="warn">${count(missed)} missed<//> This page, or the broker, was too slow for them.` : null}>
      ${found.length
        ? html`<ol class="events" aria-label="Events, the last one first">${found.map((each) => html`<${Row} key=${each.id} data=${each.data} />`)}</ol>
            <p class="more" role="status">${found.length >= MOST ? `The last ${count(MOST)} are shown.` : `${count(found.length)} shown.`}${paused ? " Paused." : ""}</p>`
        : !error && html`<${Empty} title=${isFiltered ? "No event matches" : "Nothing has happened"}>
            ${isFiltered ? "Change the filter." : "Destinations that join and leave, and requests that find none, are shown here."}<//>`}
    <//>`;
}
