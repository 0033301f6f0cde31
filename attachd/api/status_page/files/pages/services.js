import { get, PAGE_SIZE } from "../api.js";
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

export const page = {
  title: () => "Managers and agents",
  load: async (_params, _query, signal) => {
    const [{ services }, { agents, count }] = await Promise.all([
      get("/os-services", {}, signal),
      get("/agents", { limit: PAGE_SIZE, with_count: "true" }, signal),
    ]);
    return { services, agents, count };
  },
  view: ({ services, agents, count }) =>
    html` ${section("Managers, by back end", table("Managers", MANAGERS, services, "No manager has reported."))}
    ${section(
      "Agents",
      html`${table("Agents", AGENTS, agents, "No host has an agent.")}
      ${
        count > agents.length
          ? html`<p><a href="#/hosts">All ${count} are among the hosts</a></p>`
          : nothing
      }`,
    )}`,
  concerns: () => false,
};
