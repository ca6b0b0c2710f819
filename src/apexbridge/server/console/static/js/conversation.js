/* A conversation as it stands: what was said, what is being done, and how it goes on. */

import { get, part, send } from "./api.js";
import { t } from "./i18n.js";
import { events } from "./stream.js";
import { happened } from "./turn_events.js";
import { entriesOf, newTurn } from "./history.js";
import { learn, nameOf, ownName } from "./who.js";

const MODEL = "apexbridge";

export function newId() {
  const random = crypto.getRandomValues(new Uint8Array(6));
  return ownName(`c-${[...random].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`);
}

export class Conversation {
  constructor(id) {
    Object.assign(this, { id, entries: [], running: null, changed: () => {}, settled: () => {} });
  }

  /** Take up what was said before. */
  async load(signal) {
    const kept = await get(`/v1/sessions/${part(this.id)}`, { signal });
    this.entries = entriesOf(kept.messages);
  }

  /** Those of other callers can be read, and not gone on with. */
  get isOwn() {
    return nameOf(this.id) !== "";
  }

  get isRunning() {
    return this.running !== null;
  }

  stop() {
    this.running?.abort();
  }

  /** Say something and take the answer as it comes. */
  async say(text) {
    const turn = newTurn();
    this.entries.push({ role: "user", text }, turn);
    this.running = new AbortController();
    this.changed();
    try {
      await this.#take(turn, text, this.running.signal);
      if (turn.state === "running") turn.state = "done";
    } catch (error) {
      turn.state = error.name === "AbortError" ? "stopped" : "failed";
      turn.error = turn.state === "failed" ? told(error) : null;
    }
    this.running = null;
    settleParts(turn);
    this.changed();
    await this.#explain(turn);
    this.settled();
  }

  async #take(turn, text, signal) {
    const body = {
      model: MODEL,
      stream: true,
      stream_options: { include_usage: true },
      messages: [{ role: "user", content: text }],
      apexbridge: { session: nameOf(this.id), progress: true, approvals: "wait" },
    };
    const reply = await send("POST", "/v1/chat/completions", { body, signal });
    for await (const chunk of events(reply)) {
      this.#learn(chunk.apexbridge?.session_id);
      happened(turn, chunk);
      this.changed();
    }
    if (!turn.finish && turn.state === "running") {
      turn.state = "failed";
      turn.error = new Error(t("chat.cut"));
    }
  }

  /** The server tells the whole name of a conversation with each event. */
  #learn(told) {
    if (!told || told === this.id || !told.endsWith(`:${nameOf(this.id)}`)) return;
    learn(told);
    this.id = told;
  }

  /** Which skills were found for it; a turn without a record is shown without. */
  async #explain(turn) {
    if (!turn.id) return;
    turn.trace = await get(`/v1/turns/${part(turn.id)}`).catch(() => null);
    this.changed();
  }
}

/** A connection that breaks off is told in the browser's words, which help nobody. */
function told(error) {
  return error instanceof TypeError ? new Error(t("chat.cut")) : error;
}

/** What a stopped turn was still doing is not going on. */
function settleParts(turn) {
  for (const piece of turn.parts) {
    if (piece.kind === "tool" && piece.state === "running") piece.state = "stopped";
    if (piece.kind === "approval" && !piece.answer) piece.answer = "withdrawn";
  }
}
