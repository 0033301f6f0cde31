// Parts that several pages show. Text is set as text: no string becomes HTML.

import { age, clock, parseTime } from "./format.js";
import { html, nothing } from "./vendor/lit-html.js";

export { html, nothing };

const KINDS = {
  good: [
    "attached",
    "available",
    "in-use",
    "up",
    "ok",
    "enabled",
    "detached",
    "proved",
    "deleted",
  ],
  busy: [
    "attaching",
    "detaching",
    "reserved",
    "awaiting-transfer",
    "creating",
    "deleting",
    "extending",
    "pending",
    "waiting",
    "moving",
    "new",
  ],
  warn: ["degraded", "disabled", "fenced", "drained", "unknown", "asserted", "left"],
  bad: ["down", "failed", "conflict", "error"],
};

export function kindOf(status) {
  for (const [kind, names] of Object.entries(KINDS)) if (names.includes(status)) return kind;
  return String(status).startsWith("error") ? "bad" : "plain";
}

export const badge = (text, kind = kindOf(text)) =>
  html`<span class="badge ${kind}">${String(text).replaceAll("_", " ")}</span>`;

/** Show how long ago something was; the exact time is its title. */
export function ago(text) {
  const time = parseTime(text);
  if (!time) return html`<span class="muted">–</span>`;
  return html`<time datetime=${time.toISOString()} title=${clock(time)}>${age(time)}</time>`;
}

export function exactly(text) {
  const time = parseTime(text);
  return time ? html`<time datetime=${time.toISOString()}>${clock(time)} UTC</time>` : "–";
}

export const pathOf = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;

// An id has its title in full; a name of any script keeps its direction to itself.
const shortened = (id) => (id.length === 36 ? id.slice(0, 8) : id);

export const idLink = (kind, id) =>
  id ? html`<a class="id" href=${pathOf(kind, id)} title=${id}>${shortened(id)}</a>` : "–";

/** A link to a volume, by its name if it has one. */
export const volumeLink = (id, text) =>
  text ? html`<a href=${pathOf("volumes", id)} title=${id}>${name(text)}</a>` : idLink("volumes", id);

/** The path of a device, by its last part; "na" is what clients say that know none. */
export const device = (path) =>
  path && path !== "na"
    ? html`<span class="path" title=${path}>${path.slice(path.lastIndexOf("/") + 1)}</span>`
    : html`<span class="muted">–</span>`;

export const name = (text) => html`<bdi class="name">${text}</bdi>`;

export const hostLink = (host, isAdmin = true) => {
  if (!host) return html`<span class="muted">–</span>`;
  return isAdmin ? html`<a href=${pathOf("hosts", host)}>${name(host)}</a>` : name(host);
};

/**
 * A table that is a list of cards on narrow screens, where the roles keep it a table for screen
 * readers.
 *
 * columns: [{head, cell(row), kind?}]
 */
export function table(caption, columns, rows, empty = "There is none.") {
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  const row = (item) =>
    html`<tr role="row">
      ${columns.map(
        ({ head, cell, kind }) =>
          html`<td role="cell" class=${kind ?? nothing}>
            <span class="label" aria-hidden="true">${head}</span>
            <div class="value">${cell(item)}</div>
          </td>`,
      )}
    </tr>`;
  return html`<div class="scroll">
    <table role="table">
      <caption class="hidden">
        ${caption}
      </caption>
      <thead role="rowgroup">
        <tr role="row">
          ${columns.map(
            ({ head, kind }) =>
              html`<th role="columnheader" scope="col" class=${kind ?? nothing}>${head}</th>`,
          )}
        </tr>
      </thead>
      <tbody role="rowgroup">
        ${rows.map(row)}
      </tbody>
    </table>
  </div>`;
}

/** Pairs of a name and a value. */
export const facts = (pairs) =>
  html`<dl class="facts">
    ${pairs
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(
        ([term, value]) =>
          html`<div>
            <dt>${term}</dt>
            <dd>${value}</dd>
          </div>`,
      )}
  </dl>`;

export const section = (title, content, aside = nothing) =>
  html`<section>
    <div class="section-head">
      <h2>${title}</h2>
      ${aside}
    </div>
    ${content}
  </section>`;

export const failure = (error) =>
  html`<div class="notice bad" role="alert">
    <p>${error.message}</p>
    ${error.requestId ? html`<p class="muted">Request id ${error.requestId}</p>` : nothing}
  </div>`;

/** A form of filters: each change is a new address, which can be kept. */
export function filters(fields, query, go) {
  const change = (event) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(event.currentTarget));
    go({ ...values, page: "" });
  };
  return html`<form
    class="filters"
    role="search"
    aria-label="Filter this list"
    @submit=${change}
    @change=${change}
  >
    ${fields.map((field) => filter(field, query[field.name] ?? ""))}
    <button type="submit">Filter</button>
  </form>`;
}

function filter({ name: key, label, options }, value) {
  const control = options
    ? html`<select name=${key} .value=${value}>
        ${options.map(
          ([option, text]) =>
            html`<option value=${option} ?selected=${option === value}>${text}</option>`,
        )}
      </select>`
    : html`<input name=${key} .value=${value} autocomplete="off" spellcheck="false" />`;
  return html`<label>${label}${control}</label>`;
}

export function pager(count, query, go, size) {
  const page = Number(query.page) || 1;
  const pages = Math.max(1, Math.ceil(count / size));
  if (pages === 1)
    return html`<p class="pager"><span>${count.toLocaleString("en")} in all</span></p>`;
  const to = (number) => () => go({ ...query, page: number === 1 ? "" : String(number) });
  return html`<nav class="pager" aria-label="Pages">
    <button ?disabled=${page <= 1} @click=${to(page - 1)}>Previous</button>
    <span>Page ${page} of ${pages}, ${count.toLocaleString("en")} in all</span>
    <button ?disabled=${page >= pages} @click=${to(page + 1)}>Next</button>
  </nav>`;
}
