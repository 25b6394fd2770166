// Pages that stay true. An element with `data-live` names a socket that sends it again, whole, whenever it changed,
// together with other elements of the page that change with it; each is found by its id and morphed in place, so that
// focus, scrolling, open menus and what is being typed stay.

import { Idiomorph } from "./npm/idiomorph/idiomorph.esm.js";
import { Wire, dot } from "./wire.js";

function shown(html) {
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

function follow(id) {
  const element = () => document.getElementById(id);
  const path = element().dataset.live;
  // Hidden pages are not painted; the newest fragment is, when they are looked at again.
  let newest = null;
  const paint = () => {
    if (newest === null || document.hidden) return;
    const fresh = shown(newest);
    newest = null;
    for (const part of fresh) {
      const old = part.id && document.getElementById(part.id);
      if (old) Idiomorph.morph(old, part, MORPH);
    }
    element().dispatchEvent(new CustomEvent("live:painted", { bubbles: true }));
  };
  document.addEventListener("visibilitychange", paint);
  new Wire(path, {
    opened: () => dot("live"),
    text: ({ html }) => {
      if (html === undefined) return;
      newest = html;
      paint();
    },
    closed: ({ final, reason }) => dot(final ? "off" : "lost", reason),
  });
}

for (const element of document.querySelectorAll("[data-live][id]")) follow(element.id);
