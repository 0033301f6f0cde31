// Who is signed in at this tab. Kept in sessionStorage, which ends with the tab; never in a cookie,
// so that no other page can send a request with it.

const KEY = "attachd.sign-in";

/**
 * `isAdmin`: whether policy lets the user see hosts. `rules`: those that allow the user something;
 * null if the API does not say.
 */
export const session = { settings: null, headers: null, user: "", isAdmin: false, rules: null };

/** Return whether policy allows an action, as far as is known; the API checks each by itself. */
export const may = (rule) => session.rules === null || session.rules.has(`volume:${rule}`);

export async function loadSettings() {
  const response = await fetch("settings.json", { credentials: "omit" });
  if (!response.ok) throw new Error(`settings.json: ${response.status}`);
  session.settings = await response.json();
  if (session.settings.auth_strategy === "noauth") {
    keep({}, "");
    return;
  }
  try {
    const stored = JSON.parse(sessionStorage.getItem(KEY));
    if (stored) Object.assign(session, stored);
  } catch {
    sessionStorage.removeItem(KEY);
  }
}

function keep(headers, user) {
  Object.assign(session, { headers, user });
  if (session.settings.auth_strategy !== "noauth") {
    sessionStorage.setItem(KEY, JSON.stringify({ headers, user }));
  }
}

export function signOut() {
  sessionStorage.removeItem(KEY);
  Object.assign(session, { headers: null, user: "", isAdmin: false, rules: null });
}

export function signInByToken(token) {
  keep({ "X-Auth-Token": token }, "");
}

export function signInByPassword(name, password) {
  const bytes = new TextEncoder().encode(`${name}:${password}`);
  keep({ Authorization: `Basic ${btoa(String.fromCharCode(...bytes))}` }, name);
}

/** Get a token of Keystone, for one project. */
export async function signInByKeystone({ user, userDomain, password, project, projectDomain }) {
  const url = `${session.settings.keystone_url.replace(/\/$/, "")}/auth/tokens`;
  const identity = {
    methods: ["password"],
    password: { user: { name: user, domain: { name: userDomain }, password } },
  };
  const scope = { project: { name: project, domain: { name: projectDomain } } };
  let response;
  try {
    response = await fetch(url, {
      method: "POST",
      credentials: "omit",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ auth: { identity, scope } }),
    });
  } catch {
    throw new Error(
      `Keystone at ${url} cannot be reached, or does not allow this page: its option [cors] ` +
        `allowed_origin must have ${location.origin}.`,
    );
  }
  if (!response.ok) {
    const body = await response.json().catch(() => ({}));
    throw new Error(body.error?.message ?? `Keystone answers ${response.status}.`);
  }
  const token = response.headers.get("X-Subject-Token");
  if (!token)
    throw new Error("Keystone hides the token: [cors] expose_headers lacks X-Subject-Token.");
  keep({ "X-Auth-Token": token }, user);
}
