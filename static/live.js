// Live parts of a page. The element with `ws-connect` names the page's socket (htmx's ws extension). The socket sends a
// part again whenever it changed, or the pieces of it that did: elements that are found by their ids and morphed in
// place, so that focus, scrolling, open menus and typed text stay.

import { Wire } from "./wire.js";

const { htmx, Idiomorph } = window;
const TIMES = "[data-when], [data-ago], [data-since], [data-until]";

// Whether a person has changed this field since it was shown.
function isChanged(node) {
  if (node instanceof HTMLSelectElement) {
    const first = [...node.options].findIndex((option) => option.defaultSelected);
    return node.selectedIndex !== Math.max(first, 0);
  }
  if (node instanceof HTMLInputElement && ["checkbox", "radio"].includes(node.type)) {
    return node.checked !== node.defaultChecked;
  }
  return (node instanceof HTMLInputElement || node instanceof HTMLTextAreaElement) && node.value !== node.defaultValue;
}

Object.assign(Idiomorph.defaults, { ignoreActiveValue: true });
Object.assign(Idiomorph.defaults.callbacks, {
  // What the person opened stays open; what they are typing stays typed.
  beforeAttributeUpdated: (name, node) => !(name === "open" && node.matches("details, dialog")),
  // A time that has not changed keeps the text in the zone of the person (frame/times.js). What is equal is left alone.
  beforeNodeMorphed: (node, fresh) =>
    !(node instanceof Element && (node.isEqualNode(fresh) || node.matches("[data-keep], :popover-open") || isChanged(node) ||
      (node.dataset.when && node.dataset.when === fresh.dataset?.when))),
});

// What a part says, without the words of its times: scripts write those on, and those of the server grow old.
function said(part) {
  const copy = part.cloneNode(true);
  for (const time of copy.querySelectorAll(TIMES)) {
    time.textContent = "";
    time.removeAttribute("title");
  }
  return copy;
}

// Of each part that the page came with. The socket begins with the whole of it: most often, with the same.
const served = new Map([...document.querySelectorAll(".live-part[id]")].map((part) => [part.id, said(part)]));

// What a person asks for meanwhile is no longer what the page came with.
document.addEventListener("htmx:beforeSwap", () => served.clear());

function isServed(part) {
  const first = served.get(part.id);
  served.delete(part.id);
  return Boolean(first?.isEqualNode(said(part)));
}

// What the extension takes for a WebSocket. It reconnects by itself, so the extension learns only of its end.
class LiveSocket extends EventTarget {
  constructor(url) {
    super();
    this.OPEN = WebSocket.OPEN;
    this.readyState = WebSocket.CONNECTING;
    // A hidden page is not painted. When a person looks at it again, the newest of each part is.
    this.newest = new Map();
    this.paint = () => this.#paint();
    document.addEventListener("visibilitychange", this.paint);
    this.wire = new Wire(url, {
      opened: () => {
        this.readyState = WebSocket.OPEN;
        this.#tell(new Event("open"));
      },
      html: (text) => {
        if (document.hidden) this.#keep(text);
        else this.#tell(new MessageEvent("message", { data: text }));
      },
      closed: ({ final, reason }) => {
        if (final) this.#ended(reason);
      },
    });
  }

  send() {
    throw new Error("Pages change things by forms. Nothing is sent over this socket.");
  }

  close() {
    document.removeEventListener("visibilitychange", this.paint);
    this.wire.end();
    this.readyState = WebSocket.CLOSED;
  }

  // The newest of each element, in the order in which they came: a part may come whole, and then pieces of it. A part
  // that comes whole once more follows pieces that are painted before it: then it is no longer what the page shows.
  #keep(text) {
    const template = document.createElement("template");
    template.innerHTML = text;
    for (const element of template.content.children) {
      if (this.newest.delete(element.id)) served.delete(element.id);
      this.newest.set(element.id, element.outerHTML);
    }
  }

  #paint() {
    if (document.hidden) return;
    const texts = [...this.newest.values()];
    this.newest.clear();
    for (const data of texts) this.#tell(new MessageEvent("message", { data }));
  }

  #ended(reason) {
    this.close();
    // The extension opens a socket again only after other codes.
    this.#tell(new CloseEvent("close", { code: 4403, reason }));
  }

  #tell(event) {
    this[`on${event.type}`]?.(event);
    this.dispatchEvent(event);
  }
}

htmx.createWebSocket = (url) => new LiveSocket(url);

htmx.defineExtension("live", {
  // Each element of a message replaces the one with its id, by morphing. Others are not for this page.
  transformResponse(text) {
    const template = document.createElement("template");
    template.innerHTML = text;
    for (const part of [...template.content.children]) {
      if (isServed(part)) part.remove();
      else if (part.id && document.getElementById(part.id)) part.setAttribute("hx-swap-oob", "morph");
      else part.remove();
    }
    return template.innerHTML;
  },
});
