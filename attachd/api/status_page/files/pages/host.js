import { drain, fence, resume, unfence } from "../actions.js";
import { find, get } from "../api.js";
import { plural } from "../format.js";
import { may } from "../session.js";
import {
  ago,
  badge,
  exactly,
  facts,
  html,
  idLink,
  name,
  nothing,
  section,
  table,
} from "../view.js";
import { COLUMNS as ATTACHMENT_COLUMNS } from "./attachments.js";
import { stateBadges } from "./hosts.js";
import { bar } from "../pictures.js";

const LIMIT = 200; // Attachments that are shown with their details.

async function load({ id }, _query, signal) {
  const path = encodeURIComponent(id);
  const { host } = await get(`/hosts/${path}`, {}, signal);
  const agent = host.agent_state
    ? await find(`/agents/${encodeURIComponent(host.host)}`, {}, signal)
    : null;
  const query = { all_tenants: 1, limit: LIMIT };
  const lists = await Promise.all([
    get("/attachments/detail", { ...query, attached_host: host.host }, signal),
    get("/attachments/detail", { ...query, agent: host.host }, signal),
  ]);
  const known = new Map(
    lists.flatMap(({ attachments }) => attachments).map((row) => [row.id, row]),
  );
  const missing = host.attachment_ids
    .filter((key) => !known.has(key))
    .map((key) => ({ id: key, status: "unknown" }));
  return { host, agent: agent?.agent ?? null, attachments: [...known.values(), ...missing] };
}

function leaseText({ lost_at: lost, lost_action: action, seconds, expires_at: end }) {
  if (lost) {
    return html`${badge("error")} over, lost since ${exactly(lost)}${action === "fence" ? ", fenced" : nothing}`;
  }
  if (seconds === null) return "without end";
  return html`${seconds} s, until ${exactly(end)} unless the agent reports`;
}

const DRAIN_COLUMNS = [
  { head: "Attachment", cell: (row) => idLink("attachments", row.attachment_id) },
  { head: "Volume", cell: (row) => idLink("volumes", row.volume_id) },
  { head: "Status", cell: (row) => badge(row.status) },
  { head: "Reason", cell: (row) => row.reason ?? nothing },
];

function drainView(state) {
  const done = state.counts.detached ?? 0;
  const asked = state.attachments.filter(({ status }) => status !== "attached").length;
  return section(
    "Drain",
    html` <p>
        Since
        ${exactly(state.drained_at)}${state.reason ? html`, reason: ${name(state.reason)}` : nothing}.
        Nothing new is attached here.
      </p>
      ${
        asked
          ? html`<p id="drain-progress">${done} of ${plural(asked, "attachment")} detached</p>
              ${bar(done / asked, `${done} of ${asked} detached`)}`
          : nothing
      }
      ${table("Attachments of the drain", DRAIN_COLUMNS, state.attachments, "No attachment is left.")}`,
  );
}

const DEVICE_COLUMNS = [
  { head: "Device", cell: (row) => html`<span class="path">${row.path}</span>` },
  { head: "Attachment", cell: (row) => idLink("attachments", row.attachment_id) },
  { head: "Mounted at", cell: (row) => html`<span class="path">${row.mountpoint ?? "–"}</span>` },
];

const button = (rule, label, act, kind = nothing) =>
  may(rule) ? html`<button class=${kind} @click=${act}>${label}</button>` : nothing;

const buttons = (host, attachments) =>
  html`<div class="actions">
    ${
      host.fenced
        ? button("host_unfence", "Lift fence…", () => unfence(host))
        : button("host_fence", "Fence…", () => fence(host, attachments), "danger")
    }
    ${button("host_drain", host.drain ? "Drain again…" : "Drain…", () => drain(host, attachments))}
    ${host.drain ? button("host_resume", "Resume…", () => resume(host)) : nothing}
  </div>`;

export const page = {
  title: ({ id }, data) => html`Host ${name(data?.host.host ?? id)}`,
  load,
  view: ({ host, agent, attachments }) =>
    html` ${facts([
      ["State", stateBadges({ agent, closed: host })],
      ["Last report", agent && ago(agent.last_seen)],
      [
        "Fenced",
        host.fenced ? html`since ${exactly(host.fenced_at)}: ${name(host.reason)}` : null,
      ],
      ["Lease", agent?.lease && leaseText(agent.lease)],
      ["Error", agent?.error],
      ["Agent", agent?.version],
      ["Connector", agent?.connector_type],
      ["Address", agent?.connector?.ip],
      [
        "Initiators",
        host.initiators.length
          ? html`<span class="path">${host.initiators.join(" ")}</span>`
          : null,
      ],
    ])}
    ${buttons(host, attachments)} ${host.drain ? drainView(host.drain) : nothing}
    ${section("Attachments", table("Attachments", ATTACHMENT_COLUMNS, attachments, "Nothing is attached here."))}
    ${
      agent
        ? section(
            "Devices of the last report",
            table("Devices", DEVICE_COLUMNS, agent.devices, "The agent reports none."),
          )
        : nothing
    }`,
  concerns: (event, { id }) => event.host === id || event.agent === id || !event.host,
};
