/* Lists with cursor pagination, latest first. */

import { get } from "./api.js";
import { h } from "./dom.js";
import { t } from "./i18n.js";
import { arrows } from "./keyboard.js";
import { fetched } from "./placeholders.js";
import { toastError } from "./toast.js";

const PAGE = 40;

/** Fill a container with list items; `line` renders one, `none` the empty state. */
export function paged(place, path, { line, none, drawn = () => {}, quiet = false }) {
  const ask = (signal) => get(path, { query: { limit: PAGE }, signal });
  const draw = (found) => {
    queueMicrotask(drawn);
    return found.data.length ? listed(path, found, line, drawn) : none();
  };
  return fetched(place, ask, draw, { quiet });
}

function listed(path, found, line, drawn) {
  const lines = h("ul.list", found.data.map(line));
  let last = found.data.at(-1);
  const load = async (event) => {
    const button = event.currentTarget;
    button.disabled = true;
    try {
      const next = await get(path, { query: { limit: PAGE, before: last.id } });
      lines.append(...next.data.map(line));
      last = next.data.at(-1) ?? last;
      if (!next.has_more) button.remove();
      drawn();
    } catch (error) {
      toastError(error);
    }
    button.disabled = false;
  };
  const more = found.has_more && h("button.more", { type: "button", on: { click: load } }, t("action.more"));
  return arrows(h("div", lines, more), "a");
}
