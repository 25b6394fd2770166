// Waits until the server answers. One search serves all sockets of a page: it asks for a small file once a second while
// the page is looked at, and gives up each try after a second, because a try over a cut path never ends by itself.

const EVERY_MS = 1000;

let search = null;

export function reachable() {
  search ??= untilAnswered().finally(() => {
    search = null;
  });
  return search;
}

async function untilAnswered() {
  for (;;) {
    if (document.hidden) await shown();
    const began = performance.now();
    if (await answers()) return;
    const rest = EVERY_MS - (performance.now() - began);
    await new Promise((resolve) => setTimeout(resolve, Math.max(rest, 0) + 100 * Math.random()));
  }
}

async function answers() {
  const file = document.querySelector("link[rel=icon]")?.href ?? location.href;
  try {
    await fetch(file, { method: "HEAD", cache: "no-store", signal: AbortSignal.timeout(EVERY_MS) });
    return true;
  } catch {
    return false;
  }
}

function shown() {
  return new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
}
