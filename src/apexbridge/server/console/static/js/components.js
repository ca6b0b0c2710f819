/* UI components that several screens share. */

import { h } from "./dom.js";
import { t } from "./i18n.js";
import { icon } from "./icons.js";

export const badge = (words, kind = "") => h("span.badge", { class: kind }, words);

/** Icon button with an accessible label. */
export function pictureButton(picture, words, click, kind = "") {
  const given = { type: "button", class: kind, title: words, "aria-label": words, on: { click } };
  return h("button.bare", given, icon(picture, 16));
}

/** Button with an icon and a label. */
export function button(picture, words, click, kind = "") {
  return h("button", { type: "button", class: kind, on: { click } }, icon(picture, 15), words);
}

/** Description list of names and values. */
export function factsTable(rows) {
  const row = ([name, value]) => h("div", h("dt", name), h("dd", value));
  return h("dl.facts-table", rows.map(row));
}

export function hash(text) {
  return h("code.hash", { title: text }, text.slice(0, 16) || "–");
}

/** Table; `heads` are message keys, `rows` are elements, or a body that fills itself. */
export function table(heads, rows, kind = "") {
  const head = h("thead", h("tr", heads.map((key) => h("th", t(key)))));
  const body = rows instanceof Node ? rows : h("tbody", rows);
  return h("div.table", { tabindex: "0" }, h("table", { class: kind }, head, body));
}

/** Disclosure widget. */
export function fold(title, ...content) {
  return h("details.fold", h("summary", icon("chevron", 14), title), content);
}

/** Badge with the state of a turn, a run or a check. */
export function outcome(words, isGood, otherwise = "warn") {
  return badge(words, isGood ? "ok" : otherwise);
}

export function select(label, options, change) {
  const listed = options.map(([value, words]) => h("option", { value }, words));
  return h("select", { "aria-label": label, on: { change } }, listed);
}

export function searchField(label, input, more = {}) {
  const given = { type: "search", placeholder: label, "aria-label": label, data: { search: "" } };
  return h("input", { ...given, ...more, on: { input } });
}
