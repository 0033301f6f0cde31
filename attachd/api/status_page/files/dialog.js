// The dialog that asks before an action, shows its progress and its result.

import { failure, html, nothing } from "./view.js";
import { render } from "./vendor/lit-html.js";

const element = document.getElementById("dialog");
let current = null;

/**
 * Ask before an action.
 *
 * title, text     what will happen
 * confirm         label of the button
 * fields          more content, of a form
 * phrase          what the user has to type, for what cannot be undone
 * run(values)     does it; may return what is shown then
 * progress()      what is shown until then; see refresh()
 * finished()      called when the dialog is closed after `run`
 */
export function ask(action) {
  current = { state: "ask", ...action };
  show();
  if (!element.open) element.showModal();
}

/** Show the progress again, after an event. */
export function refresh() {
  if (current) show();
}

function close() {
  const { state, finished } = current ?? {};
  current = null;
  element.close();
  render(nothing, element);
  if (state === "done" || state === "failed") finished?.();
}

async function submit(event) {
  event.preventDefault();
  const action = current;
  const values = Object.fromEntries(new FormData(event.target));
  Object.assign(action, { state: "working", error: null });
  show();
  try {
    action.result = await action.run(values);
    action.state = "done";
  } catch (error) {
    Object.assign(action, { state: "failed", error });
  }
  if (current === action) {
    show();
    element.querySelector("button.close").focus();
  }
}

function show() {
  render(current.state === "ask" ? question(current) : outcome(current), element);
}

const question = ({ title, text, fields, phrase, confirm }) =>
  html`<form @submit=${submit}>
    <h2 id="dialog-title">${title}</h2>
    <div class="dialog-text">${text}</div>
    ${fields ?? nothing}
    ${
      phrase
        ? html`<label class="wide"
            ><span>Type <bdi class="name">${phrase}</bdi> to confirm</span>
            <input
              name="phrase"
              required
              autocomplete="off"
              spellcheck="false"
              @input=${comparePhrase}
          /></label>`
        : nothing
    }
    <div class="buttons">
      <button type="button" class="close" @click=${close} autofocus>Cancel</button>
      <button type="submit" class="danger">${confirm}</button>
    </div>
  </form>`;

function comparePhrase({ target }) {
  target.setCustomValidity(target.value === current.phrase ? "" : "This is another name.");
}

const HEADINGS = { working: "In progress", done: "Done", failed: "Not done" };

const outcome = ({ title, state, error, result, progress }) =>
  html`<div>
    <h2 id="dialog-title">${title}</h2>
    <p class="outcome ${state}" role="status">${HEADINGS[state]}</p>
    ${state === "failed" ? failure(error) : nothing}
    ${state === "done" && result !== undefined ? result : (progress?.() ?? nothing)}
    ${
      state === "working"
        ? html`<progress aria-label="In progress"></progress>
            <p class="muted">It continues if you close this.</p>`
        : nothing
    }
    <div class="buttons"><button type="button" class="close" @click=${close}>Close</button></div>
  </div>`;

// Escape.
element.addEventListener("cancel", (event) => {
  event.preventDefault();
  close();
});
