/* HTTP client: JSON both ways, and every error response as an exception with a hint. */

import { t, tag } from "./i18n.js";

/** Error response of the server. */
export class ApiError extends Error {
  constructor({ status, message, hint = "", code = "", body = null }) {
    super(message);
    Object.assign(this, { status, hint, code, body });
  }
}

const listeners = new Set();

/** Register a callback for an expired session. */
export function onSignedOut(listener) {
  listeners.add(listener);
}

/** Send a request and return the raw response. */
export async function send(method, path, { query, body, form, headers, signal } = {}) {
  const options = { method, signal, credentials: "same-origin", cache: "no-store", redirect: "error" };
  options.headers = { "Accept-Language": tag(), ...headers };
  if (form) options.body = form;
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  let reply;
  try {
    reply = await fetch(path + written(query), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError({ status: 0, message: t("error.offline"), hint: t("error.offline.hint") });
  }
  if (!reply.ok) throw await refusal(reply);
  return reply;
}

function written(query) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== "" && value != null);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

async function refusal(reply) {
  const body = await reply.json().catch(() => null);
  const detail = body?.error ?? {};
  const message = detail.message || t("error.status", { status: reply.status });
  const { hint, code } = detail;
  if (reply.status === 401) for (const listener of listeners) listener();
  return new ApiError({ status: reply.status, message, hint: hint || "", code: code || "", body });
}

const parsed = async (reply) => (reply.status === 204 ? null : reply.json());

export const get = async (path, options) => parsed(await send("GET", path, options));
export const post = async (path, options) => parsed(await send("POST", path, options));
export const patch = async (path, options) => parsed(await send("PATCH", path, options));
export const remove = async (path, options) => parsed(await send("DELETE", path, options));

/** Encode a path segment. */
export const part = encodeURIComponent;
