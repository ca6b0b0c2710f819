/* Runs screen: script runs with their isolation, limits and output. */

import { get, part } from "./api.js";
import { h, put } from "./dom.js";
import { bytes, number, seconds, visible, when, whenExactly } from "./format.js";
import { t, tOf } from "./i18n.js";
import { icon } from "./icons.js";
import { paged } from "./pagination.js";
import { badge, factsTable, hash, outcome, pictureButton } from "./components.js";
import { address, route } from "./router.js";
import { screenHead, split } from "./split_view.js";
import { empty, fetched } from "./placeholders.js";

export function open(place, first) {
  const list = h("div");
  const detail = h("div.detail");
  const again = pictureButton("refresh", t("action.refresh"), () => refresh(true));
  const head = h("div.split-head", screenHead(t("screen.runs"), again));
  const halves = split("runs", { head, list, detail, home: address("runs") });
  put(place, halves.whole);

  function refresh(quiet = false) {
    const none = () => empty(t("runs.empty"), t("runs.empty.text"));
    return paged(list, "/v1/runs", { line, none, quiet, drawn: () => halves.choose(route().rest[0]) });
  }

  function update(now) {
    const id = now.rest[0];
    halves.choose(id);
    if (id) fetched(detail, (signal) => get(`/v1/runs/${part(id)}`, { signal }), whole);
    else put(detail, empty(t("runs.choose")));
  }

  refresh();
  update(first);
  return { update };
}

const ended = (run) => outcome(tOf("outcome", run.outcome), run.outcome === "ok", "bad");

function line(run) {
  return h(
    "li",
    h(
      "a.list-item",
      { href: address("runs", run.id), data: { id: run.id } },
      h("span.list-title", run.skill || "–", ended(run)),
      h("span.list-text.mono", run.script),
      h("span.list-note", `${when(run.at)} · ${seconds(run.seconds)} · ${run.isolation}`),
    ),
  );
}

function whole(run) {
  return h(
    "article.run",
    h(
      "header.detail-head",
      h("h2", run.skill ? h("a", { href: address("skills", run.skill) }, run.skill) : "–"),
      h("div.badges", ended(run), badge(t("runs.exit", { code: run.exit_code ?? "–" }))),
    ),
    h("p.mono.lead", run.script),
    run.error && h("p.event.warn", icon("warning", 15), run.error),
    facts(run),
    h("h3", t("runs.limits")),
    limits(run.limits),
    output(t("runs.stdout"), run.stdout),
    output(t("runs.stderr"), run.stderr),
    run.truncated && h("p.quiet", t("runs.truncated")),
    run.files.length > 0 && files(run.files),
  );
}

function files(paths) {
  return [h("h3", t("runs.files")), h("ul.plain", paths.map((path) => h("li.mono", visible(path))))];
}

function facts(run) {
  const chars = run.argument_chars;
  const given = { n: number(chars.length), chars: chars.join(" + ") };
  return factsTable([
    [t("runs.isolation"), run.isolation],
    [t("runs.began"), whenExactly(run.at)],
    [t("runs.took"), seconds(run.seconds)],
    [t("runs.arguments"), chars.length ? t("runs.argument_chars", given) : "–"],
    ["SHA-256", hash(run.sha256)],
  ]);
}

function limits(given) {
  const shown = (name, value) => {
    if (name.endsWith("_bytes")) return bytes(value);
    return name.endsWith("_seconds") ? seconds(value) : number(value);
  };
  const chip = ([name, value]) => h("span.chip", h("b", tOf("limit", name)), shown(name, value));
  return h("div.chips", Object.entries(given).map(chip));
}

function output(title, text) {
  if (!text) return null;
  return [h("h3", title), h("pre.output", { tabindex: "0" }, h("code", visible(text)))];
}
