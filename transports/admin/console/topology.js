// @ts-check
// What surrounds the broker, as a picture that the broker has laid out.

import { html, useEffect, useRef } from "./vendor/htm-preact.js";
import { usePoll } from "./api.js";
import { Card, Failure, Loading } from "./parts.js";

const EVERY = 10000;

/** @param {any} props */
function Picture({ source }) {
  const place = useRef(/** @type {any} */ (null));
  useEffect(() => {
    // The page has colours of its own for it, and its policy permits no styles but its own.
    const bare = source.replace(/<style>[^]*?<\/style>/, "");
    const root = new DOMParser().parseFromString(bare, "image/svg+xml").documentElement;
    if (root.localName !== "svg") return;
    place.current.replaceChildren(document.importNode(root, true));
  }, [source]);
  return html`<div class="picture scroll" tabindex="0" role="region" aria-label="What surrounds the broker" ref=${place}></div>`;
}

export function Topology() {
  const { data, error, next } = usePoll("/api/v1/topology", EVERY);
  if (!data) return error ? html`<${Failure} error=${error} next=${next} />` : html`<${Loading} />`;
  return html`<${Failure} error=${error} next=${next} known />
    <${Card} title="Requesters, broker, services" about="Clients, services and peer brokers around the broker, the busiest first; it is drawn anew every 10 s.">
      <${Picture} source=${data} />
    <//>`;
}
