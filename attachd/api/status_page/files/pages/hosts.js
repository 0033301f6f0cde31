import { get, PAGE_SIZE } from "../api.js";
import { ago, badge, filters, hostLink, html, nothing, pager, table } from "../view.js";

/** Read agents and closed hosts, as one list of hosts by name. */
export async function loadHosts(signal) {
  const [{ agents }, { hosts }] = await Promise.all([
    get("/agents", {}, signal),
    get("/hosts", {}, signal),
  ]);
  const rows = new Map(
    agents.map((agent) => [agent.host, { host: agent.host, agent, closed: null }]),
  );
  for (const closed of hosts) {
    const row = rows.get(closed.host) ?? { host: closed.host, agent: null };
    rows.set(closed.host, { ...row, closed });
  }
  return [...rows.values()].sort((one, other) => (one.host < other.host ? -1 : 1));
}

export const stateBadges = ({ agent, closed }) =>
  html`${agent ? badge(agent.state) : html`<span class="muted">no agent</span>`}
  ${closed?.fenced ? badge("fenced") : nothing} ${closed?.drain ? badge("drained") : nothing}`;

const STATES = {
  "": () => true,
  up: ({ agent }) => agent?.state === "up",
  "not up": ({ agent }) => agent && agent.state !== "up",
  fenced: ({ closed }) => closed?.fenced,
  drained: ({ closed }) => closed?.drain,
};

const COLUMNS = [
  { head: "Host", cell: (row) => hostLink(row.host) },
  { head: "State", cell: stateBadges },
  {
    head: "Attachments",
    kind: "number",
    cell: ({ agent, closed }) => closed?.attachment_ids.length ?? agent.devices.length,
  },
  { head: "Last report", cell: ({ agent }) => ago(agent?.last_seen) },
  {
    head: "Note",
    cell: ({ agent, closed }) =>
      agent?.error || closed?.drain?.reason || (closed?.fenced && closed.reason) || nothing,
  },
];

export const page = {
  title: () => "Hosts",
  load: async (_params, _query, signal) => loadHosts(signal),
  view: (rows, { query, go }) => {
    const text = (query.name ?? "").toLowerCase();
    const matches = STATES[query.state ?? ""] ?? STATES[""];
    const found = rows.filter((row) => row.host.toLowerCase().includes(text) && matches(row));
    const start = ((Number(query.page) || 1) - 1) * PAGE_SIZE;
    return html`<p class="muted">
        Hosts with an agent, and those that are fenced or drained. Find any other host by its name.
      </p>
      ${filters(
        [
          { name: "name", label: "Name" },
          {
            name: "state",
            label: "State",
            options: Object.keys(STATES).map((key) => [key, key || "Any"]),
          },
        ],
        query,
        go,
      )}
      ${table("Hosts", COLUMNS, found.slice(start, start + PAGE_SIZE), "No host matches.")}
      ${pager(found.length, query, go, PAGE_SIZE)}`;
  },
  concerns: () => true,
  pause: 5000, // Milliseconds: the list of all hosts may be long.
};
