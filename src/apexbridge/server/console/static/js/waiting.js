/* Questions that wait for an answer: one list, kept up to date for all who show it. */

import { get } from "./api.js";

const EVERY = 15_000; // in case an event was missed
const listeners = new Set();
let pending = [];
let source = null;
let timer = 0;

export const pendingApprovals = () => pending;

/** Ask for the list now. */
export async function refreshApprovals() {
  const found = await get("/v1/approvals");
  pending = found.data;
  for (const listener of listeners) listener(pending.length);
  return pending;
}

const refreshQuietly = () => refreshApprovals().catch(() => {});

/** Be told how many wait, whenever it changes; the first one to listen begins the watch. */
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

/** A browser has few connections to a server: a tab that nobody sees gives its own back. */
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
