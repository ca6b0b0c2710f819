/* Placeholders: loading, empty and error states. */

import { h, put } from "./dom.js";
import { t } from "./i18n.js";
import { icon } from "./icons.js";

export function loading(lines = 3) {
  const bars = Array.from({ length: lines }, () => h("div.skeleton"));
  return h("div.loading", { role: "status" }, h("span.unseen", t("state.loading")), bars);
}

export function empty(title, text = "", ...more) {
  return h("div.empty", h("p.empty-title", title), text && h("p", text), more);
}

/** Error message with its hint; `again` retries. */
export function problem(error, again) {
  const retry =
    again && h("button", { type: "button", on: { click: again } }, icon("refresh", 15), t("action.retry"));
  return h(
    "div.problem",
    { role: "alert" },
    icon("warning"),
    h("div", h("p.problem-title", error.message), error.hint && h("p", error.hint), retry),
  );
}

/**
 * Fill a container asynchronously: loading, then the result or an error.
 * A later call for the same container discards the earlier result.
 */
export async function fetched(place, ask, draw, { quiet = false } = {}) {
  place.asking?.abort();
  const asking = (place.asking = new AbortController());
  if (!quiet) put(place, loading());
  place.setAttribute("aria-busy", "true");
  try {
    const found = await ask(asking.signal);
    if (!asking.signal.aborted) put(place, draw(found));
  } catch (error) {
    if (asking.signal.aborted) return;
    if (!(error instanceof Error && "status" in error)) console.error(error);
    put(place, problem(error, () => fetched(place, ask, draw)));
  } finally {
    if (place.asking === asking) place.removeAttribute("aria-busy");
  }
}
