import { list, PAGE_SIZE } from "../api.js";
import { gib } from "../format.js";
import { session } from "../session.js";
import {
  ago,
  badge,
  filters,
  hostLink,
  html,
  idLink,
  pager,
  table,
  volumeLink,
} from "../view.js";
import { mode } from "./attachments.js";

const STATUSES = [
  "available",
  "reserved",
  "attaching",
  "in-use",
  "detaching",
  "awaiting-transfer",
  "creating",
  "deleting",
  "error",
];

export const COLUMNS = [
  {
    head: "Volume",
    cell: (row) =>
      row.name
        ? html`${volumeLink(row.id, row.name)} <span class="id muted">${row.id.slice(0, 8)}</span>`
        : idLink("volumes", row.id),
  },
  { head: "Status", cell: (row) => badge(row.status) },
  { head: "Size", cell: (row) => gib(row.size), kind: "number" },
  { head: "Attached to", cell: (row) => attachedTo(row.attachments) },
  {
    head: "Back end",
    cell: (row) => html`<span class="path">${row["os-vol-host-attr:host"] ?? "–"}</span>`,
  },
  { head: "Age", cell: (row) => ago(row.created_at) },
];

const attachedTo = (attachments) =>
  attachments.length
    ? html`<ul class="plain">
        ${attachments.map(
          (item) =>
            html`<li>
              ${badge(item.status)} ${hostLink(item.attached_host, session.isAdmin)}
              <span class="muted">${mode(item.attach_mode)}</span>
              ${idLink("attachments", item.attachment_id)}
            </li>`,
        )}
      </ul>`
    : html`<span class="muted">–</span>`;

export const columns = () =>
  session.isAdmin ? COLUMNS : COLUMNS.filter(({ head }) => head !== "Back end");

export const page = {
  title: () => "Volumes",
  load: async (_params, query, signal) => list("/volumes/detail", "volumes", query, signal),
  view: ({ items, count }, { query, go }) =>
    html` ${filters(
      [
        { name: session.isAdmin ? "name~" : "name", label: "Name" },
        {
          name: "status",
          label: "Status",
          options: [["", "Any"], ...STATUSES.map((text) => [text, text])],
        },
        ...(session.isAdmin ? [{ name: "project_id", label: "Project" }] : []),
        {
          name: "sort",
          label: "Sort",
          options: [
            ["", "Newest first"],
            ["name:asc", "Name"],
            ["size:desc", "Size"],
          ],
        },
      ],
      query,
      go,
    )}
    ${table("Volumes", columns(), items, "No volume matches.")}
    ${pager(count, query, go, PAGE_SIZE)}`,
  concerns: () => true,
};
