/* Timeline of a turn: its spans as bars. */

import { h, wide } from "./dom.js";
import { number, seconds } from "./format.js";
import { t, tOf } from "./i18n.js";

const KINDS = ["model", "tool", "search", "fork", "approval", "hook"];

export function timeline(turn) {
  const end = Math.max(turn.seconds, ...turn.spans.map((span) => span.start + span.seconds), 1e-6);
  const kinds = KINDS.filter((kind) => turn.spans.some((span) => span.kind === kind));
  const sample = (kind) => h("span", h("i.dot", { class: `span-${kind}` }), tOf("span", kind));
  return h(
    "figure.timeline",
    h("div.legend", kinds.map(sample)),
    h("div.rows", { role: "list" }, turn.spans.map((span) => row(span, end))),
    axis(end),
    turn.spans_dropped > 0 && h("figcaption.quiet", t("traces.more_spans", { n: number(turn.spans_dropped) })),
  );
}

function row(span, end) {
  const kind = tOf("span", span.kind);
  const bar = h("div.span", { class: `span-${span.kind}${span.is_error ? " failed" : ""}` });
  const lane = h("div.lane", wide(wide(bar, span.start / end, "left"), span.seconds / end));
  const note = noteOf(span);
  const depth = Math.min(span.depth, 4);
  return h(
    "div.row",
    { role: "listitem", "aria-label": `${kind} ${span.name}: ${note}` },
    h("span.span-name", { data: { depth }, title: `${kind} ${span.name}` }, span.name || kind),
    lane,
    h("span.span-note", note),
  );
}

function noteOf(span) {
  const hasTokens = span.input_tokens + span.output_tokens > 0;
  const tokens = hasTokens && `${number(span.input_tokens)} → ${number(span.output_tokens)}`;
  return [seconds(span.seconds), tokens, span.is_error && t("call.failed")].filter(Boolean).join(" · ");
}

function axis(end) {
  const marks = [0, 0.25, 0.5, 0.75, 1].map((share) => wide(h("span.mark", seconds(share * end)), share, "left"));
  return h("div.row.axis", { "aria-hidden": "true" }, h("span"), h("div.lane", marks), h("span"));
}
