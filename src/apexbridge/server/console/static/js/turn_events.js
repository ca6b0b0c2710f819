/* Applies the chunks of a stream to the running turn. */

/** Apply one chunk. */
export function happened(turn, chunk) {
  if (chunk.error) {
    turn.state = "failed";
    turn.error = Object.assign(new Error(chunk.error.message), { hint: chunk.error.hint ?? "" });
    return;
  }
  const choice = chunk.choices?.[0];
  const delta = choice?.delta ?? {};
  if (delta.reasoning_content) grow(turn, "reasoning", delta.reasoning_content);
  if (delta.content) grow(turn, "text", delta.content);
  if (choice?.finish_reason) turn.finish ||= choice.finish_reason;
  if (chunk.usage) turn.usage = chunk.usage;
  if (chunk.apexbridge) applyEvent(turn, chunk.apexbridge);
}

function grow(turn, kind, text) {
  const last = turn.parts.at(-1);
  if (last?.kind === kind) last.text += text;
  else turn.parts.push({ kind, text });
}

const EVENTS = {
  tool_started: (turn, event) => {
    const { call_id: id, tool, arguments: given } = event;
    turn.parts.push({ kind: "tool", id, tool, given, state: "running", began: performance.now() });
  },
  tool_finished: (turn, event) => {
    const isIt = (part) => part.kind === "tool" && part.id === event.call_id;
    const call = turn.parts.findLast((part) => isIt(part) && part.state === "running");
    if (!call) return;
    call.state = event.is_error ? "failed" : "done";
    call.seconds = event.seconds;
    call.result = event.result;
    call.given ??= event.arguments;
  },
  skill_activated: (turn, event) => {
    turn.parts.push({ kind: "skill", skill: event.skill, mode: event.mode, trigger: event.trigger });
  },
  skill_refused: (turn, event) => {
    turn.parts.push({ kind: "refusal", skill: event.skill, code: event.code });
  },
  approval_asked: (turn, event) => {
    const { approval_id: id, tool, argument, argument_chars, reason, seconds } = event;
    const until = Date.now() + seconds * 1000;
    turn.parts.push({ kind: "approval", id, tool, argument, argument_chars, reason, until, answer: "" });
  },
  approval_settled: (turn, event) => {
    const question = turn.parts.find((part) => part.kind === "approval" && part.id === event.approval_id);
    if (question) question.answer = event.answer;
  },
  listing_cut: (turn, event) => {
    const names = [...(event.shortened ?? []), ...(event.dropped ?? [])];
    turn.parts.push({ kind: "note", code: "listing_cut", names });
  },
  hook_warned: (turn, event) => turn.parts.push({ kind: "note", code: "hook_warned", text: event.text }),
  turn_finished: (turn, event) => {
    turn.id = event.turn_id ?? event.turn ?? turn.id;
    turn.finish = event.finish ?? turn.finish;
  },
};

function applyEvent(turn, event) {
  EVENTS[event.event]?.(turn, event);
  if (!event.turn) return; // otherwise it is the summary at the end of a stream
  turn.id = event.turn;
  turn.finish = event.finish ?? turn.finish;
}
