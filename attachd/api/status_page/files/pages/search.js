import { everywhere, find } from "../api.js";
import { isId } from "../format.js";
import { session } from "../session.js";
import { hostLink, html, nothing, pathOf, section, table } from "../view.js";
import { COLUMNS as ATTACHMENT_COLUMNS } from "./attachments.js";
import { columns as volumeColumns } from "./volumes.js";

const LIMIT = 25;

async function load({ id: text }, _query, signal) {
  const part = encodeURIComponent(text);
  const all = { ...everywhere(), limit: LIMIT };
  const volumes = (query) => find("/volumes/detail", { ...all, ...query }, signal);
  const attachments = (query) => find("/attachments/detail", { ...all, ...query }, signal);
  const searches = [volumes(session.isAdmin ? { "name~": text } : { name: text })];
  if (isId(text)) {
    searches.push(
      find(`/volumes/${part}`, {}, signal),
      find(`/attachments/${part}`, {}, signal),
      attachments({ volume_id: text }),
      attachments({ instance_id: text }),
    );
  }
  if (session.isAdmin) {
    searches.push(
      find(`/hosts/${part}`, {}, signal),
      attachments({ "attached_host~": text }),
      attachments({ project_id: text }),
      volumes({ project_id: text }),
    );
  }
  const answers = (await Promise.all(searches)).filter(Boolean);
  const collect = (one, many) => {
    const items = answers.flatMap((answer) => answer[many] ?? (answer[one] ? [answer[one]] : []));
    return [...new Map(items.map((item) => [item.id, item])).values()];
  };
  return {
    volumes: collect("volume", "volumes"),
    attachments: collect("attachment", "attachments"),
    hosts: answers.flatMap(({ host }) => (host ? [host.host] : [])),
  };
}

export const page = {
  title: ({ id }) => html`Search for <bdi class="name">${id}</bdi>`,
  load,
  view: ({ volumes, attachments, hosts }, { params }) => {
    if (!volumes.length && !attachments.length && !hosts.length) {
      return html`<p class="empty">
        Nothing has this id, host, name or project.
        ${session.isAdmin ? nothing : "Type a name in full."}
      </p>`;
    }
    return html` ${hosts.length ? section("Host", html`<p>${hosts.map((host) => hostLink(host))}</p>`) : nothing}
    ${volumes.length ? section("Volumes", table("Volumes", volumeColumns(), volumes)) : nothing}
    ${attachments.length ? section("Attachments", table("Attachments", ATTACHMENT_COLUMNS, attachments)) : nothing}
    ${
      attachments.length >= LIMIT || volumes.length >= LIMIT
        ? html`<p class="muted">At most ${LIMIT} of each are shown.</p>`
        : nothing
    }`;
  },
  concerns: () => false,
};

export const searchPath = (text) => pathOf("search", text);
