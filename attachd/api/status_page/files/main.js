// The frame of the page: routes, sign-in, reloads after events.

import { effects } from "./actions.js";
import { ApiError, learnRole } from "./api.js";
import { refresh } from "./dialog.js";
import { Watch } from "./events.js";
import { page as attachment } from "./pages/attachment.js";
import { page as attachments } from "./pages/attachments.js";
import { page as backends } from "./pages/backends.js";
import { page as host } from "./pages/host.js";
import { page as hosts } from "./pages/hosts.js";
import { page as problems } from "./pages/problems.js";
import { page as search, searchPath } from "./pages/search.js";
import { page as services } from "./pages/services.js";
import { page as volume } from "./pages/volume.js";
import { page as volumes } from "./pages/volumes.js";
import { loadSettings, session, signOut } from "./session.js";
import { signInForm } from "./sign-in.js";
import { failure, html, nothing } from "./view.js";
import { render } from "./vendor/lit-html.js";

const ROUTES = { "": problems, hosts, volumes, attachments, backends, services, search };
const ITEMS = { hosts: host, volumes: volume, attachments: attachment, search };
const TABS = [
  ["", "Now"],
  ["hosts", "Hosts", true],
  ["volumes", "Volumes"],
  ["attachments", "Attachments"],
  ["backends", "Back ends", true],
  ["services", "Managers and agents", true],
];
const FEED = 30; // Events that the page keeps.
const RELOAD_PAUSE = 1500; // Milliseconds between two reloads that events cause.
const CLOCK = 20_000; // Milliseconds between two updates of ages.

const app = document.getElementById("app");
const state = {
  page: null,
  tab: "",
  params: {},
  query: {},
  shownQuery: {},
  data: null,
  error: null,
  loading: false,
  feed: [],
  live: "",
  why: "",
  problem: null,
};
let watch = null;
let abort = new AbortController();
let timer = null;
let loadedAt = 0;

function announce(text) {
  document.getElementById("announcements").textContent = text;
}

