/* One assistant turn: its parts in order, and its usage. */

import { h, put } from "./dom.js";
import { many, number, percent } from "./format.js";
import { t, tOf } from "./i18n.js";
import { icon } from "./icons.js";
import { address } from "./router.js";
import { problem } from "./placeholders.js";
import { pieceView } from "./chat_parts.js";

const FITS = ["offered", "known"];
const WEAK = ["weak", "hinted"];

export function turnView(turn) {
  const views = new Map();
  const pieces = h("div.pieces");
  const foot = h("footer.turn-foot");
  const node = h("article.turn", { "aria-label": t("chat.answer") }, pieces, foot);
  let drawn = "";

  function update() {
    for (const piece of turn.parts) {
      if (!views.has(piece)) {
        const view = pieceView(piece, () => turn.state !== "running");
        views.set(piece, view);
        pieces.append(view.node);
      }
      views.get(piece).update?.();
    }
    node.classList.toggle("running", turn.state === "running");
    const now = `${turn.state} ${Boolean(turn.trace)} ${turn.parts.length > 0}`;
    if (now !== drawn) put(foot, footer(turn));
    drawn = now;
  }

  return { node, update };
}

function footer(turn) {
  if (turn.state === "running") return turn.parts.length ? [] : h("p.thinking", t("chat.thinking"));
  return [
    turn.state === "failed" && problem(turn.error),
    turn.state === "stopped" && h("p.quiet", icon("stop", 14), t("chat.stopped")),
    !["", "stop"].includes(turn.finish) && h("p.quiet", icon("warning", 14), tOf("finish", turn.finish)),
    found(turn),
  ];
}

/** Usage, and the skill candidates of the search. */
function found(turn) {
  const facts = [];
  if (turn.trace) facts.push(many("count.rounds", turn.trace.rounds));
  const tokens = turn.usage?.total_tokens;
  if (tokens) facts.push(t("chat.tokens", { n: number(tokens) }));
  const why = turn.id && h("a", { href: address("traces", turn.id) }, t("chat.why"));
  const candidates = turn.trace?.candidates ?? [];
  const line = h("p.facts", facts.map((fact) => h("span", fact)), why);
  if (!candidates.length) return facts.length || why ? line : null;
  const chips = candidates.slice(0, 5).map(chip);
  const given = { count: many("count.skills", candidates.length), sure: percent(turn.trace.confidence) };
  const title = t(!candidates.some((each) => FITS.includes(each.outcome)) ? "chat.unfit" : "chat.found", given);
  return [line, h("details.found", h("summary", title), h("div.chips", chips))];
}

function chip(candidate) {
  const { name, score, outcome } = candidate;
  const words = tOf("candidate", outcome);
  const given = { href: address("skills", name), class: `candidate-${outcome}` };
  const share = WEAK.includes(outcome) ? null : percent(score);
  return h("a.chip", given, h("b", name), share, h("i", words));
}
