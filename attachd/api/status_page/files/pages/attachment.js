import { detach } from "../actions.js";
import { find, get } from "../api.js";
import { may, session } from "../session.js";
import { timeline } from "../pictures.js";
import { badge, exactly, facts, hostLink, html, idLink, name, nothing, section } from "../view.js";
import { mode } from "./attachments.js";

async function load({ id }, _query, signal) {
  const path = `/attachments/${encodeURIComponent(id)}`;
  const [{ attachment }, events] = await Promise.all([
    get(path, {}, signal),
    find(`${path}/timeline`, {}, signal),
  ]);
  const volume = await find(`/volumes/${attachment.volume_id}`, {}, signal);
  return { attachment, volume: volume?.volume ?? null, events: events?.timeline ?? [] };
}

const condition = ({ state, message, last_io_error: lastError, paths }) =>
  html`${badge(state)} ${message ?? ""}
  ${lastError ? html` Last I/O error: ${lastError}.` : nothing}
  ${
    paths.length
      ? html`<ul class="plain">
          ${paths.map((path) => html`<li>${badge(path.state)} ${name(path.name)}</li>`)}
        </ul>`
      : nothing
  }`;

const volumeText = (volume, id) =>
  html`${volume?.name ? html`${name(volume.name)} ` : nothing}${idLink("volumes", id)}`;

export const page = {
  title: ({ id }) => html`Attachment <span class="id">${id}</span>`,
  load,
  view: ({ attachment, volume, events }) =>
    html` ${facts([
      ["Status", badge(attachment.status)],
      ["Volume", volumeText(volume, attachment.volume_id)],
      ["Host", hostLink(attachment.attached_host, session.isAdmin)],
      ["Device", attachment.device && html`<span class="path">${attachment.device}</span>`],
      ["Mode", mode(attachment.attach_mode)],
      ["Condition", attachment.condition && condition(attachment.condition)],
      ["Error", attachment.error],
      ["Agent", attachment.agent && hostLink(attachment.agent, session.isAdmin)],
      ["Server", attachment.instance],
      ["Moves from", attachment.move_from && idLink("attachments", attachment.move_from)],
      ["Project", attachment.project_id],
      ["Created", exactly(attachment.created_at)],
      ["Attached", attachment.attached_at && exactly(attachment.attached_at)],
      ["Detached", attachment.detached_at && exactly(attachment.detached_at)],
      ["Ends unless connected", attachment.expires_at && exactly(attachment.expires_at)],
    ])}
    ${
      ["deleted", "detached"].includes(attachment.status) || !may("attachment_delete")
        ? nothing
        : html`<div class="actions">
            <button class="danger" @click=${() => detach(attachment, volume)}>Detach…</button>
          </div>`
    }
    ${section("Timeline", events.length ? timeline(events) : html`<p class="empty">Its events are no longer kept.</p>`)}`,
  concerns: (event, { id }) => event.attachment_id === id,
};
