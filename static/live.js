// Live parts of pages. An element with `data-live` names a socket. The socket sends the element again, whole, whenever
// it changed, together with other elements of the page that change with it. Each is found by its id and morphed in
// place, so that focus, scrolling, open menus and typed text stay.

import { Idiomorph } from "./npm/idiomorph/idiomorph.esm.js";
import { Wire, dot } from "./wire.js";

function parsed(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return [...template.content.children];
}

const MORPH = {
  morphStyle: "outerHTML",
  ignoreActiveValue: true,
  callbacks: {
    // What the person opened stays open; what they are typing stays typed.
    beforeAttributeUpdated: (name, node) => !(name === "open" && node.matches("details, dialog")),
    beforeNodeMorphed: (node) => !(node instanceof Element && node.matches("[data-keep], :popover-open")),
  },
};

// Follow one element. Returns the socket and its address.
function follow(id, path) {
  const element = () => document.getElementById(id);
  // A hidden page is not painted. When a person looks at it again, the newest fragment is.
  let newest = null;
  const paint = () => {
    if (newest === null || document.hidden) return;
    // htmx may have put another filter's part in its place, whose own socket follows in a moment: this one is old.
    if (element()?.dataset.live !== path) return;
    const fresh = parsed(newest);
    newest = null;
    for (const part of fresh) {
      const old = part.id && document.getElementById(part.id);
      if (!old) continue;
      Idiomorph.morph(old, part, MORPH);
      // Links and forms that the fragment brought are htmx's too.
      window.htmx?.process(document.getElementById(part.id));
    }
    element()?.dispatchEvent(new CustomEvent("live:painted", { bubbles: true }));
  };
  document.addEventListener("visibilitychange", paint);
  const wire = new Wire(path, {
    opened: () => dot("live"),
    text: ({ html }) => {
      if (html === undefined) return;
      newest = html;
      paint();
    },
    closed: ({ final, reason }) => dot(final ? "off" : "lost", reason),
  });
  const end = () => {
    document.removeEventListener("visibilitychange", paint);
    wire.end();
  };
  return { path, end };
}

const followed = new Map(); // id of the element → its socket

// Follow what the page holds now: htmx may have replaced an element by one with another address.
function followAll() {
  const elements = [...document.querySelectorAll("[data-live][id]")];
  const paths = new Map(elements.map((element) => [element.id, element.dataset.live]));
  for (const [id, socket] of followed) {
    if (paths.get(id) === socket.path) continue;
    socket.end();
    followed.delete(id);
  }
  for (const [id, path] of paths) {
    if (!followed.has(id)) followed.set(id, follow(id, path));
  }
}

followAll();
document.addEventListener("htmx:afterSettle", followAll);
