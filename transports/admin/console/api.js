// @ts-check
// Requests to the broker: polls, operations, and the stream of events.

import { useEffect, useRef, useState } from "./vendor/htm-preact.js";

const EVERY = 2000;
const LONGEST = 30000;
const PATIENCE = 10000;

// A token that was typed in. It is kept here alone, so closing the page forgets it.
let authorization = "";
let isRefused = () => {};

/** @param {string} token */
export function useToken(token) {
  authorization = token ? `Bearer ${token}` : "";
}

/**
 * Set the function that is called when the broker asks for credentials.
 * @param {() => void} action
 */
export function onRefused(action) {
  isRefused = action;
}

export class ApiError extends Error {
  /**
   * @param {number} status 0 if there was no answer
   * @param {string} text
   */
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

function headers() {
  return authorization ? { authorization } : {};
}

/**
 * @param {string} path
 * @param {RequestInit} [options]
 */
async function answerOf(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { ...options, headers: { ...options.headers, ...headers() } });
  } catch (error) {
    if (options.signal?.aborted && options.signal.reason?.name !== "TimeoutError") throw error;
    throw new ApiError(0, "the broker does not answer");
  }
  if (!answer.ok) {
    if (answer.status === 401) isRefused();
    const type = answer.headers.get("content-type") ?? "";
    const text = (await answer.text().catch(() => "")).trim();
    throw new ApiError(answer.status, type.startsWith("application/json") ? errorIn(text) : text || answer.statusText);
  }
  return answer;
}

/** @param {string} text */
function errorIn(text) {
  try {
    return String(JSON.parse(text).error ?? text);
  } catch {
    return text;
  }
}

/**
 * Return the answer to a GET, as JSON or as text.
 * @param {string} path
 * @param {AbortSignal} [signal]
 */
export async function get(path, signal) {
  const given = AbortSignal.timeout(PATIENCE);
  const answer = await answerOf(path, { signal: signal ? AbortSignal.any([signal, given]) : given });
  const isJson = (answer.headers.get("content-type") ?? "").startsWith("application/json");
  try {
    return await (isJson ? answer.json() : answer.text());
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "the broker does not answer");
  }
}

/**
 * Return the answer to a POST of JSON.
 * @param {string} path
 * @param {object} [body]
 */
export async function post(path, body = {}) {
  const answer = await answerOf(path, {
    method: "POST",
    body: JSON.stringify(body),
    headers: { "content-type": "application/json" },
  });
  return answer.json();
}

/**
 * Return the milliseconds until the next attempt after some failures in a row.
 * @param {number} failures
 */
export function backOff(failures) {
  return failures ? Math.min(EVERY * 2 ** (failures - 1), LONGEST) : EVERY;
}

/**
 * Ask for a path now and every two seconds, while the page can be seen.
 * @param {string | null} path null: ask for nothing
 * @param {number} [every] in milliseconds
 * @returns {{data: any, error: ApiError | null, again: () => void, next: number}}
 */
export function usePoll(path, every = EVERY) {
  const [state, setState] = useState(/** @type {any} */ ({ data: null, error: null, of: "", next: 0 }));
  const again = useRef(() => {});
  useEffect(() => {
    if (path === null) return undefined;
    let timer = 0;
    let failures = 0;
    let running = /** @type {AbortController | null} */ (null);
    const table = path.split("?")[0];

    async function ask() {
      clearTimeout(timer);
      if (running || document.hidden) return;
      const own = (running = new AbortController());
      let wait = every;
      try {
        const data = await get(/** @type {string} */ (path), own.signal);
        failures = 0;
        setState({ data, error: null, of: table, next: 0 });
      } catch (error) {
        if (own.signal.aborted) return;
        failures += 1;
        wait = Math.max(every, backOff(failures));
        // What was known stays on the page, with the error above it; what may not be seen does not.
        setState((/** @type {any} */ last) => ({
          data: last.of === table && /** @type {ApiError} */ (error).status === 0 ? last.data : null,
          error,
          of: table,
          next: Date.now() + wait,
        }));
      } finally {
        if (running === own) running = null;
      }
      if (!document.hidden && !own.signal.aborted) timer = window.setTimeout(ask, wait);
    }

    function stop() {
      clearTimeout(timer);
      running?.abort();
      running = null;
    }

    const onVisibility = () => (document.hidden ? stop() : ask());
    document.addEventListener("visibilitychange", onVisibility);
    again.current = ask;
    ask();
    return () => {
      document.removeEventListener("visibilitychange", onVisibility);
      stop();
    };
  }, [path, every]);
  const table = path?.split("?")[0];
  const current = state.of === table ? state : { data: null, error: null, next: 0 };
  return { ...current, again: () => again.current() };
}

/**
 * Return the events in a part of a stream, and what is left of it.
 * @param {string} text
 * @returns {{events: {id: string, data: any}[], rest: string}}
 */
export function parseEvents(text) {
  const blocks = text.split("\n\n");
  const rest = blocks.pop() ?? "";
  const events = [];
  for (const block of blocks) {
    let id = "";
    let data = "";
    for (const line of block.split("\n")) {
      if (line.startsWith("id: ")) id = line.slice(4);
      else if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (data) events.push({ id, data: JSON.parse(data) });
  }
  return { events, rest };
}

/**
 * Follow the events while the page can be seen; go on after the last one when it can be again.
 *
 * It is no `EventSource`, which cannot send a token.
 * @param {(events: {id: string, data: any}[]) => void} onEvents
 * @returns {{error: ApiError | null, next: number}}
 */
export function useEvents(onEvents) {
  const [state, setState] = useState(/** @type {any} */ ({ error: null, next: 0 }));
  useEffect(() => {
    // Of no run of the program: the broker then sends all that it has kept.
    let last = "console-0";
    let timer = 0;
    let failures = 0;
    let running = /** @type {AbortController | null} */ (null);

    async function follow() {
      clearTimeout(timer);
      if (running || document.hidden) return;
      const own = (running = new AbortController());
      try {
        const answer = await answerOf("/api/v1/events", { signal: own.signal, headers: { "last-event-id": last } });
        const reader = /** @type {ReadableStream} */ (answer.body).pipeThrough(new TextDecoderStream()).getReader();
        setState({ error: null, next: 0 });
        failures = 0;
        let rest = "";
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          const found = parseEvents(rest + value);
          rest = found.rest;
          if (found.events.length) {
            last = found.events[found.events.length - 1].id;
            onEvents(found.events);
          }
        }
        throw new ApiError(0, "the broker has ended the stream");
      } catch (error) {
        if (own.signal.aborted) return;
        failures += 1;
        const known = error instanceof ApiError ? error : new ApiError(0, "the broker does not answer");
        setState({ error: known, next: Date.now() + backOff(failures) });
        timer = window.setTimeout(follow, backOff(failures));
      } finally {
        if (running === own) running = null;
      }
    }

    function stop() {
      clearTimeout(timer);
      running?.abort();
      running = null;
    }

    const onVisibility = () => (document.hidden ? stop() : follow());
    document.addEventListener("visibilitychange", onVisibility);
    follow();
    return () => {
      document.removeEventListener("visibilitychange", onVisibility);
      stop();
    };
  }, []);
  return state;
}
