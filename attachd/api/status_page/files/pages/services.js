import { get } from "../api.js";
import { ago, badge, hostLink, html, name, nothing, section, table } from "../view.js";

const MANAGERS = [
  { head: "Back end", cell: (row) => name(row.host) },
  {
    head: "State",
    cell: (row) =>
      html`${badge(row.state)} ${row.status === "disabled" ? badge("disabled") : nothing}`,
  },
  { head: "Zone", cell: (row) => row.zone ?? "–" },
  { head: "Last report", cell: (row) => ago(row.updated_at) },
  { head: "Reason", cell: (row) => row.disabled_reason ?? nothing },
];

const AGENTS = [
  { head: "Host", cell: (row) => hostLink(row.host) },
  { head: "State", cell: (row) => badge(row.state) },
  { head: "Connector", cell: (row) => row.connector_type ?? "–" },
  { head: "Version", cell: (row) => row.version ?? "–" },
  { head: "Devices", cell: (row) => row.devices.length, kind: "number" },
  { head: "Last report", cell: (row) => ago(row.last_seen) },
  { head: "Error", cell: (row) => row.error ?? nothing },
];

const SHOWN = 50;

export const page = {
  title: () => "Managers and agents",
  load: async (_params, _query, signal) => {
    const [{ services }, { agents }] = await Promise.all([
      get("/os-services", {}, signal),
      get("/agents", {}, signal),
    ]);
    return { services, agents };
  },
  view: ({ services, agents }) =>
    html` ${section("Managers, by back end", table("Managers", MANAGERS, services, "No manager has reported."))}
    ${section(
      "Agents",
      html`${table("Agents", AGENTS, agents.slice(0, SHOWN), "No host has an agent.")}
      ${
        agents.length > SHOWN
          ? html`<p><a href="#/hosts">All ${agents.length} are among the hosts</a></p>`
          : nothing
      }`,
    )}`,
  concerns: () => false,
};
