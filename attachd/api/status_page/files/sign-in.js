// The form to sign in, as the API expects it.

import { session, signInByKeystone, signInByPassword, signInByToken } from "./session.js";
import { failure, html, nothing } from "./view.js";

const field = (key, label, type = "text", value = "") =>
  html`<label class="wide"
    >${label}
    <input
      name=${key}
      type=${type}
      value=${value}
      required
      autocomplete=${type === "password" ? "current-password" : "on"}
      spellcheck="false"
  /></label>`;

const form = (submit, fields, enter) =>
  html`<form @submit=${(event) => send(event, submit, enter)}>
    ${fields}<button type="submit" class="primary">Sign in</button>
  </form>`;

async function send(event, submit, enter) {
  event.preventDefault();
  const { target } = event;
  const button = target.querySelector("button");
  const message =
    target.querySelector(".form-error") ?? target.appendChild(document.createElement("p"));
  message.className = "form-error error";
  message.setAttribute("role", "alert");
  message.textContent = "";
  button.disabled = true;
  try {
    await submit(Object.fromEntries(new FormData(target)));
    await enter();
  } catch (error) {
    message.textContent = error.message;
  } finally {
    button.disabled = false;
  }
}

const password = (enter) =>
  form(
    ({ name, password: secret }) => signInByPassword(name, secret),
    [field("name", "Name"), field("password", "Password", "password")],
    enter,
  );

const keystone = (enter) =>
  form(
    signInByKeystone,
    [
      field("user", "Name"),
      field("password", "Password", "password"),
      field("project", "Project"),
      field("userDomain", "Domain of the user", "text", "Default"),
      field("projectDomain", "Domain of the project", "text", "Default"),
    ],
    enter,
  );

const token = (enter) =>
  form(
    ({ token: text }) => signInByToken(text.trim()),
    [field("token", "Token", "password")],
    enter,
  );

export function signInForm(problem, enter) {
  const { auth_strategy: strategy, keystone_url: url } = session.settings;
  const forms =
    strategy === "http_basic"
      ? password(enter)
      : html`${url ? keystone(enter) : nothing}
          <section>
            <h2>${url ? "Or with a token" : "With a token"}</h2>
            <p class="muted">As <code>openstack token issue -f value -c id</code> prints it.</p>
            ${token(enter)}
          </section>`;
  return html`<img src="icon.svg" alt="" width="48" height="48" />
    <h1>Sign in to attachd</h1>
    ${problem ? failure(problem) : nothing}${forms}`;
}
