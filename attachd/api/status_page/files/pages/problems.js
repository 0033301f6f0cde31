import { find, get, everywhere } from "../api.js";
import { plural } from "../format.js";
import { eventTitle } from "../pictures.js";
import { session } from "../session.js";
import {
  ago,
  badge,
  hostLink,
  html,
  idLink,
  name,
  nothing,
  section,
  volumeLink,
} from "../view.js";

const LIMIT = 20; // Of one kind of problem.
const LONG = 5 * 60; // Seconds after which attaching or detaching counts as a problem.

const inError = (signal) =>
  ["error_attaching", "error_detaching"].map((status) =>
    attachments({ status }, signal, (row) => ({
      ...row,
      text: row.error ?? "The API says no reason.",
    })),
  );

const inTrouble = (signal) =>
  ["failed", "degraded"].map((condition) =>
    attachments({ condition }, signal, (row) => ({
      ...row,
      status: condition,
      text: row.condition?.message ?? "",
      since: row.condition?.changed_at ?? row.created_at,
    })),
  );

function stuck(signal) {
  const before = new Date(Date.now() - LONG * 1000).toISOString().slice(0, 19);
  return ["attaching", "detaching"].map((status) =>
    attachments({ status, updated_at: `lt:${before}` }, signal, (row) => ({
      ...row,
      text: row.error ?? `It takes longer than ${LONG / 60} minutes.`,
      severity: "warn",
    })),
  );
}

async function attachments(filters, signal, show) {
  const query = { ...everywhere(), ...filters, limit: LIMIT, with_count: "true" };
  const answer = await get("/attachments/detail", query, signal);
  const items = answer.attachments.map((row) => ({
    kind: "attachments",
    since: row.created_at,
    ...show(row),
  }));
  return { items, count: answer.count, filters };
}

const brokenVolumes = (signal) =>
  ["error", "error_deleting", "error_extending"].map(async (status) => {
    const query = { ...everywhere(), status, limit: LIMIT, with_count: "true" };
    const answer = await get("/volumes/detail", query, signal);
    const items = answer.volumes.map((row) => ({
      kind: "volumes",
      id: row.id,
      volume_name: row.name,
      status,
      since: row.updated_at ?? row.created_at,
      text: "Its messages have the reason.",
    }));
    return { items, count: answer.count, filters: { status } };
  });

function agentProblem(agent) {
  const item = { kind: "hosts", host: agent.host, since: agent.last_seen };
  if (!["up", "new"].includes(agent.state)) {
    return { ...item, status: agent.state, text: agent.error ?? "Its agent does not report." };
  }
  return { ...item, status: "error", text: agent.error };
}

function fenceProblem(closed) {
  const left = closed.attachment_ids.length;
  return {
    kind: "hosts",
    host: closed.host,
    status: "fenced",
    severity: left ? "bad" : "warn",
    since: closed.fenced_at,
    text: `${left ? `${plural(left, "attachment")} may still give it access. ` : ""}Reason: ${closed.reason}`,
  };
}

function drainProblem({ host, drain }) {
  const failed = drain.counts.failed ?? 0;
  return {
    kind: "hosts",
    host,
    status: "drained",
    severity: "warn",
    since: drain.drained_at,
    text: `${failed ? `${plural(failed, "attachment")} could not be detached. ` : ""}Reason: ${drain.reason ?? "none was given"}`,
  };
}

async function brokenHosts(signal) {
  const query = { limit: 5 * LIMIT, with_count: "true" };
  const [agents, closed] = await Promise.all([
    get("/agents", { ...query, in_trouble: "true" }, signal),
    get("/hosts", query, signal),
  ]);
  const items = [
    ...agents.agents.map(agentProblem),
    ...closed.hosts.flatMap((row) => [
      ...(row.fenced ? [fenceProblem(row)] : []),
      ...(row.drain ? [drainProblem(row)] : []),
    ]),
  ];
  const left =
    agents.count - agents.agents.length + closed.count - closed.hosts.length + items.length;
  return { items, count: left, filters: { hosts: "in trouble" } };
}

