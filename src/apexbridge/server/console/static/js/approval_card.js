/* Card of one pending approval, with its countdown. */

import { part, post } from "./api.js";
import { h, put } from "./dom.js";
import { number, visible } from "./format.js";
import { t, tOf } from "./i18n.js";
import { icon } from "./icons.js";
import { pendingApprovals, refreshApprovals } from "./pending_approvals.js";
import { toastError } from "./toast.js";

const CHOICES = ["once", "always", "no"];

/** `piece` is { id, tool, argument, reason, rule, choices, until, answer }. */
export function question(piece) {
  const left = h("span.left");
  const answers = h("div.answers");
  const argument = h("code");
  const node = h(
    "section.question",
    { tabindex: "-1", "aria-label": t("approvals.question", { tool: piece.tool }) },
    h("header", icon("approvals", 17), h("b", t("approvals.question", { tool: piece.tool })), left),
    h("pre", { tabindex: "0" }, argument),
    piece.reason && h("p.quiet", piece.reason),
    answers,
  );
  const ticking = setInterval(tick, 1000);
  let drawn = "";

  function tick() {
    const seconds = Math.max(0, Math.round((piece.until - Date.now()) / 1000));
    put(left, piece.answer ? "" : t("approvals.left", { n: seconds }));
    left.classList.toggle("urgent", seconds < 15);
    if (piece.answer || (!node.isConnected && seconds === 0)) clearInterval(ticking);
  }

  function update() {
    if (drawn === piece.answer) return;
    drawn = piece.answer;
    node.dataset.answer = piece.answer;
    if (piece.answer) put(answers, h("p.answered", tOf("answer", piece.answer)));
    tick();
  }

  /** Keep the keyboard focus here after the buttons are gone. */
  function settled() {
    update();
    node.focus();
  }

  function draw() {
    const isCut = piece.argument_chars > piece.argument.length;
    put(argument, visible(piece.argument), isCut && t("approvals.cut", { n: number(piece.argument_chars) }));
    if (piece.answer) return;
    put(answers, (piece.choices ?? CHOICES).map((answer) => choice(piece, answer, settled)));
  }

  tick();
  if (piece.choices || piece.answer) draw();
  else whole(piece).then(draw, draw);
  return { node, update };
}

/** Events carry truncated arguments: fetch the full one, so that no unseen text is approved. */
async function whole(piece) {
  await refreshApprovals();
  const found = pendingApprovals().find((pending) => pending.id === piece.id);
  if (!found) return;
  const { argument, argument_chars, choices, rule, prefix_rule, reason } = found;
  Object.assign(piece, { argument, argument_chars, choices, rule, prefix_rule, reason });
}

function choice(piece, answer, settled) {
  const rule = { always: piece.rule, always_prefix: piece.prefix_rule }[answer];
  const title = rule ? t("approvals.rule", { rule }) : null;
  const give = async (event) => {
    for (const button of event.currentTarget.parentNode.children) button.disabled = true;
    try {
      await post(`/v1/approvals/${part(piece.id)}`, { body: { answer } });
      piece.answer = answer;
    } catch (error) {
      toastError(error);
      if ([404, 409].includes(error.status)) piece.answer = "withdrawn";
      else for (const button of event.target.parentNode?.children ?? []) button.disabled = false;
    }
    if (piece.answer) settled();
    refreshApprovals().catch(() => {});
  };
  const kind = { once: "button.primary", no: "button.danger" }[answer] ?? "button";
  const given = { type: "button", title, data: { answer }, on: { click: give } };
  return h(kind, given, t(`approvals.${answer}`, { rule }));
}
