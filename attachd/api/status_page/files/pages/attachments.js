import { list, PAGE_SIZE } from "../api.js";
import { session } from "../session.js";
import {
  ago,
  badge,
  device,
  filters,
  hostLink,
  html,
  idLink,
  nothing,
  pager,
  table,
  volumeLink,
} from "../view.js";

const STATUSES = [
  "reserved",
  "attaching",
  "attached",
  "detaching",
  "error_attaching",
  "error_detaching",
];

export const COLUMNS = [
  { head: "Attachment", cell: (row) => idLink("attachments", row.id) },
  { head: "Status", cell: (row) => html`${badge(row.status)} ${conditionBadge(row)}` },
  { head: "Host", cell: (row) => hostLink(row.attached_host, session.isAdmin) },
  { head: "Volume", cell: (row) => volumeLink(row.volume_id, row.volume_name) },
  { head: "Mode", cell: (row) => mode(row.attach_mode) },
  { head: "Device", cell: (row) => device(row.device) },
  { head: "Age", cell: (row) => ago(row.attached_at || row.created_at) },
];

export const mode = (text) => (!text || text === "null" ? "–" : text);

/** Show the condition of an attachment, unless it is good. */
export function conditionBadge({ condition }) {
  if (!condition || condition.state === "ok" || condition.state === "unknown") return nothing;
  return badge(condition.state);
}

export const page = {
  title: () => "Attachments",
  load: async (_params, query, signal) =>
    list("/attachments/detail", "attachments", query, signal),
  view: ({ items, count }, { query, go }) =>
    html` ${filters(
      [
        {
          name: "status",
          label: "Status",
          options: [["", "Any"], ...STATUSES.map((text) => [text, text])],
        },
        ...(session.isAdmin
          ? [
              { name: "attached_host", label: "Host" },
              { name: "project_id", label: "Project" },
            ]
          : []),
        { name: "volume_id", label: "Volume id" },
      ],
      query,
      go,
    )}
    ${table("Attachments", COLUMNS, items, "No attachment matches.")}
    ${pager(count, query, go, PAGE_SIZE)}`,
  concerns: () => true,
};