async function brokenServices(signal) {
  const { services } = await get("/os-services", {}, signal);
  const items = services
    .filter(({ state, status }) => state !== "up" || status !== "enabled")
    .map((row) => ({
      kind: "services",
      host: row.host,
      status: row.state === "up" ? "disabled" : "down",
      since: row.updated_at,
      text:
        row.disabled_reason ??
        (row.state === "up"
          ? "It gets no new volumes."
          : "Its manager does not report, or its storage cannot be used."),
    }));
  return { items, count: items.length };
}

async function load(_params, _query, signal) {
  const lists = [
    ...inError(signal),
    ...inTrouble(signal),
    ...stuck(signal),
    ...brokenVolumes(signal),
  ];
  if (session.isAdmin) lists.unshift(brokenServices(signal), brokenHosts(signal));
  const count = async (path, query) =>
    (await find(path, { ...everywhere(), ...query, limit: 1, with_count: "true" }, signal))?.count;
  const [volumes, all, attached, ...found] = await Promise.all([
    count("/volumes", {}),
    count("/attachments", {}),
    count("/attachments", { status: "attached" }),
    ...lists,
  ]);
  return {
    items: found.flatMap(({ items }) => items),
    more: found.filter((one) => one.count > one.items.length),
    volumes,
    all,
    attached,
  };
}

const NOUNS = {
  attachments: "Attachment",
  volumes: "Volume",
  hosts: "Host",
  services: "Back end",
};
const RANK = { bad: 0, warn: 1 };
const severity = (item) =>
  item.severity ?? (["degraded", "disabled"].includes(item.status) ? "warn" : "bad");

const subject = (item) => {
  if (item.kind === "hosts") return hostLink(item.host);
  if (item.kind === "services") return html`<a href="#/services">${name(item.host)}</a>`;
  if (item.kind === "volumes") return volumeLink(item.id, item.volume_name);
  return idLink(item.kind, item.id);
};

const context = (item) =>
  item.kind === "attachments"
    ? html`<span class="muted"
        >volume ${volumeLink(item.volume_id, item.volume_name)} on
        ${hostLink(item.attached_host, session.isAdmin)}</span
      >`
    : nothing;

const problem = (item) =>
  html`<li class="problem ${severity(item)}">
    <div>
      <span class="noun">${NOUNS[item.kind]}</span> ${subject(item)}
      ${badge(item.status, severity(item))} ${context(item)}
    </div>
    <p><bdi>${item.text}</bdi></p>
    <div class="since">${ago(item.since)}</div>
  </li>`;

const tile = (value, label, href) =>
  html`<a class="tile" href=${href}
    ><strong>${(value ?? 0).toLocaleString("en")}</strong> <span>${label}</span></a
  >`;

const change = (event) =>
  html`<li>
    ${badge(event.status)} <span>${eventTitle(event)}</span>
    <span class="muted"
      >${event.host ? html`${hostLink(event.host, session.isAdmin)}, ` : nothing}volume
      ${idLink("volumes", event.volume_id)}, attachment
      ${idLink("attachments", event.attachment_id)}</span
    >
    <span class="since">${ago(event.occurred_at)}</span>
  </li>`;

export const page = {
  title: () => "What is wrong now",
  load,
  view: ({ items, more, volumes, all, attached }, { feed }) => {
    const sorted = [...items].sort((one, other) => RANK[severity(one)] - RANK[severity(other)]);
    return html` ${
        items.length
          ? html`<ul class="problems">
                ${sorted.map(problem)}
              </ul>
              ${more.map(
                ({ count, items: shown, filters }) =>
                  html`<p class="muted">
                    ${count - shown.length} more with
                    ${Object.entries(filters ?? {})
                      .map(([key, text]) => `${key} ${text}`)
                      .join(", ")}
                  </p>`,
              )}`
          : html`<p class="notice good">Nothing is wrong.</p>`
      }
      <div class="tiles">
        ${tile(volumes, "volumes", "#/volumes")}${tile(all, "attachments", "#/attachments")}
        ${tile(attached, "attached", "#/attachments?status=attached")}
      </div>
      ${section(
        "Recent changes",
        feed.length
          ? html`<ul class="feed">
              ${feed.map(change)}
            </ul>`
          : html`<p class="empty">No attachment has changed lately.</p>`,
      )}`;
  },
  concerns: () => true,
};
