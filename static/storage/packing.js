// A folder as an archive for a job, made in the browser: the same folder gives the same bytes. Files are read when they are
// sent and not before, so that a large folder needs no memory.

import { say } from "../texts.js";
import { ALWAYS, FILES, isLeftOut, rulesOf } from "./ignore_rules.js";

const BLOCK = 512;
const MAX_FILES = 100000;
// The first day that ZIP knows, as the command line has it: times of files are no part of the content.
const AT = 315532800;
const LARGEST = 8 ** 11 - 1;
const encoder = new TextEncoder();
const inOrder = (one, other) => (one < other ? -1 : one > other ? 1 : 0);

// What of the chosen folder is sent, and what is left out: { name, files: [[path, file]], leftOut: [path], size }.
export async function readFolder(chosen) {
  const root = { folders: new Map(), files: new Map() };
  for (const file of chosen) {
    const parts = file.webkitRelativePath.split("/");
    let place = root;
    for (const part of parts.slice(1, -1)) {
      if (!place.folders.has(part)) place.folders.set(part, { folders: new Map(), files: new Map() });
      place = place.folders.get(part);
    }
    place.files.set(parts.at(-1), file);
  }
  const tree = { name: chosen[0].webkitRelativePath.split("/")[0], files: [], leftOut: [], size: 0 };
  await walk(tree, root, "", rulesOf(ALWAYS));
  return tree;
}

export function ofFile(file) {
  return { name: file.name, files: [[file.name, file]], leftOut: [], size: file.size };
}

async function walk(tree, place, folder, rules) {
  const own = [];
  for (const name of FILES) {
    const file = place.files.get(name);
    if (file) own.push(...rulesOf((await file.text()).split(/\r\n|\n|\r/), folder));
  }
  const all = [...rules, ...own];
  for (const name of [...place.folders.keys(), ...place.files.keys()].sort(inOrder)) {
    const path = folder ? `${folder}/${name}` : name;
    const [inside, file] = [place.folders.get(name), place.files.get(name)];
    if (isLeftOut(path, Boolean(inside), all)) tree.leftOut.push(inside ? `${path}/` : path);
    else if (inside) await walk(tree, inside, path, all);
    else {
      tree.files.push([path, file]);
      tree.size += file.size;
    }
  }
}

// Why the folder cannot be sent; empty if it can.
export function problemOf(tree) {
  if (!tree.files.length) return say("There is no file to upload. Look at the .gitignore of the folder.");
  if (tree.files.length > MAX_FILES) {
    return say("More than {number} files: leave data out by a .trainyardignore.", { number: MAX_FILES });
  }
  const large = tree.files.find(([, file]) => file.size > LARGEST);
  return large ? say("{name} is larger than 8 GB: put it into a bucket.", { name: large[0] }) : "";
}

// The archive as a Blob: tar, packed by gzip where the browser can do that.
export async function packed(tree) {
  const parts = [];
  for (const [path, file] of tree.files) {
    parts.push(...header(path, file.size, await mode(file)), file, new Uint8Array(-file.size & (BLOCK - 1)));
  }
  const tar = new Blob([...parts, new Uint8Array(2 * BLOCK)], { type: "application/x-tar" });
  if (!("CompressionStream" in window)) return { name: `${tree.name}.tar`, blob: tar };
  const squeezed = await new Response(tar.stream().pipeThrough(new CompressionStream("gzip"))).blob();
  return { name: `${tree.name}.tar.gz`, blob: new Blob([squeezed], { type: "application/gzip" }) };
}

// A browser does not say which files may be executed. What names its interpreter may.
async function mode(file) {
  return (await file.slice(0, 2).text()) === "#!" ? 0o755 : 0o644;
}

function header(path, size, permissions) {
  const name = encoder.encode(path);
  if (name.length < 100 && name.every((byte) => byte < 128)) return [block(name, size, permissions, "0")];
  const record = encoder.encode(paxRecord("path", path));
  const long = block(encoder.encode("pax"), record.length, 0o644, "x");
  return [long, record, new Uint8Array(-record.length & (BLOCK - 1)), block(name.slice(0, 99), size, permissions, "0")];
}

// LENGTH KEY=VALUE, where the length counts itself.
function paxRecord(key, value) {
  const rest = encoder.encode(` ${key}=${value}\n`).length;
  let length = rest + String(rest).length;
  if (String(length).length > String(rest).length) length = rest + String(length).length;
  return `${length} ${key}=${value}\n`;
}

function block(name, size, permissions, type) {
  const bytes = new Uint8Array(BLOCK);
  const put = (at, text) => bytes.set(encoder.encode(text), at);
  const octal = (at, length, number) => put(at, number.toString(8).padStart(length - 1, "0"));
  bytes.set(name, 0);
  octal(100, 8, permissions);
  octal(108, 8, 0);
  octal(116, 8, 0);
  octal(124, 12, size);
  octal(136, 12, AT);
  put(148, "        ");
  put(156, type);
  put(257, "ustar\0");
  put(263, "00");
  octal(148, 7, bytes.reduce((sum, byte) => sum + byte, 0));
  bytes[154] = 0;
  return bytes;
}
