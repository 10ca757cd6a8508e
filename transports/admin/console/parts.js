// @ts-check
// The parts that pages are made of: tables, tiles, sparklines, dialogs, notes.

import { createContext, html, useContext, useEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { clock, count, counted, ordered, short, visible } from "./format.js";

/** What the principal is and may do. */
export const Self = createContext(/** @type {any} */ ({}));

/** Most rows of a table. */
export const MOST = 1000;

/**
 * A card with a heading.
 * @param {any} props
 */
export function Card({ title, about, extra, children, className = "" }) {
  return html`<section class=${`card ${className}`}>
    ${title && html`<div class="card-head"><h2>${title}</h2>${extra}</div>`}
    ${about && html`<p class="about">${about}</p>`}
    ${children}
  </section>`;
}

/**
 * A text of a peer: never markup, no unseen characters, cut if it is long.
 * @param {any} props
 */
export function Text({ value, most = 80 }) {
  const whole = visible(value);
  const shown = short(whole, most);
  return shown === whole ? whole : html`<span title=${whole}>${shown}</span>`;
}

/**
 * Tags, those of the service and the route left out, which have columns of their own.
 * @param {any} props
 */
export function Tags({ tags }) {
  const own = Object.entries(tags).filter(([name]) => name !== "service" && name !== "route");
  return html`<span class="tags">
    ${own.map(([name, value]) => html`<code class="tag"><${Text} value=${value === "" ? name : `${name}=${value}`} most=${60} /></code>`)}
  </span>`;
}

/**
 * A mark with a text beside it: never colour alone.
 * @param {any} props
 */
export function Mark({ kind, children }) {
  return html`<span class=${`mark ${kind}`}>${children}</span>`;
}

/**
 * A share of a limit.
 * @param {any} props
 */
export function Bar({ share, label }) {
  const part = Math.max(0, Math.min(1, share));
  const kind = share >= 1 ? "bad" : share > 0.8 ? "warn" : "";
  return html`<span class=${`bar ${kind}`} role="img" aria-label=${label}>
    <span style=${{ width: `${Math.max(part * 100, share > 0 ? 1 : 0)}%` }}></span>
  </span>`;
}

/**
 * What went wrong with the last request of the page, and when it is tried again.
 * @param {any} props
 */
export function Failure({ error, next, known }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    if (!error) return undefined;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [error]);
  if (!error || error.status === 401) return null;
  if (error.status === 403) {
    return html`<div class="note" role="status"><h2>You may not see this</h2>
      <p>The broker answers “${visible(error.message)}”. Its rules would have to allow it to you.</p></div>`;
  }
  const left = Math.max(0, Math.ceil((next - now) / 1000));
  const gone = error.status === 0;
  return html`<div class="note bad" role="alert">
    <h2>${gone ? "The broker is gone" : `The broker answers ${error.status}`}</h2>
    <p>${gone ? "It has stopped, or cannot be reached from here." : visible(error.message)}${" "}
      ${next > 0 && (left > 0 ? `Next attempt in ${left} s.` : "Trying again …")}
      ${known ? " What you see below is what it said last." : ""}</p>
  </div>`;
}

/**
 * The words in place of rows that there are none of.
 * @param {any} props
 */
export function Empty({ title, children }) {
  return html`<div class="empty"><p><b>${title}</b></p><p>${children}</p></div>`;
}

/** Lines in place of what has not come yet. */
export function Loading() {
  return html`<div class="loading" role="status" aria-label="Loading"><span></span><span></span><span></span></div>`;
}

/**
 * Whether a row is one of a broker with several processes, which has the number of its process.
 * @param {any} row
 */
export function isOfProcess(row) {
  return row.process != null;
}

const PROCESS = { key: "process", label: "Process", number: true, show: (/** @type {any} */ row) => count(row.process) };

/**
 * A table that is sorted by its columns. Rows of processes have one column more.
 *
 * A column has a `key`, a `label`, a `show(row)`, and for numbers `number: true`. It is sorted by
 * `value(row)`, or by the field of its key. `wide` may wrap, `whole` may not, `title`
 * explains the heading, and `main` is the head of a row, and of its card on a phone.
 * @param {any} props
 */
