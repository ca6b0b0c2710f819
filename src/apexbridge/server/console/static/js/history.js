/* Rebuilds a conversation from the messages of a stored session. */

export function newTurn() {
  const nothing = { error: null, id: "", finish: "", usage: null, trace: null };
  return { role: "assistant", parts: [], state: "running", ...nothing };
}

/** Convert messages to entries: user messages and assistant turns. */
export function entriesOf(messages) {
  const entries = [];
  for (const message of messages) TAKEN[message.role]?.(entries, message);
  return entries;
}

const TAKEN = {
  user: (entries, message) => {
    if (message.kind === "skill") {
      turnOf(entries).parts.push({ kind: "skill", skill: message.skill, mode: "inline", trigger: "" });
    } else if (message.kind !== "reminder") {
      entries.push({ role: "user", text: message.text });
    }
  },
  assistant: (entries, message) => {
    const turn = turnOf(entries);
    if (message.text) turn.parts.push({ kind: "text", text: message.text });
    for (const call of message.tool_calls ?? []) {
      turn.parts.push({ kind: "tool", id: call.id, tool: call.name, given: call.arguments, state: "done" });
    }
  },
  tool: (entries, message) => {
    const isIt = (part) => part.kind === "tool" && part.id === message.call_id && part.result === undefined;
    const call = turnOf(entries).parts.findLast(isIt);
    if (!call) return;
    call.result = message.text;
    if (message.is_error) call.state = "failed";
  },
};

function turnOf(entries) {
  if (entries.at(-1)?.role !== "assistant") {
    entries.push({ ...newTurn(), state: "done" });
  }
  return entries.at(-1);
}
