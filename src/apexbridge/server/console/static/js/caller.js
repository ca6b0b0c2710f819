/* Current caller: its scopes, and the prefix of its session ids. */

const CONSOLE = "console";
let who = { id: CONSOLE, scopes: [] };

export function signedInAs(info) {
  who = { id: CONSOLE, ...info };
}

export const may = (scope) => who.scopes.includes(scope);

/** Full session id: the owner precedes the colon. */
export const ownName = (name) => `${who.id}:${name}`;

/** Session name of an own session; empty for one of another caller, which only `admin` sees. */
export function nameOf(id) {
  const at = id.indexOf(":");
  const isOwn = id.slice(0, at) === who.id || !may("admin");
  return at > 0 && isOwn ? id.slice(at + 1) : "";
}

/** With an API key the caller id is learned from an own session. */
export function learn(id) {
  who.id = id.slice(0, id.indexOf(":"));
}
