// Actions on attachments and hosts: each asks first, and says what will happen.

import { request } from "./api.js";
import { ask } from "./dialog.js";
import { plural } from "./format.js";
import { proofView } from "./pictures.js";
import { badge, html, idLink, name, nothing, table } from "./view.js";

/** What main.js shows anew after an action; and the events since a fence began, null without one. */
export const effects = { reload: () => {}, announce: () => {}, events: null };

const finish = () => effects.reload();

const post = (host, action, body) =>
  request("POST", `/hosts/${encodeURIComponent(host)}/${action}`, { body: { [action]: body } });

function detachText(attachment, volume) {
  const what = volume?.name
    ? html`volume ${name(volume.name)}`
    : html`volume <span class="id">${attachment.volume_id}</span>`;
  const host = attachment.attached_host
    ? html`host ${name(attachment.attached_host)}`
    : "the host";
  if (attachment.status === "reserved") {
    return html`<p>The reservation of ${what} ends. No host has access by it.</p>`;
  }
  return html`${
    attachment.agent
      ? html`<p>
          The agent of ${host} writes what is in memory and removes the device; then the storage
          ends the access of the host to ${what}. If a program uses the device, the agent refuses,
          and the volume stays attached.
        </p>`
      : html`<p>
          The storage ends the access of ${host} to ${what} at once.
          <strong>No agent removes the device:</strong> unmount it on the host first, or data is
          lost.
        </p>`
  }
  ${
    attachment.instance
      ? html`<p>
          Server <span class="id">${attachment.instance}</span> has this volume. Detach it by
          Compute; attachd refuses while Compute says that the server uses it.
        </p>`
      : nothing
  }`;
}

export function attach(volume) {
  ask({
    title: html`Attach volume ${name(volume.name || volume.id)}?`,
    text: html`<p>
      The storage gives the host access, and the agent of the host makes the device. What is on the
      volume is not changed.
    </p>`,
    fields: html`<label class="wide"
        >Host with an agent <input name="host" required maxlength="255" autocomplete="off"
      /></label>
      <label class="check"
        ><input type="checkbox" name="readOnly" /> Read-only: the host may not write</label
      >`,
    confirm: "Attach",
    run: async ({ host, readOnly }) => {
      const body = { volume_uuid: volume.id, host, ...(readOnly ? { mode: "ro" } : {}) };
      const { attachment } = await request("POST", "/attachments", { body: { attachment: body } });
      effects.announce("Attached");
      return html`<p>
        ${name(host)} has it as
        <span class="path">${attachment.device ?? "a device that is not reported yet"}</span>.
      </p>`;
    },
    finished: finish,
  });
}

export function detach(attachment, volume) {
  ask({
    title: "Detach the volume?",
    text: detachText(attachment, volume),
    confirm: "Detach",
    run: async () => {
      await request("DELETE", `/attachments/${encodeURIComponent(attachment.id)}`);
      effects.announce("Detached");
      return html`<p>The host has no access by this attachment any more.</p>`;
    },
    finished: finish,
  });
}

const RESULTS = [
  { head: "Attachment", cell: (row) => idLink("attachments", row.attachment_id) },
  { head: "Volume", cell: (row) => idLink("volumes", row.volume_id) },
  { head: "Result", cell: (row) => badge(row.result) },
  { head: "Proof", cell: (row) => row.reason ?? (row.proof ? proofView(row.proof) : nothing) },
];

/** The results as far as events have shown them. */
function resultsSoFar(attachments, events) {
  return attachments.map(({ id, volume_id }) => {
    const proof =
      events.findLast((event) => event.attachment_id === id && event.proof)?.proof ?? null;
    const error =
      events.findLast((event) => event.attachment_id === id && event.error)?.error ?? null;
    const result = proof?.result ?? (error ? "failed" : "pending");
    return { attachment_id: id, volume_id, result, proof, reason: error };
  });
}

