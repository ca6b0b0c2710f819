/* Traces screen: the trace of each turn. */

import { get, part } from "./api.js";
import { h, put } from "./dom.js";
import { many, number, percent, seconds, when, whenExactly } from "./format.js";
import { t, tOf } from "./i18n.js";
import { paged } from "./pagination.js";
import { badge, factsTable, fold, outcome, pictureButton, table } from "./components.js";
import { address, route } from "./router.js";
import { screenHead, split } from "./split_view.js";
import { empty, fetched } from "./placeholders.js";
import { candidateTable } from "./trace_candidates.js";
import { timeline } from "./timeline.js";

export function open(place, first) {
  const list = h("div");
  const detail = h("div.detail");
  const again = pictureButton("refresh", t("action.refresh"), () => refresh(true));
  const head = h("div.split-head", screenHead(t("screen.traces"), again));
  const halves = split("traces", { head, list, detail, home: address("traces") });
  put(place, halves.whole);

  function refresh(quiet = false) {
    const none = () => empty(t("traces.empty"), t("traces.empty.text"));
    return paged(list, "/v1/turns", { line, none, quiet, drawn: () => halves.choose(route().rest[0]) });
  }

  function update(now) {
    const id = now.rest[0];
    halves.choose(id);
    if (id) fetched(detail, (signal) => get(`/v1/turns/${part(id)}`, { signal }), whole);
    else put(detail, empty(t("traces.choose")));
  }

  refresh();
  update(first);
  return { update };
}

const ended = (turn) => outcome(tOf("finish", turn.finish), turn.finish === "stop");

function line(turn) {
  const did = [...turn.skills, ...turn.tools];
  const tokens = t("chat.tokens", { n: number(turn.input_tokens + turn.output_tokens) });
  return h(
    "li",
    h(
      "a.list-item",
      { href: address("traces", turn.id), data: { id: turn.id } },
      h("span.list-title", when(turn.at), ended(turn)),
      h("span.list-text", did.length ? did.join(", ") : t("traces.nothing")),
      h("span.list-note", `${seconds(turn.seconds)} · ${tokens}`),
    ),
  );
}

function whole(turn) {
  const badges = h("div.badges", ended(turn), h("code.hash", turn.id));
  return h(
    "article.trace",
    h("header.detail-head", h("h2", whenExactly(turn.at)), badges),
    facts(turn),
    h("h3", t("traces.timeline")),
    turn.spans.length ? timeline(turn) : empty(t("traces.no_spans")),
    h("h3", t("traces.candidates", { sure: percent(turn.confidence) })),
    turn.candidates.length ? candidateTable(turn.candidates) : empty(t("traces.no_candidates")),
    nameList(t("traces.listed"), turn.listed),
    nameList(t("traces.shortened"), turn.shortened),
    nameList(t("traces.dropped"), turn.dropped),
    nameList(t("traces.path_activated"), turn.path_activated),
    turn.refusals.length > 0 && refusals(turn.refusals),
    turn.calls.length > 0 && calls(turn.calls),
  );
}

function facts(turn) {
  return factsTable([
    [t("traces.took"), seconds(turn.seconds)],
    [t("traces.model"), seconds(turn.model_seconds)],
    [t("traces.tools"), seconds(turn.tool_seconds)],
    [t("traces.search"), seconds(turn.search_seconds)],
    [t("traces.rounds"), number(turn.rounds)],
    [t("traces.tokens"), `${number(turn.input_tokens)} → ${number(turn.output_tokens)}`],
    [t("traces.path_inactive"), number(turn.path_inactive)],
    [t("traces.session"), h("code.hash", turn.session)],
  ]);
}

function nameList(title, names) {
  if (!names.length) return null;
  const chips = names.map((name) => h("a.chip", { href: address("skills", name) }, name));
  return fold([title, badge(many("count.skills", names.length))], h("div.chips", chips));
}

function refusals(texts) {
  return [h("h3", t("traces.refusals")), h("ul.plain", texts.map((text) => h("li", text)))];
}

function calls(made) {
  const heads = ["traces.tool", "traces.took", "traces.given", "traces.got", "traces.code"];
  const row = (call) =>
    h(
      "tr",
      h("td", h("b", call.tool)),
      h("td", seconds(call.seconds)),
      h("td", number(call.argument_chars)),
      h("td", number(call.result_chars)),
      h("td", call.code && h("code", call.code)),
    );
  return [h("h3", t("traces.calls")), table(heads, made.map(row))];
}
