/* Skill candidates of a turn, with score and outcome. */

import { h, wide } from "./dom.js";
import { number, percent } from "./format.js";
import { t, tOf } from "./i18n.js";
import { outcome, table } from "./components.js";
import { address } from "./router.js";

const PARTS = ["dense", "view", "lexical", "meaning", "usage", "total"];

export function candidateTable(candidates) {
  const heads = ["candidate.skill", "candidate.score", "candidate.outcome", "candidate.parts"];
  return table(heads, candidates.map(row), "candidates");
}

function row({ name, score, outcome: value, parts }) {
  const bar = h("div.bar", wide(h("div.bar-fill.total"), score));
  return h(
    "tr",
    h("td", h("a", { href: address("skills", name) }, name)),
    h("td.score-cell", bar, h("span.value", percent(score))),
    h("td", outcome(tOf("candidate", value), value === "offered", "off")),
    h("td.minis", pieces(parts)),
  );
}

function pieces(parts) {
  const shown = PARTS.filter((name) => typeof parts[name] === "number" && parts[name] !== 0);
  const piece = (name) =>
    h("span.mini", { title: t(`part.${name}.about`) }, tOf("part", name), " ", h("b", number(parts[name], 2)));
  return shown.map(piece);
}
