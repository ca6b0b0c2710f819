/* Description editor, with a preview of the search ranks before saving. */

import { part, patch } from "./api.js";
import { debounce, h, put, unique } from "./dom.js";
import { t, tOf } from "./i18n.js";
import { badge, table } from "./components.js";
import { empty, fetched, problem } from "./placeholders.js";
import { toast } from "./toast.js";

const WAIT = 350;

/** `done` is called with true if it was saved. */
export function descriptionEditor(skill, done) {
  const path = `/v1/skills/${part(skill.name)}`;
  const headers = skill.sha256 ? { "If-Match": `"${skill.sha256}"` } : {};
  const message = h("div");
  const preview = h("div.preview", { "aria-live": "polite" }, h("p.quiet", t("edit.hint")));
  const field = h("textarea", {
    id: unique("description"), rows: 4, value: skill.description, on: { input: changed, keydown: pressed },
  });
  const save = h("button.primary", { type: "submit", disabled: true }, t("action.save"));
  const cancel = h("button", { type: "button", on: { click: () => done(false) } }, t("action.cancel"));

  const look = debounce(WAIT, () => {
    const body = { description: field.value };
    const ask = (signal) => patch(path, { query: { dry_run: "true" }, body, headers, signal });
    fetched(preview, ask, ranks, { quiet: true });
  });

  function changed() {
    save.disabled = field.value.trim() === "" || field.value === skill.description;
    if (save.disabled) put(preview, h("p.quiet", t("edit.hint")));
    else look();
  }

  function pressed(event) {
    if (event.key === "Escape") {
      event.stopPropagation();
      done(false);
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !save.disabled) {
      keep(event);
    }
  }

  async function keep(event) {
    event.preventDefault();
    save.disabled = true;
    try {
      await patch(path, { body: { description: field.value }, headers });
      look.cancel();
      toast(t("edit.saved", { name: skill.name }));
      done(true);
    } catch (error) {
      put(message, problem(error));
      save.disabled = false;
    }
  }

  const label = h("label", { for: field.id }, t("edit.label"));
  return h("form.editor", { on: { submit: keep } }, label, field, message, h("div.actions", save, cancel), preview);
}

function ranks(found) {
  const { queries = [], others = [] } = found.preview ?? {};
  if (!queries.length) return empty(t("edit.no_queries"));
  return [
    h("h3", t("edit.ranks")),
    table(["edit.query", "edit.before", "edit.after", "edit.pushed"], queries.map(row), "ranks"),
    others.length > 0 && [h("h3", t("edit.others")), h("ul.moved", others.slice(0, 8).map(moved))],
  ];
}

const place = (rank) => (rank === null ? "–" : `#${rank}`);

function row({ query, kind, before, after, loses }) {
  const step = (before ?? 11) - (after ?? 11);
  const turn = step > 0 ? "up" : step < 0 ? "down" : "same";
  const mark = { up: "▲", down: "▼", same: "" }[turn];
  return h(
    "tr",
    h("td", query, " ", badge(tOf("query", kind))),
    h("td.rank", place(before)),
    h("td.rank", { class: turn }, place(after), " ", mark),
    h("td.quiet", loses.join(", ")),
  );
}

function moved({ name, lost, gained }) {
  return h("li", h("b", name), gained > 0 && h("span.up", ` ▲${gained}`), lost > 0 && h("span.down", ` ▼${lost}`));
}
