/* Parts of an assistant turn: text, reasoning, tool calls, skills, approvals and notices. */

import { h, put } from "./dom.js";
import { seconds } from "./format.js";
import { t, tOf } from "./i18n.js";
import { icon } from "./icons.js";
import { markdown } from "./markdown.js";
import { address } from "./router.js";
import { question } from "./approval_card.js";

const PAUSES = 4; // rendering may take at most a fifth of the time
const VIEWS = { text, reasoning, tool, skill, refusal, approval: question, note };

/** Element of a part, and its update function; `isOver` means that the part is complete. */
export function pieceView(piece, isOver) {
  return VIEWS[piece.kind](piece, isOver);
}

/** Renders only what has grown, and throttles expensive renders. */
function growing(piece, isOver, node, draw) {
  let [length, next] = [-1, 0];
  const update = () => {
    const now = performance.now();
    if (piece.text.length === length || (now < next && !isOver())) return;
    length = piece.text.length;
    draw();
    next = now + PAUSES * (performance.now() - now);
  };
  return { node, update };
}

function text(piece, isOver) {
  const node = h("div.prose");
  return growing(piece, isOver, node, () => put(node, markdown(piece.text)));
}

function reasoning(piece, isOver) {
  const body = h("p.reasoning");
  const node = h("details.fold", h("summary", icon("chevron", 14), t("chat.reasoning")), body);
  return growing(piece, isOver, node, () => put(body, piece.text));
}

function tool(piece) {
  const state = h("span.call-state");
  const body = h("div.call-body");
  const node = h(
    "details.fold.call",
    h(
      "summary",
      icon("chevron", 14),
      icon("tool", 15),
      h("b", piece.tool),
      h("span.call-given", short(piece.given)),
      state,
    ),
    body,
  );
  let drawn = "";
  const update = () => {
    if (drawn === piece.state) return;
    drawn = piece.state;
    node.dataset.state = piece.state;
    const took = piece.seconds != null && h("span", seconds(piece.seconds));
    put(state, h("span", tOf("call", piece.state)), took);
    put(body, block(t("chat.arguments"), pretty(piece.given)), block(t("chat.result"), piece.result));
  };
  return { node, update };
}

function block(title, content) {
  if (content === undefined || content === null || content === "") return null;
  return h("section", h("h4", title), h("pre", { tabindex: "0" }, h("code", content)));
}

/** Arguments are JSON text, or parsed JSON. */
function pretty(given) {
  if (given === undefined || given === null) return "";
  try {
    return JSON.stringify(typeof given === "string" ? JSON.parse(given) : given, null, 2);
  } catch {
    return String(given);
  }
}

function short(given) {
  if (!given) return "";
  const line = typeof given === "string" ? given : JSON.stringify(given);
  try {
    const values = Object.values(JSON.parse(line)).filter((value) => typeof value !== "object");
    return values.join(" · ").slice(0, 120);
  } catch {
    return line.slice(0, 120);
  }
}

function skill(piece) {
  const how = [piece.mode === "fork" && t("skill.fork"), piece.trigger && tOf("trigger", piece.trigger)];
  const node = h(
    "p.event",
    icon("spark", 15),
    h("span", t("chat.skill")),
    h("a", { href: address("skills", piece.skill) }, piece.skill),
    h("span.quiet", how.filter(Boolean).join(" · ")),
  );
  return { node };
}

function refusal(piece) {
  const words = t("chat.refused", { name: piece.skill });
  return { node: h("p.event.warn", icon("warning", 15), words, h("code", piece.code)) };
}

function note(piece) {
  const words = piece.code === "listing_cut" ? t("chat.cut_list", { names: piece.names.join(", ") }) : piece.text;
  return { node: h("p.event.warn", icon("warning", 15), h("span", words)) };
}
