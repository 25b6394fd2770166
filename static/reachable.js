// Waits until the server answers. One search serves all sockets of a page: it asks for a small file twice a second while
// the page is looked at. A try over a cut path never ends by itself, so each is given up after a second, and the next ones
// do not wait for it. The pages of a browser tell each other: the first answer is for all.

const EVERY_MS = 500;
const GIVE_UP_MS = 1000;

const pages = new BroadcastChannel("reachable");
let search = null;

export function reachable() {
  search ??= untilAnswered().finally(() => {
    search = null;
  });
  return search;
}

function untilAnswered() {
  return new Promise((resolve) => {
    const over = new AbortController();
    const answered = () => {
      over.abort();
      resolve();
    };
    pages.addEventListener("message", answered, { signal: over.signal });
    askAgainAndAgain(over.signal, () => {
      pages.postMessage("answered");
      answered();
    });
  });
}

async function askAgainAndAgain(over, answered) {
  for (;;) {
    if (document.hidden) await shown();
    if (over.aborted) return;
    answers().then((yes) => yes && !over.aborted && answered());
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS + 100 * Math.random()));
  }
}

async function answers() {
  const file = document.querySelector("link[rel=icon]")?.href ?? location.href;
  try {
    await fetch(file, { method: "HEAD", cache: "no-store", signal: AbortSignal.timeout(GIVE_UP_MS) });
    return true;
  } catch {
    return false;
  }
}

function shown() {
  return new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
}
