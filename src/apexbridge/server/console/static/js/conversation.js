/* Conversation model: messages, the running turn, and sending. */

import { get, part, send } from "./api.js";
import { t } from "./i18n.js";
import { events } from "./stream.js";
import { happened } from "./turn_events.js";
import { entriesOf, newTurn } from "./history.js";
import { learn, nameOf, ownName } from "./caller.js";

const MODEL = "apexbridge";

export function newId() {
  const random = crypto.getRandomValues(new Uint8Array(6));
  return ownName(`c-${[...random].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`);
}

export class Conversation {
  constructor(id) {
    Object.assign(this, { id, entries: [], running: null, changed: () => {}, settled: () => {} });
  }

  /** Load the stored messages. */
  async load(signal) {
    const kept = await get(`/v1/sessions/${part(this.id)}`, { signal });
    this.entries = entriesOf(kept.messages);
  }

  /** Sessions of other callers are read-only. */
  get isOwn() {
    return nameOf(this.id) !== "";
  }

  get isRunning() {
    return this.running !== null;
  }

  stop() {
    this.running?.abort();
  }

  /** Send a message and stream the response. */
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
      turn.error = turn.state === "failed" ? errorMessage(error) : null;
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

  /** Every event carries the full session id. */
  #learn(sessionId) {
    if (!sessionId || sessionId === this.id || !sessionId.endsWith(`:${nameOf(this.id)}`)) return;
    learn(sessionId);
    this.id = sessionId;
  }

  /** Fetch the skill candidates; a turn without a trace is shown without. */
  async #explain(turn) {
    if (!turn.id) return;
    turn.trace = await get(`/v1/turns/${part(turn.id)}`).catch(() => null);
    this.changed();
  }
}

/** Replace the browser's unhelpful message of a network error. */
function errorMessage(error) {
  return error instanceof TypeError ? new Error(t("chat.cut")) : error;
}

/** Mark the running parts of a stopped turn as stopped. */
function settleParts(turn) {
  for (const piece of turn.parts) {
    if (piece.kind === "tool" && piece.state === "running") piece.state = "stopped";
    if (piece.kind === "approval" && !piece.answer) piece.answer = "withdrawn";
  }
}
