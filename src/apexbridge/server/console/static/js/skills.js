/* Skills screen: search as you type, install, and details. */

import { get } from "./api.js";
import { h, put, debounce } from "./dom.js";
import { matched, number, when } from "./format.js";
import { t, tOf } from "./i18n.js";
import { icon } from "./icons.js";
import { arrows, downInto } from "./keyboard.js";
import { badge, button, searchField, select } from "./components.js";
import { address, route } from "./router.js";
import { screenHead, split } from "./split_view.js";
import { empty, fetched } from "./placeholders.js";
import { takesDrops, chooseFile } from "./skill_install.js";
import { skillDetail } from "./skill_detail.js";
import { bringBack } from "./skill_actions.js";
import { may } from "./caller.js";

const PAGE = 50;
const LEAST = 0.05; // minimum score of a semantic hit
const NEAREST = 3; // hits shown below it
const GRAVE = ["warn", "block"];
const STATES = ["", "enabled", "disabled", "shadowed", "trash"];

export function open(place, first) {
  const list = h("div.skill-list");
  const detail = h("div.detail");
  const search = searchField(t("skills.search"), debounce(150, () => refresh()));
  const states = STATES.map((name) => [name, tOf("state", name || "any")]);
  const state = select(t("skills.state"), states, () => refresh());
  const install = button("upload", t("skills.install"), () => chooseFile(changed), "primary");
  const title = screenHead(t("screen.skills"), may("skills:write") && install);
  const head = h("div.split-head", title, h("div.filters", search, state));
  const halves = split("skills", { head, list, detail, home: address("skills") });
  put(place, halves.whole);
  downInto(search, list);
  if (may("skills:write")) takesDrops(halves.whole, changed);

  function refresh({ quiet = true } = {}) {
    const text = search.value.trim();
    const ask = (signal) => asked(text, state.value, signal);
    const mark = (found) => {
      queueMicrotask(() => halves.choose(route().rest[0]));
      return drawn(found, text, refresh);
    };
    return fetched(list, ask, mark, { quiet: quiet && list.childNodes.length > 0 });
  }

  /** Refresh after a change; `name` is the skill to show, if any. */
  function changed(name) {
    refresh();
    if (name === route().rest[0]) update(route());
    else location.hash = name ? address("skills", name) : address("skills");
  }

  function update(now) {
    const name = now.rest[0];
    halves.choose(name);
    if (name) skillDetail(detail, name, changed);
    else put(detail, empty(t("skills.choose"), t("skills.choose.text")));
  }

  refresh({ quiet: false });
  update(first);
  return { update };
}

/** Keyword filter plus semantic search; removed skills are a separate list. */
async function asked(text, state, signal) {
  if (state === "trash") return { trash: (await get("/v1/skills/trash", { signal })).data };
  const named = get("/v1/skills", { query: { text, state, limit: PAGE }, signal });
  const meant = text && !state ? get("/v1/skills/search", { query: { query: text, limit: 8 }, signal }) : null;
  const [page, search] = await Promise.all([named, meant]);
  return { page, search, text, state };
}

function drawn({ trash, page, search, text, state }, typed, refresh) {
  if (trash) return trashed(trash, refresh);
  const names = new Set(page.data.map((skill) => skill.name));
  const hits = (search?.hits ?? []).filter((hit) => !names.has(hit.name));
  // Without a match by keyword, the nearest are shown however weak they are: one may be meant.
  const others = hits.filter((hit, n) => hit.score >= LEAST || (!names.size && n < NEAREST));
  if (!page.data.length && !others.length) {
    if (typed || state) return empty(t("skills.none"), t("skills.none.text"));
    return empty(t("skills.empty"), t("skills.empty.text"));
  }
  const lines = h("ul.list", page.data.map(line));
  const more = page.has_more && moreButton(page, text, state, lines);
  const meant = others.length > 0 && [h("h2.list-head", t("skills.meant")), h("ul.list", others.map(hitLine))];
  const note = h("p.list-count", { role: "status" }, t("skills.count", { n: number(page.total) }));
  return arrows(h("div", note, lines, more, meant), "a");
}

function moreButton(page, text, state, lines) {
  let last = page.last_id;
  const load = async (event) => {
    const button = event.currentTarget;
    button.disabled = true;
    const next = await get("/v1/skills", { query: { text, state, limit: PAGE, after: last } });
    lines.append(...next.data.map(line));
    last = next.last_id;
    button.disabled = false;
    if (!next.has_more) button.remove();
  };
  return h("button.more", { type: "button", on: { click: load } }, t("action.more"));
}

function line(skill) {
  const marks = [
    skill.state !== "enabled" && badge(tOf("state", skill.state)),
    !skill.trusted && badge(t("skills.untrusted"), "warn"),
    skill.pinned && icon("pin", 14),
    GRAVE.includes(skill.findings.worst) && badge(tOf("level", skill.findings.worst), "warn"),
  ];
  const faded = skill.state === "enabled" ? "" : "faded";
  return h(
    "li",
    h(
      "a.list-item",
      { href: address("skills", skill.name), data: { id: skill.name }, class: faded },
      h("span.list-title", skill.name, marks),
      h("span.list-text", skill.description),
      h("span.list-note", tOf("origin", skill.origin)),
    ),
  );
}

function hitLine(hit) {
  return h(
    "li",
    h(
      "a.list-item",
      { href: address("skills", hit.name), data: { id: hit.name } },
      h("span.list-title", hit.name, badge(matched(hit))),
      h("span.list-text", hit.description),
    ),
  );
}

function trashed(gone, refresh) {
  if (!gone.length) return empty(t("skills.trash.empty"));
  const row = (skill) => {
    const until = t("skills.trash.until", { when: when(skill.expires_at) });
    const line = h("div.list-item", h("span.list-title", skill.name), h("span.list-note", until));
    return h("li.with-action", line, button("refresh", t("action.undo"), () => bringBack(skill.name, refresh)));
  };
  return h("ul.list", gone.map(row));
}
