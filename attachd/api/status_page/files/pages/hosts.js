import { get, list, PAGE_SIZE } from "../api.js";
import { ago, badge, filters, hostLink, html, nothing, pager, section, table } from "../view.js";

const CLOSED = 200; // Fenced and drained hosts that are shown.

export const stateBadges = ({ agent, closed }) =>
  html`${agent ? badge(agent.state) : html`<span class="muted">no agent</span>`}
  ${closed?.fenced ? badge("fenced") : nothing} ${closed?.drain ? badge("drained") : nothing}`;

const STATES = ["up", "down", "conflict", "new"];

const agentState = ({ agent_state: state }) => (state ? { state } : null);

const CLOSED_COLUMNS = [
  { head: "Host", cell: (row) => hostLink(row.host) },
  { head: "State", cell: (row) => stateBadges({ agent: agentState(row), closed: row }) },
  { head: "Attachments", kind: "number", cell: (row) => row.attachment_ids.length },
  { head: "Since", cell: (row) => ago(row.fenced_at ?? row.drain?.drained_at) },
  { head: "Reason", cell: (row) => (row.fenced ? row.reason : row.drain?.reason) ?? nothing },
];

const columns = (closed) => [
  { head: "Host", cell: ({ host }) => hostLink(host) },
  { head: "State", cell: (agent) => stateBadges({ agent, closed: closed.get(agent.host) }) },
  { head: "Devices", kind: "number", cell: (agent) => agent.devices.length },
  { head: "Last report", cell: (agent) => ago(agent.last_seen) },
  { head: "Error", cell: (agent) => agent.error ?? nothing },
];

export const page = {
  title: () => "Hosts",
  load: async (_params, query, signal) => {
    const [agents, closed] = await Promise.all([
      list("/agents", "agents", query, signal),
      get("/hosts", { limit: CLOSED, with_count: "true" }, signal),
    ]);
    return { agents, closed };
  },
  view: ({ agents, closed }, { query, go }) =>
    html` ${
      closed.hosts.length
        ? section(
            "Fenced or drained",
            html`${table("Fenced or drained hosts", CLOSED_COLUMNS, closed.hosts)}
            ${
              closed.count > closed.hosts.length
                ? html`<p class="muted">${closed.count - closed.hosts.length} more</p>`
                : nothing
            }`,
          )
        : nothing
    }
    ${section(
      "With an agent",
      html`<p class="muted">Find any other host by its name, in the field at the top.</p>
        ${filters(
          [
            { name: "host~", label: "Name" },
            { name: "state", label: "State", options: [["", "Any"], ...STATES.map((it) => [it, it])] },
          ],
          query,
          go,
        )}
        ${table(
          "Hosts with an agent",
          columns(new Map(closed.hosts.map((row) => [row.host, row]))),
          agents.items,
          "No host matches.",
        )}
        ${pager(agents.count, query, go, PAGE_SIZE)}`,
    )}`,
  concerns: () => true,
  pause: 5000, // Milliseconds: attachments change more often than hosts.
};
