import { attach } from "../actions.js";
import { get } from "../api.js";
import { gib } from "../format.js";
import { may, session } from "../session.js";
import {
  ago,
  badge,
  device,
  exactly,
  facts,
  hostLink,
  html,
  idLink,
  name,
  nothing,
  section,
  table,
} from "../view.js";
import { mode } from "./attachments.js";

const COLUMNS = [
  { head: "Attachment", cell: (row) => idLink("attachments", row.attachment_id) },
  { head: "Status", cell: (row) => badge(row.status) },
  { head: "Host", cell: (row) => hostLink(row.attached_host, session.isAdmin) },
  { head: "Server", cell: (row) => html`<span class="id">${row.server_id ?? "–"}</span>` },
  { head: "Mode", cell: (row) => mode(row.attach_mode) },
  { head: "Device", cell: (row) => device(row.device) },
  { head: "Age", cell: (row) => ago(row.created_at) },
];

export const page = {
  title: ({ id }, data) => html`Volume ${name(data?.name || id)}`,
  load: async ({ id }, _query, signal) =>
    (await get(`/volumes/${encodeURIComponent(id)}`, {}, signal)).volume,
  view: (volume) =>
    html` ${facts([
      ["Status", badge(volume.status)],
      ["Id", html`<span class="id">${volume.id}</span>`],
      ["Size", gib(volume.size)],
      ["Type", volume.volume_type && name(volume.volume_type)],
      ["Several attachments", volume.multiattach ? "allowed" : "not allowed"],
      ["Back end", volume["os-vol-host-attr:host"]],
      ["Project", volume["os-vol-tenant-attr:tenant_id"]],
      ["Zone", volume.availability_zone],
      ["Created", exactly(volume.created_at)],
    ])}
    ${
      may("attachment_create_on_host") && (volume.status === "available" || volume.multiattach)
        ? html`<div class="actions">
            <button @click=${() => attach(volume)}>Attach…</button>
          </div>`
        : nothing
    }
    ${section("Attachments", table("Attachments", COLUMNS, volume.attachments, "It is not attached."))}`,
  concerns: (event, { id }) => event.volume_id === id,
};
