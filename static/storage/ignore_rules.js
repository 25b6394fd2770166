// Which files of a folder are left out of an upload: what .gitignore and .trainyardignore say, as git means it. The same
// rules as console/client/ignore_rules.py has for the command line; a test compares the two.

export const FILES = [".gitignore", ".trainyardignore"];
// What no program needs on a host. `.trainyardignore` can take it back with `!`.
export const ALWAYS = [".git/", ".hg/", ".svn/", "__pycache__/", "*.pyc", ".venv/", "node_modules/", ".DS_Store"];

const encoder = new TextEncoder();
const escaped = (text) => text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
// A letter for each byte: `?` of git is a byte.
const bytewise = (text) => Array.from(encoder.encode(text), (byte) => String.fromCharCode(byte)).join("");

// The rules of one file, in their order. `folder`: where the file is; its rules are for what lies below.
export function rulesOf(lines, folder = "") {
  return lines.map((line) => rule(bytewise(line), bytewise(folder))).filter(Boolean);
}

// The last rule that fits decides. A file below a folder that is left out is never asked for.
export function isLeftOut(path, isFolder, rules) {
  const name = bytewise(path);
  let leftOut = false;
  for (const each of rules) {
    if (each.isNegated === leftOut && fits(each, name, isFolder)) leftOut = !each.isNegated;
  }
  return leftOut;
}

function fits(each, path, isFolder) {
  if (each.onlyFolders && !isFolder) return false;
  if (each.folder && !path.startsWith(`${each.folder}/`)) return false;
  return each.pattern.test(each.folder ? path.slice(each.folder.length + 1) : path);
}

function rule(line, folder) {
  // White space at the end does not count, unless it is quoted.
  let text = line.replace(/(?<!\\)[ \t]+$/, "");
  if (!text || text.startsWith("#")) return null;
  const isNegated = text.startsWith("!");
  if (isNegated) text = text.slice(1);
  const onlyFolders = text.endsWith("/");
  if (onlyFolders) text = text.replace(/\/+$/, "");
  const isAnchored = text.includes("/");
  if (isAnchored) text = text.replace(/^\/+/, "");
  if (!text) return null;
  try {
    const pattern = new RegExp(`^${isAnchored ? "" : "(?:.*/)?"}${expression(text)}$`, "s");
    return { pattern, folder, isNegated, onlyFolders };
  } catch {
    return null; // a range such as [z-a], by which git finds nothing
  }
}

// A pattern of git as a regular expression.
function expression(glob) {
  let [found, at] = ["", 0];
  while (at < glob.length) {
    const end = glob[at] === "[" ? classEnd(glob, at) : 0;
    if (glob.startsWith("**/", at) && (at === 0 || glob[at - 1] === "/")) {
      [found, at] = [`${found}(?:.*/)?`, at + 3];
    } else if (glob.slice(at) === "**" && at && glob[at - 1] === "/") {
      [found, at] = [`${found}.+`, at + 2];
    } else if (glob[at] === "*") {
      while (glob[at] === "*") at += 1;
      found += "[^/]*";
    } else if (glob[at] === "?") {
      [found, at] = [`${found}[^/]`, at + 1];
    } else if (glob[at] === "\\" && at + 1 < glob.length) {
      [found, at] = [found + escaped(glob[at + 1]), at + 2];
    } else if (end) {
      [found, at] = [`${found}(?!/)[${inner(glob.slice(at + 1, end))}]`, end + 1];
    } else {
      [found, at] = [found + escaped(glob[at]), at + 1];
    }
  }
  return found;
}

function inner(text) {
  const isNegated = /^[!^]/.test(text);
  const letters = (isNegated ? text.slice(1) : text).replace(/[\\\][]/g, "\\$&");
  return isNegated ? `^${letters}` : letters;
}

// Where the bracket that begins here ends; 0 if it does not.
function classEnd(glob, at) {
  const first = at + 1 + (/[!^]/.test(glob[at + 1] ?? "") ? 1 : 0);
  return Math.max(glob.indexOf("]", first + 1), 0);
}
