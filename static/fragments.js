// What happens when htmx asked for a fragment and the answer is something else. The rest is htmx and attributes in
// the templates: forms and links with `hx-boost` exchange a part of the page, and are plain forms and links without it.

import { dot } from "./link.js";
import { say } from "./texts.js";

// A redirect leads somewhere else: most often to the login page, after a session ended.
function redirected({ xhr, pathInfo }) {
  const requested = new URL(pathInfo.finalRequestPath, location.href);
  return xhr.responseURL !== "" && new URL(xhr.responseURL).pathname !== requested.pathname;
}

// A link or a filter goes on as a whole page, which shows the login or the error. What was typed in a form stays.
function giveUp(detail, text) {
  if (detail.boosted) location.assign(detail.pathInfo.finalRequestPath);
  else dot("lost", text);
}

document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (!redirected(detail)) return;
  detail.shouldSwap = false;
  giveUp(detail, say("You are logged out."));
});
document.addEventListener("htmx:responseError", ({ detail }) => {
  giveUp(detail, say("The server answered {status}.", { status: detail.xhr.status }));
});
document.addEventListener("htmx:sendError", () => dot("lost", say("The server did not answer.")));
