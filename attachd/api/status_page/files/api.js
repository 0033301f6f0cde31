// Requests to the API with what the user has signed in with.

import { session } from "./session.js";

const VERSION = "volume 3.71, attachd 1.1";

/** An error as the API says it; `status` 0: it gave no answer. */
export class ApiError extends Error {
  constructor(status, message, requestId = "", retryAfter = 0) {
    super(message);
    Object.assign(this, { status, requestId, retryAfter });
  }
}

/** Return the URL of a path below /v3, which is beside the page, also behind a proxy. */
function urlOf(path, query) {
  const url = new URL(`../v3${path}`, document.baseURI);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

export async function send(method, path, { query = {}, body, signal, accept } = {}) {
  const headers = {
    ...session.headers,
    "OpenStack-API-Version": VERSION,
    Accept: accept ?? "application/json",
  };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(urlOf(path, query), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      credentials: "omit",
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The API does not answer.");
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

async function errorOf(response) {
  const text = await response.text().catch(() => "");
  let message = `The API answers ${response.status} ${response.statusText}.`;
  try {
    const fault = Object.values(JSON.parse(text))[0];
    if (typeof fault?.message === "string") message = fault.message;
  } catch {
    // A proxy has answered instead of the API.
  }
  const { headers } = response;
  const seconds = Number(headers.get("Retry-After")) || 0;
  return new ApiError(
    response.status,
    message,
    headers.get("X-Openstack-Request-Id") ?? "",
    seconds,
  );
}

export async function request(method, path, options) {
  const response = await send(method, path, options);
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

export const get = (path, query, signal) => request("GET", path, { query, signal });

/** Read something that may be missing, or that the user may not see: then null. */
export async function find(path, query, signal) {
  try {
    return await get(path, query, signal);
  } catch (error) {
    if (error instanceof ApiError && [400, 403, 404].includes(error.status)) return null;
    throw error;
  }
}

/** Return the parameter for lists of all projects, which only administrators get. */
export const everywhere = () => (session.isAdmin ? { all_tenants: 1 } : {});

export const PAGE_SIZE = 50;

/** Read one page of a list, with the number of all items. */
export async function list(path, key, { page = 1, ...filters }, signal) {
  const query = { ...everywhere(), ...filters, limit: PAGE_SIZE, with_count: "true" };
  if (page > 1) query.offset = (page - 1) * PAGE_SIZE;
  const answer = await get(path, query, signal);
  return { items: answer[key], count: answer.count };
}

/** Ask whether policy lets the user see hosts; raises if the sign-in is refused. */
export async function learnRole() {
  try {
    await get("/hosts");
    session.isAdmin = true;
  } catch (error) {
    if (!(error instanceof ApiError) || ![403, 404].includes(error.status)) throw error;
    session.isAdmin = false;
    await get("/attachments", { limit: 1 });
  }
  const known = await find("/permissions");
  session.rules = known && new Set(known.permissions);
}
