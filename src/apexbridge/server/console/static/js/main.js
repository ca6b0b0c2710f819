/* Entry point: check the session, then mount the page. */

import { get, onSignedOut } from "./api.js";
import { put } from "./dom.js";
import { markPage } from "./i18n.js";
import { listen } from "./keyboard.js";
import { follow, screen, unfollow } from "./router.js";
import { shell } from "./shell.js";
import { signIn, tokenFromAddress } from "./signin.js";
import { loading, problem } from "./placeholders.js";
import { signedInAs } from "./caller.js";
import * as approvals from "./approvals.js";
import * as chat from "./chat.js";
import * as doctor from "./doctor.js";
import * as playground from "./playground.js";
import * as runs from "./runs.js";
import * as skills from "./skills.js";
import * as traces from "./traces.js";

const app = document.getElementById("app");
let page = null;

for (const [name, made] of Object.entries({ chat, skills, playground, runs, traces, approvals, doctor })) {
  screen(name, made);
}

async function begin() {
  const token = tokenFromAddress();
  put(app, loading());
  try {
    const who = await get("/v1/console/session");
    if (who.signed_in && !token) enter(who);
    else leave(token);
  } catch (error) {
    put(app, problem(error, begin));
  }
}

function enter(who) {
  signedInAs(who);
  page = shell(app, { who, out: () => leave("") });
  follow(page.place, page.opened);
}

function leave(token = "") {
  if (page) {
    unfollow();
    page.close();
    chat.forgetAll();
    page = null;
  }
  signIn(app, { token, done: enter });
}

/** A link with a token may be opened in a tab where the console is already open. */
addEventListener("hashchange", () => {
  const token = tokenFromAddress();
  if (token) leave(token);
});
/* A file that is dropped beside its place must not replace the page. */
for (const kind of ["dragover", "drop"]) addEventListener(kind, (event) => event.preventDefault());
markPage();
listen();
onSignedOut(() => page && leave());
begin();
