/* Playground screen: search results, and the components of each score. */

import { get } from "./api.js";
import { debounce, h, put, wide } from "./dom.js";
import { matched, number, percent } from "./format.js";
import { t, tOf } from "./i18n.js";
import { searchField } from "./components.js";
import { address } from "./router.js";
import { screenHead } from "./split_view.js";
import { empty, fetched } from "./placeholders.js";

const LIMIT = 10;
const MOST_WORDS = 12;

export function open(place, first) {
  const results = h("div.results", { "aria-live": "polite" });
  const look = debounce(200, refresh);
  const asked = first.query.get("query") ?? "";
  const field = searchField(t("playground.query"), look, { class: "big", value: asked });
  const submit = (event) => {
    event.preventDefault();
    refresh();
  };
  const form = h("form", { role: "search", on: { submit } }, field);
  const head = [screenHead(t("screen.playground")), h("p.quiet", t("playground.about"))];
  put(place, h("div.page.playground", head, form, results));

  function refresh() {
    const query = field.value.trim();
    const more = query ? `?query=${encodeURIComponent(query)}` : "";
    history.replaceState(null, "", address("playground") + more);
    if (!query) {
      results.asking?.abort();
      put(results, examples(field, refresh));
      return;
    }
    const ask = (signal) => get("/v1/skills/search", { query: { query, limit: LIMIT }, signal });
    fetched(results, ask, drawn, { quiet: results.childNodes.length > 0 });
  }

  refresh();
  field.focus();
  return { close: () => look.cancel() };
}

function examples(field, refresh) {
  const use = (words) => () => {
    field.value = words;
    refresh();
  };
  const tries = ["1", "2", "3"].map((n) => t(`playground.try.${n}`));
  const offer = (words) => h("button.try", { type: "button", on: { click: use(words) } }, words);
  return empty(t("playground.empty"), t("playground.empty.text"), h("div.tries", tries.map(offer)));
}

function drawn(found) {
  const { confidence, threshold, searched, hits, problem } = found;
  const best = {
    meaning: Math.max(0.001, ...hits.map((hit) => Math.abs(hit.parts.meaning))),
    total: Math.max(0.001, ...hits.map((hit) => Math.abs(hit.parts.total))),
  };
  return [
    gauge(confidence, threshold, searched),
    problem && h("p.event.warn", problem.message, " ", problem.hint),
    hits.length ? h("ol.hits", hits.map((hit, n) => card(hit, n, best))) : empty(t("playground.none")),
  ];
}

/** Confidence that any skill is relevant, beside the threshold; below it no number, as "0 %" reads as "none". */
function gauge(confidence, threshold, searched) {
  const count = h("span.quiet", t("playground.searched", { n: number(searched) }));
  if (confidence < threshold) return h("section.confidence", h("p", h("b", t("playground.weak")), count));
  const fill = wide(h("div.gauge-fill"), confidence);
  const mark = wide(h("div.gauge-mark"), threshold, "left");
  const given = { sure: percent(confidence), least: percent(threshold) };
  const words = h("b", t("playground.fits", given));
  return h("section.confidence", h("p", words, count), h("div.gauge.ok", fill, mark));
}

const link = (name) => h("a", { href: address("skills", name) }, name);

function card(hit, n, best) {
  const { parts } = hit;
  const rows = [
    ["dense", parts.dense, parts.dense],
    ["view", parts.view, parts.view],
    ["lexical", parts.lexical, parts.lexical],
    ["meaning", parts.meaning, Math.abs(parts.meaning) / best.meaning],
    ["usage", parts.usage, Math.abs(parts.usage)],
    ["total", parts.total, Math.abs(parts.total) / best.total],
  ];
  return h(
    "li.hit",
    h("header", h("span.rank", n + 1), link(hit.name), h("span.score", { class: hit.match }, matched(hit))),
    h("p.quiet", hit.description),
    hit.alike.length > 0 && alike(hit.alike),
    h("dl.parts", rows.map(([name, value, share]) => bar(name, value, share))),
    parts.view_text && h("p.matched", h("span", t("playground.closest")), h("q", parts.view_text)),
    words(parts.words),
  );
}

/** Near duplicates that a hit stands for. */
function alike(names) {
  const count = t("playground.alike", { n: number(names.length) });
  return h("p.matched", h("span", count), names.map(link));
}

function bar(name, value, share) {
  const fill = wide(h("div.bar-fill", { class: value < 0 ? "minus" : name }), Math.abs(share));
  return h(
    "div.part",
    h("dt", { title: t(`part.${name}.about`) }, tOf("part", name)),
    h("dd", h("div.bar", fill), h("span.value", number(value, 2))),
  );
}

function words(matched) {
  const found = Object.entries(matched).sort(([, one], [, other]) => other - one);
  if (!found.length) return null;
  const word = ([text, weight]) => h("span.word", { title: number(weight, 2) }, text);
  return h("p.matched", h("span", t("playground.words")), found.slice(0, MOST_WORDS).map(word));
}
