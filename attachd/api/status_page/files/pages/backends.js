import { get } from "../api.js";
import { gib } from "../format.js";
import { bar } from "../pictures.js";
import { ago, badge, html, name, nothing, table } from "../view.js";

const TERMS = ["storage_protocol", "fencing", "multiattach", "thin_provisioning_support"];

function capacity({ total_capacity_gb: total, free_capacity_gb: free }) {
  if (typeof total !== "number" || typeof free !== "number")
    return html`<span class="muted">unlimited</span>`;
  const used = total - free;
  const text = `${gib(used)} of ${gib(total)} used`;
  return html`${bar(total ? used / total : 0, text, 0.9)}<span>${text}</span>`;
}

const yes = (value) => (value === true ? "yes" : value === false ? "no" : String(value ?? "–"));

const COLUMNS = [
  { head: "Pool", cell: (row) => name(row.name) },
  { head: "State", cell: ({ capabilities }) => badge(capabilities.backend_state) },
  { head: "Capacity", cell: ({ capabilities }) => capacity(capabilities) },
  {
    head: "Promised",
    cell: ({ capabilities }) => gib(capabilities.provisioned_capacity_gb),
    kind: "number",
  },
  { head: "Protocol", cell: ({ capabilities }) => capabilities.storage_protocol ?? "–" },
  {
    head: "Fencing",
    cell: ({ capabilities }) => (capabilities.fencing ? badge(capabilities.fencing) : "–"),
  },
  { head: "Several attachments", cell: ({ capabilities }) => yes(capabilities.multiattach) },
  { head: "Report", cell: ({ capabilities }) => ago(capabilities.timestamp) },
  {
    head: "Capabilities",
    cell: ({ capabilities }) =>
      html`<details>
        <summary>All</summary>
        <dl class="pairs">
          ${Object.entries(capabilities)
            .sort()
            .map(
              ([key, value]) =>
                html`<div>
                  <dt>${key}</dt>
                  <dd>${TERMS.includes(key) ? yes(value) : String(value ?? "–")}</dd>
                </div>`,
            )}
        </dl>
      </details>`,
  },
];

export const page = {
  title: () => "Back ends",
  load: async (_params, _query, signal) =>
    (await get("/scheduler-stats/get_pools", { detail: "true" }, signal)).pools,
  view: (pools) =>
    html`${pools.length ? nothing : html`<p class="notice warn">No manager has reported.</p>`}
    ${table("Back ends", COLUMNS, pools, "There is no back end.")}`,
  concerns: () => false,
};