const fenceTable = (rows) =>
  table("Results of the fence", RESULTS, rows, "The host had no access to a volume.");

export function fence({ host }, attachments) {
  const connected = attachments.filter(({ status }) => status !== "reserved");
  ask({
    title: html`Fence host ${name(host)}?`,
    text: html`<p>
        The storage ends the access of the host to ${plural(connected.length, "volume")}, without
        its help, and proves it. Programs there get errors, and what they have not written yet is
        lost. The attachments are deleted. This cannot be undone.
      </p>
      <p>
        Nothing is attached on the host until the fence is lifted. A host that works is drained
        instead.
      </p>`,
    fields: html`<label class="wide"
        >Reason <input name="reason" required maxlength="255" autocomplete="off"
      /></label>
      <label class="check"
        ><input type="checkbox" name="lift" /> Lift the fence by itself when the agent of the host
        reports a new start and no device</label
      >`,
    phrase: host,
    confirm: "Fence",
    progress: () => fenceTable(resultsSoFar(connected, effects.events ?? [])),
    run: async ({ reason, lift }) => {
      effects.events = [];
      const answer = await post(host, "fence", { reason, lift: lift ? "auto" : "manual" });
      const rows = answer.fence.attachments;
      const open = rows.filter(({ result }) => result === "pending" || result === "failed").length;
      effects.announce(
        open ? `Fenced; ${plural(open, "attachment")} not proved yet` : "Fenced, with proof",
      );
      return html`${fenceTable(rows)}
      ${
        open
          ? html`<p class="notice warn">
              ${plural(open, "attachment")} may still give the host access. A manager goes on with
              what is pending; fence again for what has failed.
            </p>`
          : nothing
      }`;
    },
    finished: () => {
      effects.events = null;
      finish();
    },
  });
}

export function unfence({ host }) {
  ask({
    title: html`Lift the fence of host ${name(host)}?`,
    text: html`<p>
      Volumes can be attached on the host again. Check first that it was started anew, or that
      nothing there still writes.
    </p>`,
    confirm: "Lift fence",
    run: async () => {
      await post(host, "unfence", {});
      effects.announce("The fence is lifted");
    },
    finished: finish,
  });
}

export function drain({ host }, attachments) {
  const byAgent = attachments.filter(({ agent }) => agent).length;
  ask({
    title: html`Drain host ${name(host)}?`,
    text: html`<p>
      Nothing new is attached on the host until it is resumed. What is attached stays usable.
    </p>`,
    fields: html`<label class="wide"
        >Reason <input name="reason" maxlength="255" autocomplete="off"
      /></label>
      <fieldset>
        <legend>What the host has</legend>
        <label class="check"
          ><input type="radio" name="detach" value="" checked /> stays attached</label
        >
        <label class="check"
          ><input type="radio" name="detach" value="all" /> is detached by its agent:
          ${plural(byAgent, "attachment")}. What a server has, or what no agent has made,
          stays.</label
        >
      </fieldset>`,
    confirm: "Drain",
    run: async ({ reason, detach: which }) => {
      const body = { ...(reason ? { reason } : {}), ...(which ? { detach: which } : {}) };
      const { host: after } = await post(host, "drain", body);
      const counts = Object.entries(after.drain.counts).map(
        ([status, count]) => `${count} ${status}`,
      );
      effects.announce("Drained");
      return html`<p>
        ${counts.length ? `Attachments: ${counts.join(", ")}.` : "Nothing is attached."} The page
        of the host shows the progress.
      </p>`;
    },
    finished: finish,
  });
}

export function resume({ host }) {
  ask({
    title: html`Resume host ${name(host)}?`,
    text: html`<p>
      The drain ends: volumes can be attached on the host again. What is not detached by now stays.
    </p>`,
    confirm: "Resume",
    run: async () => {
      await post(host, "resume", {});
      effects.announce("Resumed");
    },
    finished: finish,
  });
}
