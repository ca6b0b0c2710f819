/* Parts that several screens are made of. */

import { h } from "./dom.js";
import { t } from "./i18n.js";
import { icon } from "./icons.js";

export const badge = (words, kind = "") => h("span.badge", { class: kind }, words);

/** A button that is a picture, with its words for those who do not see it. */
export function pictureButton(picture, words, click, kind = "") {
  const given = { type: "button", class: kind, title: words, "aria-label": words, on: { click } };
  return h("button.bare", given, icon(picture, 16));
}

/** A button with a picture before its words. */
export function button(picture, words, click, kind = "") {
  return h("button", { type: "button", class: kind, on: { click } }, icon(picture, 15), words);
}

/** Names and values, side by side. */
export function factsTable(rows) {
  const row = ([name, value]) => h("div", h("dt", name), h("dd", value));
  return h("dl.facts-table", rows.map(row));
}

export function hash(text) {
  return h("code.hash", { title: text }, text.slice(0, 16) || "–");
}

/** `heads` are keys of words; `rows` are elements, or a body that fills itself. */
export function table(heads, rows, kind = "") {
  const head = h("thead", h("tr", heads.map((key) => h("th", t(key)))));
  const body = rows instanceof Node ? rows : h("tbody", rows);
  return h("div.table", { tabindex: "0" }, h("table", { class: kind }, head, body));
}

/** Something that is shown when its title is pressed. */
export function fold(title, ...content) {
  return h("details.fold", h("summary", icon("chevron", 14), title), content);
}

/** The state of a turn, a run or a check in a word, coloured by whether it is good. */
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
