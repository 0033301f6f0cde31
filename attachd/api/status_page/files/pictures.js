// Pictures in SVG. Their sizes are attributes, because the page forbids styles in its content.

import { clock, duration, parseTime } from "./format.js";
import { badge, html, kindOf, name, nothing } from "./view.js";
import { svg } from "./vendor/lit-html.js";

const percent = (part) => `${(Math.min(1, Math.max(0, part)) * 100).toFixed(2)}%`;

/** A bar that is filled to a part from 0 to 1, and in the colour of trouble above a limit. */
export const bar = (part, label, limit = 1) =>
  html`<svg class="bar" role="img" aria-label=${label}>
    <rect class="track" width="100%" height="100%" rx="4"></rect>
    <rect
      class=${part > limit ? "fill high" : "fill"}
      width=${percent(part)}
      height="100%"
      rx="4"
    ></rect>
  </svg>`;

/** The life of an attachment, from its first event to its last or to now, by its status. */
function life(events) {
  const times = events.map((event) => parseTime(event.occurred_at));
  const last = events.at(-1);
  const isOver = last.status === "deleted";
  const start = times[0];
  const end = isOver ? times.at(-1) : new Date();
  const span = Math.max(end - start, 1);
  const parts = events.slice(0, isOver ? -1 : undefined).map((event, number) => {
    const until = times[number + 1] ?? end;
    return {
      event,
      x: (times[number] - start) / span,
      width: (until - times[number]) / span,
      until,
    };
  });
  const label = `${last.status}; from ${clock(start)} to ${isOver ? clock(end) : "now"}`;
  return html`<figure class="life">
    <svg role="img" aria-label=${label}>
      ${parts.map(
        (
          { event, x, width, until },
          number,
        ) => svg`<rect class="status ${kindOf(event.status)}" x=${percent(x)}
        width=${`max(3px, ${percent(width)})`} height="100%"><title>${event.status}: ${duration(
          (until - times[number]) / 1000,
        )}</title></rect>`,
      )}
    </svg>
    <figcaption>
      <span>${clock(start)}</span><span>${duration(span / 1000)} in all</span
      ><span>${isOver ? clock(end) : "now"}</span>
    </figcaption>
  </figure>`;
}

const TITLES = {
  reserved: "Reserved",
  connecting: "Connect requested",
  connected: "Host has access",
  attached: "Attached",
  withdrawing: "Agent asked to remove the device",
  detach_refused: "Host refused: the device is in use",
  disconnecting: "Detach requested",
  deleted: "Detached",
  fenced: "Fenced",
  connect_failed: "Connect failed",
  connect_unknown: "Connect failed, access unknown",
  disconnect_failed: "Detach failed",
  condition_changed: "Condition changed",
  move_finished: "Move finished",
};

const BAD = ["connect_failed", "connect_unknown", "disconnect_failed", "detach_refused", "fenced"];

export const eventTitle = (event) => TITLES[event.type] ?? event.type;

function eventKind(event) {
  if (BAD.includes(event.type)) return "bad";
  return event.condition ? kindOf(event.condition.state) : kindOf(event.status);
}

/** The steps of the work that led to an event, to the scale of the longest one. */
function work(event, longest) {
  if (!event.seconds) return nothing;
  const steps = event.steps.length
    ? event.steps
    : [{ name: "work", seconds: event.seconds, failed: false }];
  let x = 0;
  const rects = steps.map((step, number) => {
    const rect = svg`<rect class=${step.failed ? "step bad" : `step step-${number % 4}`} x=${percent(x / longest)}
      width=${`max(2px, ${percent(step.seconds / longest)})`} height="100%"></rect>`;
    x += step.seconds;
    return rect;
  });
  const rest = event.seconds - x;
  if (rest > longest / 100) {
    rects.push(
      svg`<rect class="step other" x=${percent(x / longest)} width=${percent(rest / longest)} height="100%"></rect>`,
    );
  }
  const text = steps
    .map((step) => `${step.name} ${duration(step.seconds)}${step.failed ? ", failed" : ""}`)
    .join("; ");
  return html`<div class="work">
    <svg role="img" aria-label=${`Took ${duration(event.seconds)}: ${text}`}>${rects}</svg>
    <ul class="legend">
      ${steps.map(
        (step, number) =>
          html`<li class=${step.failed ? "bad" : `step-${number % 4}`}>
            ${step.name} ${duration(step.seconds)}${step.failed ? ", failed" : ""}
          </li>`,
      )}${rest > longest / 100 ? html`<li class="other">other ${duration(rest)}</li>` : nothing}
    </ul>
  </div>`;
}

/** What a backend has shown, with the times at which it was asked. */
export const proofView = (proof) =>
  html`<ul class="proof">
    ${proof.observed.map(
      (text, number) =>
        html`<li>${text} <span class="muted">${seenAt(proof.observed_at[number])}</span></li>`,
    )}
  </ul>`;

function seenAt(text) {
  const time = parseTime(text);
  return time ? clock(time).slice(11) : "";
}

function details(event) {
  const by = event.user_id ? html`by user ${name(event.user_id)}` : "by attachd";
  return html`<p class="muted">
      ${by}${event.host ? html`, host ${name(event.host)}` : nothing}${
        event.request_id ? html`, <span class="path">${event.request_id}</span>` : nothing
      }
    </p>
    ${event.error ? html`<p class="error">${event.error}</p>` : nothing}
    ${event.condition ? html`<p>${badge(event.condition.state)} ${event.condition.message ?? nothing}</p>` : nothing}
    ${event.proof ? html`${badge(event.proof.result)}${proofView(event.proof)}` : nothing}`;
}

/** The timeline of one attachment: its life, then each event with the time it took. */
export function timeline(events) {
  const longest = Math.max(...events.map((event) => event.seconds ?? 0), 0.001);
  const entry = (event, number) => {
    const time = parseTime(event.occurred_at);
    const before = number ? (time - parseTime(events[number - 1].occurred_at)) / 1000 : null;
    return html`<li class=${eventKind(event)}>
      ${before === null ? nothing : html`<p class="gap">${duration(before)} later</p>`}
      <div class="event">
        <h3>${eventTitle(event)}</h3>
        <time datetime=${time.toISOString()}>${clock(time)}</time>
      </div>
      ${work(event, longest)} ${details(event)}
    </li>`;
  };
  return html`${life(events)}
    <ol class="timeline">
      ${events.map(entry)}
    </ol>`;
}
