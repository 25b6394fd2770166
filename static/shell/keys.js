// Which keys copy and paste, by system, as the terminals that people know there have it.
//
// Everywhere: Ctrl+Shift+C and Ctrl+Insert copy, Ctrl+Shift+V and Shift+Insert paste. macOS: ⌘C and ⌘V besides; the
// browser does those by itself. Windows: Ctrl+V pastes, and Ctrl+C copies while something is selected. Elsewhere these
// two belong to the program: Ctrl+C always interrupts.

export function systemOf(navigator) {
  const name = navigator.userAgentData?.platform || navigator.platform || "";
  if (/mac|iphone|ipad/i.test(name)) return "mac";
  return /win/i.test(name) ? "windows" : "other";
}

// "copy"; "paste" and "native": the browser does it; "find"; "" if the key is the program's.
export function meaning(event, system, isSelected) {
  const { ctrlKey: ctrl, shiftKey: shift, metaKey: meta, altKey: alt } = event;
  const key = event.key.toLowerCase();
  if (alt) return "";
  if (system === "mac" && meta && !ctrl) return { c: "native", v: "paste", f: "find" }[key] ?? "";
  if (meta) return "";
  if (key === "insert") return ctrl && !shift ? "copy" : shift && !ctrl ? "paste" : "";
  if (ctrl && shift) return { c: "copy", v: "paste", f: "find" }[key] ?? "";
  if (system === "windows" && ctrl && key === "v") return "paste";
  if (system === "windows" && ctrl && key === "c" && isSelected) return "copy";
  return "";
}

export async function copy(text) {
  try {
    // Only pages that came over https, or from this machine, have a clipboard.
    await navigator.clipboard.writeText(text);
  } catch {
    copyBySelection(text);
  }
}

function copyBySelection(text) {
  const before = document.activeElement;
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "visually-hidden";
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  before?.focus();
}
