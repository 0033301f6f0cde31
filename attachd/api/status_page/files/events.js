// The event stream of the API: one for the page, continued where it has ended.

import { ApiError, everywhere, get, send } from "./api.js";

const PAST = 30; // Events before the page was opened that are shown.
const SILENCE = 45_000; // Milliseconds; the API sends a comment more often.
const LONGEST_PAUSE = 10_000; // Milliseconds between two attempts.

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

const untilVisible = () =>
  new Promise((resolve) => {
    if (!document.hidden) resolve();
    else document.addEventListener("visibilitychange", resolve, { once: true });
  });

/**
 * Read events until `stop()`. A hidden tab reads none, because each reader occupies a thread of
 * the API; it continues when it is shown.
 *
 * onEvent(event)        for each event, in order
 * onState(name, why)    "live", "paused" or "lost"
 * onGap()               when events may have been missed
 */
export class Watch {
  constructor({ onEvent, onState, onGap }) {
    Object.assign(this, { onEvent, onState, onGap });
    this.stopped = false;
    this.revision = null;
    this.lost = false;
    this.hide = () => {
      if (document.hidden) this.abort?.abort();
    };
    document.addEventListener("visibilitychange", this.hide);
    this.run();
  }

  stop() {
    this.stopped = true;
    document.removeEventListener("visibilitychange", this.hide);
    this.abort?.abort();
  }

  async run() {
    let failures = 0;
    while (!this.stopped) {
      if (document.hidden) {
        this.onState("paused", "The tab is hidden.");
        await untilVisible();
        continue;
      }
      try {
        await this.read(() => (failures = 0));
      } catch (error) {
        if (this.stopped || document.hidden) continue;
        failures += 1;
        await this.recover(error, failures);
      }
    }
  }

  async recover(error, failures) {
    if (error instanceof ApiError && error.status === 410) {
      this.revision = (await get("/events").catch(() => ({ revision: null }))).revision;
      this.onGap();
      return;
    }
    this.lost = true;
    this.onState("lost", error.message, error.status);
    const seconds = Math.max(
      error.retryAfter ?? 0,
      Math.min(2 ** failures / 2, LONGEST_PAUSE / 1000),
    );
    await pause(seconds * 1000);
  }

  async read(onSuccess) {
    this.abort = new AbortController();
    if (this.revision === null) {
      const { revision } = await get("/events", everywhere(), this.abort.signal);
      this.revision = Math.max(0, revision - PAST);
    }
    const response = await send("GET", "/events", {
      query: { ...everywhere(), since: this.revision },
      accept: "text/event-stream",
      signal: this.abort.signal,
    });
    onSuccess();
    this.onState("live");
    if (this.lost) this.onGap();
    this.lost = false;
    await this.readChunks(response.body.getReader());
  }

  async readChunks(reader) {
    const decoder = new TextDecoder();
    let buffer = "";
    for (;;) {
      const timer = setTimeout(() => this.abort.abort(), SILENCE);
      const { done, value } = await reader.read().finally(() => clearTimeout(timer));
      if (done) return;
      buffer += decoder.decode(value, { stream: true });
      const blocks = buffer.split("\n\n");
      buffer = blocks.pop();
      blocks.forEach((block) => this.take(block));
    }
  }

  take(block) {
    const fields = {};
    for (const line of block.split("\n")) {
      const colon = line.indexOf(":");
      if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 1).trimStart();
    }
    if (fields.id) this.revision = Number(fields.id);
    if (fields.data) this.onEvent(JSON.parse(fields.data));
  }
}
