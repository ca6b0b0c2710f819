/* Who is signed in: what they may do, and what their conversations are called. */

const CONSOLE = "console";
let who = { id: CONSOLE, scopes: [] };

export function signedInAs(told) {
  who = { id: CONSOLE, ...told };
}

export const may = (scope) => who.scopes.includes(scope);

/** A conversation's whole name: that of its owner stands before the colon. */
export const ownName = (name) => `${who.id}:${name}`;

/** What we call a conversation of ours; empty for one of somebody else, which only `admin` sees. */
export function nameOf(id) {
  const at = id.indexOf(":");
  const isOwn = id.slice(0, at) === who.id || !may("admin");
  return at > 0 && isOwn ? id.slice(at + 1) : "";
}

/** Who signed in with a key learns what the server calls them from a conversation of their own. */
export function learn(id) {
  who.id = id.slice(0, id.indexOf(":"));
}
