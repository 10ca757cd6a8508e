// @ts-check
// The frame of the console: its pages, who is signed in, and the colours.

import { html, render, useCallback, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { get, onRefused, useToken } from "./api.js";
import { visible } from "./format.js";
import { Failure, Loading, Self } from "./parts.js";
import { Overview } from "./overview.js";
import { Services } from "./services.js";
import { Connections } from "./connections.js";
import { Routes } from "./routes.js";
import { Waiting } from "./waiting.js";
import { Peers } from "./peers.js";
import { Workers } from "./workers.js";
import { Topology } from "./topology.js";
import { Events } from "./events.js";
import { Limits } from "./limits.js";
import { Trace } from "./trace.js";

/** @type {Record<string, [string, any, boolean]>} title, page, whether it needs a broker */
const PAGES = {
  overview: ["Overview", Overview, false],
  services: ["Services", Services, true],
  connections: ["Connections", Connections, true],
  routes: ["Routes", Routes, true],
  waiting: ["Waiting", Waiting, true],
  peers: ["Peers", Peers, true],
  workers: ["Workers", Workers, false],
  topology: ["Topology", Topology, false],
  events: ["Events", Events, true],
  limits: ["Limits", Limits, true],
  trace: ["Trace", Trace, false],
};

/** Return the page that the address names, and its fields. */
function place() {
  const [name, fields] = location.hash.replace(/^#\/?/, "").split("?");
  return { name: name in PAGES ? name : "overview", fields: new URLSearchParams(fields ?? "") };
}

const SCHEMES = ["auto", "light", "dark"];

function useScheme() {
  const [scheme, setScheme] = useState(() => {
    const kept = localStorage.getItem("scheme") ?? "";
    return SCHEMES.includes(kept) ? kept : "auto";
  });
  useEffect(() => {
    if (scheme === "auto") delete document.documentElement.dataset.scheme;
    else document.documentElement.dataset.scheme = scheme;
    localStorage.setItem("scheme", scheme);
  }, [scheme]);
  return [scheme, () => setScheme(SCHEMES[(SCHEMES.indexOf(scheme) + 1) % SCHEMES.length])];
}

/** @param {any} props */
function SignIn({ refused, onToken }) {
  const [token, setToken] = useState("");
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (token.trim()) onToken(token.trim());
  };
  return html`<div class="sign-in">
    <form class="card" onSubmit=${submit}>
      <h1>Sign in</h1>
      <p class="about">This broker asks its operators for credentials.</p>
      ${refused && html`<p class="error" role="alert">The broker did not accept this token.</p>`}
      <label for="token">Token</label>
      <input id="token" type="password" autocomplete="off" spellcheck="false" value=${token}
        onInput=${(/** @type {any} */ event) => setToken(event.target.value)} />
      <p class="hint">It is kept in the memory of this page alone.</p>
      <button type="submit" class="primary">Sign in with the token</button>
      <p class="or"><span>or</span></p>
      <a class="button" href="/sign-in">Sign in with a name and a password</a>
    </form>
  </div>`;
}

function App() {
  const [at, setAt] = useState(place());
  const [scheme, nextScheme] = useScheme();
  const [self, setSelf] = useState(/** @type {any} */ (null));
  const [failure, setFailure] = useState(/** @type {any} */ ({ error: null, next: 0 }));
  const [asks, setAsks] = useState("");
  const given = useRef(false);
  const main = useRef(/** @type {any} */ (null));

  const load = useCallback(async () => {
    try {
      setSelf(await get("/api/v1/self"));
      setAsks("");
      setFailure({ error: null, next: 0 });
    } catch (error) {
      setFailure({ error, next: Date.now() + 4000 });
    }
  }, []);
  useEffect(() => {
    onRefused(() => setAsks(given.current ? "again" : "first"));
    load();
  }, []);
  useEffect(() => {
    const { error, next } = failure;
    if (!error || error.status === 401 || error.status === 403) return undefined;
    const timer = setTimeout(() => document.hidden || load(), next - Date.now());
    const onVisibility = () => document.hidden || load();
    document.addEventListener("visibilitychange", onVisibility);
    return () => {
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisibility);
    };
  }, [failure]);
  useEffect(() => {
    const onHash = () => {
      setAt(place());
      main.current?.focus({ preventScroll: true });
      scrollTo(0, 0);
    };
    addEventListener("hashchange", onHash);
    return () => removeEventListener("hashchange", onHash);
  }, []);

  useEffect(() => {
    // On a phone the list of pages is one line, of which a part can be seen.
    document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [at.name, self !== null]);

  const [title, Page] = PAGES[at.name];
  const node = self ? visible(self.node) : "";
  useEffect(() => {
    document.title = [title, node, "Onward"].filter(Boolean).join(" · ");
  }, [title, node]);

  const signIn = (/** @type {string} */ token) => {
    given.current = true;
    useToken(token);
    load();
  };
  const shown = Object.entries(PAGES).filter(([, [, , broker]]) => self?.broker !== false || !broker);
  return html`
    <a class="skip" href="#content" onClick=${(/** @type {Event} */ event) => {
      event.preventDefault();
      main.current?.focus();
    }}>Skip to the content</a>
    <header>
      <a class="brand" href="#/overview"><span class="logo" aria-hidden="true"></span>Onward</a>
      <span class="node">${node}</span>
      <span class="grow"></span>
      ${self && html`<span class="whom">
        ${self.principal && html`<span class="principal" title="You are signed in as this principal">${visible(self.principal)}</span>`}
        <span class="may">${self.operate ? "may operate" : "read only"}</span>
      </span>`}
      <button type="button" class="scheme" onClick=${nextScheme}
        aria-label=${`Colours: ${scheme}. Change`} title="Colours: as the system, light, dark">
        <span class=${`scheme-${scheme}`} aria-hidden="true"></span><span class="scheme-name">${scheme}</span>
      </button>
    </header>
    ${asks
      ? html`<main id="content"><${SignIn} refused=${asks === "again"} onToken=${signIn} /></main>`
      : html`<div class="frame">
          <nav aria-label="Pages"><ul>${shown.map(([name, [text]]) => html`
            <li><a href=${`#/${name}`} aria-current=${name === at.name ? "page" : null}>${text}</a></li>`)}</ul></nav>
          <main id="content" ref=${main} tabindex="-1" aria-label=${title}>
            <h1 class=${at.name === "overview" ? "unseen" : ""}>${title}</h1>
            ${self
              ? html`<${Self.Provider} value=${self}><${Page} key=${at.name} fields=${at.fields} onReturn=${load} /><//>`
              : failure.error
                ? html`<${Failure} ...${failure} />`
                : html`<${Loading} />`}
          </main>
        </div>`}
    <footer>${self && `Onward ${self.version}`}</footer>`;
}

const root = /** @type {HTMLElement} */ (document.getElementById("console"));
root.replaceChildren();
render(html`<${App} />`, root);