export function Table({ columns: given, rows, total, of, sort: first, empty, onSort, caption, id = (/** @type {any} */ _, /** @type {number} */ at) => at }) {
  const columns = rows.some(isOfProcess) ? [...given.slice(0, 1), PROCESS, ...given.slice(1)] : given;
  const [sort, setSort] = useState(first ?? { key: columns[0].key, down: false });
  const column = columns.find((/** @type {any} */ each) => each.key === sort.key) ?? columns[0];
  const value = column.value ?? ((/** @type {any} */ row) => row[column.key]);
  const shown = useMemo(() => ordered(rows, value, sort.down).slice(0, MOST), [rows, sort.key, sort.down]);
  const by = (/** @type {any} */ each) => {
    const next = { key: each.key, down: sort.key === each.key ? !sort.down : Boolean(each.number) };
    setSort(next);
    onSort?.(next);
  };
  if (!rows.length) return empty ?? html`<${Empty} title=${`No ${of}s`} />`;
  return html`
    <label class="sort-by">Sort by${" "}
      <select value=${sort.key} onChange=${(/** @type {any} */ event) => by({ ...columns.find((/** @type {any} */ each) => each.key === event.target.value) })}>
        ${columns.filter((/** @type {any} */ each) => each.label).map((/** @type {any} */ each) => html`<option value=${each.key}>${each.label}</option>`)}
      </select>
    </label>
    <div class="scroll" tabindex="0" role="region" aria-label=${caption}>
      <table>
        <caption class="unseen">${caption}</caption>
        <thead><tr>${columns.map((/** @type {any} */ each) => html`
          <th scope="col" key=${each.key} class=${each.number ? "n" : ""} title=${each.title}
            aria-sort=${sort.key === each.key ? (sort.down ? "descending" : "ascending") : each.label ? "none" : null}>
            ${each.label ? html`<button type="button" onClick=${() => by(each)}>${each.number && html`<i aria-hidden="true"></i>`}${each.label}${!each.number && html`<i aria-hidden="true"></i>`}</button>` : html`<span class="unseen">Actions</span>`}
          </th>`)}</tr></thead>
        <tbody>${shown.map((row, at) => html`<tr key=${`${row.process ?? ""} ${id(row, at)}`}>${columns.map((/** @type {any} */ each) => {
          const shape = [each.number && "n", each.wide && "wide", each.main && "main", each.whole && "whole"].filter(Boolean).join(" ");
          const content = each.show ? each.show(row) : html`<${Text} value=${row[each.key]} />`;
          return each.main
            ? html`<th scope="row" class=${shape}>${content}</th>`
            : html`<td class=${shape} data-label=${each.label}>${content}</td>`;
        })}</tr>`)}</tbody>
      </table>
    </div>
    <p class="more" role="status">${total > shown.length
      ? html`<b>Only ${count(shown.length)} of ${count(total)} ${of}s are shown</b>, the first by ${column.label.toLowerCase()}. Filter to see others.`
      : counted(total ?? rows.length, of)}</p>`;
}

/**
 * A small chart of a column of the last minutes.
 *
 * It is drawn here: a library for charts is 51 KB, and does what is not needed for a line.
 * @param {any} props
 */
