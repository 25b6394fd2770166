// Finds the addresses in a row of a log. Only http and https, in ASCII, without a name or password: what is shown is
// the whole address, and nothing before the host can pass for the host.

const ADDRESS = /https?:\/\/[!-~]+/gi;
const MAX_LENGTH = 2000;
const PAIRS = { ")": "(", "]": "[", "}": "{" };

// Returns [{start, end, href}]. An address that may continue on the next row is left out.
export function addresses(row, text) {
  if (!text.includes("://")) return [];
  const found = [];
  for (const { 0: match, index } of text.matchAll(ADDRESS)) {
    const whole = withoutEnd(match);
    const end = index + whole.length;
    const next = text[index + match.length] ?? "";
    // A letter that is not ASCII would be left out of the link, and its host would be another one.
    if (/[^\s]/.test(next) || (row.cut && end === text.length) || whole.length > MAX_LENGTH || !safe(whole)) continue;
    found.push({ start: index, end, href: whole });
  }
  return found;
}

// An address in a sentence: the marks that end the sentence, and what opened before it, do not belong to it.
function withoutEnd(text) {
  let whole = text.replace(/["'<>`\\^|].*$/, "");
  for (;;) {
    const last = whole.at(-1);
    const open = PAIRS[last];
    const unpaired = open && whole.split(last).length > whole.split(open).length;
    if (!unpaired && !".,;:!?*".includes(last)) return whole;
    whole = whole.slice(0, -1);
  }
}

function safe(text) {
  const url = URL.canParse(text) ? new URL(text) : null;
  return url !== null && /^https?:$/.test(url.protocol) && url.hostname !== "" && !url.username && !url.password;
}
