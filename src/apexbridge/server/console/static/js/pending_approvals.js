/* Store of pending approvals, kept up to date for all views. */

import { get } from "./api.js";

const EVERY = 15_000; // ms: polling, in case an event was missed
const listeners = new Set();
let pending = [];
let source = null;
let timer = 0;

export const pendingApprovals = () => pending;

/** Fetch the list now. */
export async function refreshApprovals() {
  const found = await get("/v1/approvals");
  pending = found.data;
  for (const listener of listeners) listener(pending.length);
  return pending;
}

const refreshQuietly = () => refreshApprovals().catch(() => {});

/** Subscribe to the number of pending approvals; the first subscriber opens the event stream. */
export function watchApprovals(listener) {
  listeners.add(listener);
  if (listeners.size === 1) begin();
  else listener(pending.length);
  return () => {
    listeners.delete(listener);
    if (!listeners.size) end();
  };
}

function begin() {
  document.addEventListener("visibilitychange", listen);
  timer = setInterval(refreshQuietly, EVERY);
  listen();
}

/** Browsers limit connections per host: a hidden tab closes its event stream. */
function listen() {
  source?.close();
  source = null;
  if (document.hidden) return;
  source = new EventSource("/v1/events");
  source.addEventListener("approval_asked", refreshQuietly);
  source.addEventListener("approval_settled", refreshQuietly);
  refreshQuietly();
}

function end() {
  document.removeEventListener("visibilitychange", listen);
  source?.close();
  source = null;
  clearInterval(timer);
  pending = [];
}