function readAddress() {
  const [path, text = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [tab, ...rest] = path.split("/");
  const id = rest.length ? decode(rest.join("/")) : null;
  const page = (id === null ? ROUTES : ITEMS)[tab] ?? problems;
  return { tab, params: { id }, query: Object.fromEntries(new URLSearchParams(text)), page };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Change the query of the address: filters and the number of the page. */
function go(query) {
  const kept = Object.entries(query).filter(([, value]) => value !== "");
  const text = new URLSearchParams(kept).toString();
  location.hash = `#/${state.tab}${text ? `?${text}` : ""}`;
}

async function navigate() {
  const before = state.page;
  const formerId = state.params.id;
  Object.assign(state, readAddress());
  const isOther = before !== state.page || formerId !== state.params.id;
  if (isOther) state.data = null;
  await reload();
  if (before !== null && isOther) document.querySelector("h1")?.focus();
}

async function reload() {
  clearTimeout(timer);
  timer = null;
  abort.abort();
  abort = new AbortController();
  const { page, params, query } = state;
  const { signal } = abort;
  state.loading = true;
  show();
  try {
    const data = await page.load(params, query, signal);
    if (signal.aborted) return;
    Object.assign(state, { data, shownQuery: query, error: null, loading: false });
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof ApiError && error.status === 401) {
      leave(error.message);
      return;
    }
    // What was read before stays, beside the error.
    Object.assign(state, { error, loading: false });
  }
  loadedAt = Date.now();
  show();
}

function reloadSoon() {
  if (timer !== null) return;
  timer = setTimeout(
    reload,
    Math.max(250, loadedAt + (state.page.pause ?? RELOAD_PAUSE) - Date.now()),
  );
}

function take(event) {
  state.feed = [event, ...state.feed].slice(0, FEED);
  effects.events?.push(event);
  refresh();
  if (state.page?.concerns(event, state.params)) reloadSoon();
}

function setLive(live, why = "", status = 0) {
  if (status === 401) {
    leave(why);
    return;
  }
  if (live === "lost" && state.live !== "lost") announce(`Not live: ${why}`);
  if (live === "live" && state.live === "lost") announce("Live again");
  Object.assign(state, { live, why });
  show();
}

function startWatch() {
  watch?.stop();
  watch = new Watch({ onEvent: take, onState: setLive, onGap: reload });
}

function leave(why) {
  watch?.stop();
  watch = null;
  signOut();
  Object.assign(state, {
    data: null,
    feed: [],
    live: "",
    error: null,
    problem: why ? new Error(why) : null,
  });
  show();
}

async function enter() {
  try {
    await learnRole();
  } catch (error) {
    if (session.settings.auth_strategy !== "noauth" && [401, 403].includes(error.status)) {
      leave(error.message);
    } else {
      Object.assign(state, { problem: error, page: null });
      show();
      // The service may be about to start.
      setTimeout(enter, 3000);
    }
    return;
  }
  state.problem = null;
  await navigate();
  startWatch();
}

const LIVE = { live: "Live", paused: "Paused", lost: "Not live" };

const frame = (content) =>
  html` <a class="skip" href="#content" @click=${skip}>Skip to the content</a>
    <header>
      <a class="brand" href="#/"><img src="icon.svg" alt="" width="26" height="26" />attachd</a>
      <nav aria-label="Pages">
        ${TABS.filter(([, , admins]) => session.isAdmin || !admins).map(
          ([tab, text]) =>
            html`<a href=${`#/${tab}`} aria-current=${tab === state.tab ? "page" : nothing}
              >${text}</a
            >`,
        )}
      </nav>
      <form class="search" role="search" aria-label="Find" @submit=${find}>
        <input
          name="text"
          type="search"
          aria-label="Find an id, host, name or project"
          placeholder="Id, host, name or project"
          maxlength="255"
          autocomplete="off"
          spellcheck="false"
        />
      </form>
      <span class="live ${state.live}" title=${state.why}
        >${LIVE[state.live] ?? "Connecting"}</span
      >
      ${
        session.settings.auth_strategy === "noauth"
          ? nothing
          : html`<button class="quiet" @click=${() => leave("")}>
              Sign out${session.user ? html` <bdi>${session.user}</bdi>` : nothing}
            </button>`
      }
    </header>
    <main id="content" tabindex="-1" aria-busy=${state.loading}>${content}</main>`;

function skip(event) {
  event.preventDefault();
  document.getElementById("content").focus();
}

function find(event) {
  event.preventDefault();
  const text = new FormData(event.target).get("text").trim();
  if (text) location.hash = searchPath(text);
  event.target.reset();
}

const content = () =>
  html`<h1 tabindex="-1">${state.page.title(state.params, state.data)}</h1>
    ${state.live === "lost" ? html`<p class="notice warn">Not live: ${state.why} What is shown may be old; the page tries again.</p>` : nothing}
    ${state.error ? failure(state.error) : nothing}
    ${
      state.data === null
        ? state.error
          ? nothing
          : html`<p class="empty">Loading…</p>`
        : state.page.view(state.data, {
            params: state.params,
            query: state.shownQuery,
            feed: state.feed,
            go,
          })
    }`;

function show() {
  if (session.headers === null) {
    render(html`<main class="sign-in">${signInForm(state.problem, enter)}</main>`, app);
  } else if (state.page === null) {
    render(
      html`<main class="sign-in">
        <h1>attachd</h1>
        ${state.problem ? failure(state.problem) : html`<p>Loading…</p>`}
      </main>`,
      app,
    );
  } else {
    render(frame(content()), app);
    document.title = `${document.querySelector("h1").textContent.trim()} – attachd`;
  }
}

Object.assign(effects, { reload, announce });
window.addEventListener("hashchange", () => {
  if (watch) navigate();
});
setInterval(() => {
  if (state.data !== null && !document.hidden) show();
}, CLOCK);

try {
  await loadSettings();
  if (session.headers === null) show();
  else await enter();
} catch (error) {
  render(
    html`<main class="sign-in">
      <h1>attachd</h1>
      ${failure(error)}
    </main>`,
    app,
  );
}
