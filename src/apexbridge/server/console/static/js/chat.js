/* Chat screen: the streamed conversation, and the list of earlier sessions. */

import { h, put } from "./dom.js";
import { t } from "./i18n.js";
import { icon } from "./icons.js";
import { address, go } from "./router.js";
import { empty, fetched } from "./placeholders.js";
import { composer } from "./chat_composer.js";
import { sessionList } from "./chat_sessions.js";
import { turnView } from "./chat_turn.js";
import { Conversation, newId } from "./conversation.js";

const NEAR = 80; // px from the end within which new content scrolls into view
const WIDE = "(min-width: 900px)";

/* They go on while another screen is open. */
const known = new Map();

/** Forget all conversations on sign-out. */
export function forgetAll() {
  for (const conversation of known.values()) conversation.stop();
  known.clear();
}

export function open(place, route) {
  const screen = new ChatScreen(place);
  screen.update(route);
  return screen;
}

class ChatScreen {
  #current = null;
  #views = new Map();
  #frame = 0;

  constructor(place) {
    this.thread = h("div.thread", { tabindex: "-1" });
    this.status = h("div.unseen", { role: "status" });
    this.sessions = sessionList({ removed: (id) => this.#forget(id) });
    this.writing = composer({ say: (text) => this.#say(text), stop: () => this.#current.stop() });
    const title = h("h1.unseen", t("screen.chat"));
    const main = h("div.chat-main", title, this.thread, this.status, this.writing.node);
    put(place, h("div.chat", this.#drawer(), main));
    this.sessions.refresh();
  }

  #drawer() {
    return h(
      "details.chat-side",
      { open: matchMedia(WIDE).matches },
      h("summary", icon("menu", 16), t("chat.sessions")),
      h("a.button.wide", { href: address("chat", "new") }, icon("plus", 15), t("chat.new")),
      this.sessions.node,
    );
  }

  /** Show the conversation of the route, or a new one. */
  update(route) {
    const id = route.rest[0] && route.rest[0] !== "new" ? route.rest[0] : "";
    this.sessions.mark(id);
    if (!id) this.#watch(new Conversation(newId()));
    else if (known.has(id)) this.#watch(known.get(id));
    else this.#load(new Conversation(id));
    this.writing.focus();
  }

  close() {
    this.#unwatch();
    cancelAnimationFrame(this.#frame);
  }

  #watch(conversation) {
    this.#unwatch();
    this.#current = conversation;
    this.#views = new Map();
    conversation.changed = () => (this.#frame ||= requestAnimationFrame(() => this.#draw()));
    conversation.settled = () => this.#settled();
    put(this.thread);
    if (conversation.entries.length) this.#draw();
    else put(this.thread, welcome(this.writing.write));
    this.thread.scrollTop = this.thread.scrollHeight;
    this.writing.running(conversation.isRunning);
    this.writing.allow(conversation.isOwn);
  }

  #unwatch() {
    if (this.#current) this.#current.changed = this.#current.settled = () => {};
  }

  #load(conversation) {
    this.#watch(conversation);
    const ask = async (signal) => {
      await conversation.load(signal);
      known.set(conversation.id, conversation);
    };
    const draw = () => {
      queueMicrotask(() => this.#current === conversation && this.#watch(conversation));
      return [];
    };
    fetched(this.thread, ask, draw);
  }

  #draw() {
    this.#frame = 0;
    const { scrollHeight, scrollTop, clientHeight } = this.thread;
    for (const entry of this.#current.entries) {
      if (!this.#views.has(entry)) this.#add(entry);
      this.#views.get(entry).update?.();
    }
    this.writing.running(this.#current.isRunning);
    if (scrollHeight - scrollTop - clientHeight < NEAR) this.thread.scrollTop = this.thread.scrollHeight;
  }

  #add(entry) {
    if (!this.#views.size) put(this.thread);
    const view = entry.role === "user" ? { node: said(entry.text) } : turnView(entry);
    this.#views.set(entry, view);
    this.thread.append(view.node);
  }

  #say(text) {
    const conversation = this.#current;
    known.set(conversation.id, conversation);
    conversation.say(text);
    history.replaceState(null, "", address("chat", conversation.id));
    this.thread.scrollTop = this.thread.scrollHeight;
  }

  #settled() {
    const conversation = this.#current;
    put(this.status, t(`chat.${conversation.entries.at(-1).state}`));
    known.set(conversation.id, conversation);
    history.replaceState(null, "", address("chat", conversation.id));
    this.sessions.refresh(conversation.id);
  }

  #forget(id) {
    known.delete(id);
    if (this.#current?.id === id) go(address("chat", "new"));
  }
}

function said(text) {
  return h("article.said", { "aria-label": t("chat.you") }, h("p", text));
}

function welcome(write) {
  const tries = ["1", "2", "3"].map((n) => t(`chat.try.${n}`));
  const offer = (words) => h("button.try", { type: "button", on: { click: () => write(words) } }, words);
  return empty(t("chat.empty"), t("chat.empty.text"), h("div.tries", tries.map(offer)));
}