export function Sparkline({ values, at, show, label, zero = true, most }) {
  const [hover, setHover] = useState(/** @type {number | null} */ (null));
  const known = values.filter((/** @type {any} */ each) => each != null);
  const last = values[values.length - 1];
  const width = 200;
  const height = 44;
  const high = Math.max(most ?? 0, ...known, zero ? 0 : -Infinity);
  const low = zero ? 0 : Math.min(...known, most ?? Infinity);
  const y = (/** @type {number} */ each) => height - 3 - ((each - low) / (high - low || 1)) * (height - 8);
  const x = (/** @type {number} */ index) => (values.length < 2 ? width : (index / (values.length - 1)) * width);
  let line = "";
  let area = "";
  let start = -1;
  values.forEach((/** @type {any} */ each, /** @type {number} */ index) => {
    if (each == null) {
      if (start >= 0) area += `L${x(index - 1).toFixed(1)} ${height}L${x(start).toFixed(1)} ${height}Z`;
      start = -1;
      return;
    }
    const point = `${x(index).toFixed(1)} ${y(each).toFixed(1)}`;
    line += `${start < 0 ? "M" : "L"}${point}`;
    area += `${start < 0 ? "M" : "L"}${point}`;
    if (start < 0) start = index;
  });
  if (start >= 0) area += `L${width} ${height}L${x(start).toFixed(1)} ${height}Z`;
  const over = (/** @type {any} */ event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    setHover(Math.max(0, Math.min(values.length - 1, Math.round(share * (values.length - 1)))));
  };
  const index = hover != null && hover < values.length ? hover : null;
  const range = known.length ? `from ${show(Math.min(...known))} to ${show(Math.max(...known))}` : "no value";
  return html`<div class="spark">
    <b>${show(index == null ? last : values[index])}</b>
    <span class="spark-name">${label}${index != null && html`<time>${clock(at[index])}</time>`}</span>
    <svg viewBox=${`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img"
      aria-label=${`${label} in the last minutes: ${range}, now ${show(last)}`}
      onPointerMove=${over} onPointerLeave=${() => setHover(null)}>
      <path class="area" d=${area} /><path class="line" d=${line} />
      ${index != null && html`<path class="at" d=${`M${x(index)} 0V${height}`} />`}
    </svg>
  </div>`;
}

/**
 * A dialog above the page. The browser keeps the focus in it, and gives it back.
 * @param {any} props
 */
export function Dialog({ title, confirm, danger, onConfirm, onClose, children }) {
  const element = useRef(/** @type {any} */ (null));
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => element.current.showModal(), []);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    setError("");
    try {
      await onConfirm();
      // Not `onClose`: while it is open, no element outside of it can have the focus.
      element.current?.close();
    } catch (failed) {
      setError(visible(/** @type {Error} */ (failed).message));
      setBusy(false);
    }
  };
  return html`<dialog ref=${element} aria-labelledby="dialog-title" onClose=${onClose}
    onCancel=${(/** @type {Event} */ event) => busy && event.preventDefault()}>
    <form onSubmit=${submit}>
      <h2 id="dialog-title">${title}</h2>
      ${children}
      ${error && html`<p class="error" role="alert">${error}</p>`}
      <div class="buttons">
        <button type="button" onClick=${() => element.current.close()}>Cancel</button>
        <button type="submit" class=${danger ? "danger" : "primary"} disabled=${busy}>${confirm}</button>
      </div>
    </form>
  </dialog>`;
}

/**
 * A button that opens a dialog, if the principal may operate the broker.
 * @param {any} props
 */
export function Operation({ label, describe, name, children, ...dialog }) {
  const [open, setOpen] = useState(false);
  const self = useContext(Self);
  if (!self.operate || (name && !self.operations.includes(name))) return null;
  return html`
    <button type="button" class=${dialog.danger ? "danger" : ""} aria-label=${describe} onClick=${() => setOpen(true)}>${label}</button>
    ${open && html`<${Dialog} ...${dialog} onClose=${() => setOpen(false)}>${children}<//>`}`;
}

/**
 * A field that filters the rows of a table, with the rows.
 * @param {any[]} rows
 * @param {(row: any) => string} textOf
 * @param {string} label
 */
export function useFilter(rows, textOf, label) {
  const [wanted, setWanted] = useState("");
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  const found = words.length
    ? rows.filter((row) => {
        const text = textOf(row).toLowerCase();
        return words.every((each) => text.includes(each));
      })
    : rows;
  const field = html`<input type="search" class="filter" placeholder="Filter" aria-label=${label}
    value=${wanted} onInput=${(/** @type {any} */ event) => setWanted(event.target.value)} />`;
  return { found, field, isFiltered: words.length > 0 };
}
