// The code of a new job: packs a folder, shows what is sent and what is left out, and uploads it when the person says so.
// It listens to the document, because htmx replaces the form with its checked copy.

import { say, sayMany } from "../texts.js";
import { ofFile, packed, problemOf, readFolder } from "./packing.js";
import { send, sizeText } from "./send.js";

const ARCHIVE = /\.(zip|tar|tgz|tbz2?|txz|tar\.(gz|bz2|xz))$/i;
const SHOWN = 500;
let tree = null;

const form = () => document.querySelector("#new-job");
const box = () => document.querySelector("#new-job [data-code]");
const within = (selector) => box().querySelector(selector);

function drop() {
  tree = null;
  within("[data-packed]").hidden = true;
  for (const input of box().querySelectorAll("[data-pack]")) input.value = "";
}

function show() {
  const problem = problemOf(tree);
  const files = sayMany(tree.files.length, "{number} file", "{number} files");
  within("[data-packed]").hidden = false;
  within("[data-packed-line]").textContent =
    problem || say("{name}: {files}, {size}.", { name: tree.name, files, size: sizeText(tree.size) });
  within("[data-send]").hidden = Boolean(problem);
  const fold = within("[data-left-out]");
  fold.hidden = !tree.leftOut.length;
  fold.querySelector("summary").textContent = sayMany(
    tree.leftOut.length, "{number} entry is left out", "{number} entries are left out",
  );
  const lines = tree.leftOut.slice(0, SHOWN).map((path) => {
    const line = document.createElement("li");
    line.textContent = path;
    return line;
  });
  fold.querySelector("ul").replaceChildren(...lines);
}

async function upload(name, blob) {
  const project = encodeURIComponent(form().elements.project.value);
  const query = new URLSearchParams({ kind: "archive", name });
  const address = `/api/v1/projects/${project}/artifacts?${query}`;
  const token = form().elements.csrfmiddlewaretoken.value;
  const answer = await send(within("[data-progress]"), "POST", address, token, blob);
  const stored = form().elements["code-stored"];
  stored.value = JSON.parse(answer).sha256;
  within("[data-progress]").hidden = true;
  const line = within("[data-code-file]");
  line.hidden = false;
  line.textContent = say("This is {name}, {size}.", { name, size: sizeText(blob.size) });
  stored.dispatchEvent(new Event("input", { bubbles: true }));
}

// What goes wrong on the way is told beside the bar already.
async function sendTree() {
  const button = within("[data-send]");
  button.disabled = true;
  try {
    const { name, blob } = await packed(tree);
    await upload(name, blob);
    drop();
  } catch (problem) {
    if (problem instanceof DOMException) {
      within("[data-packed-line]").textContent = say("A file has changed or cannot be read. Choose the folder again.");
    }
  } finally {
    button.disabled = false;
  }
}

document.addEventListener("change", async (event) => {
  const kind = event.target.dataset?.pack;
  const chosen = kind ? [...event.target.files] : [];
  if (!chosen.length) return;
  if (kind === "file" && ARCHIVE.test(chosen[0].name)) {
    drop();
    upload(chosen[0].name, chosen[0]).catch(() => {});
    return;
  }
  tree = kind === "folder" ? await readFolder(chosen) : ofFile(chosen[0]);
  show();
});
document.addEventListener("click", (event) => {
  if (event.target.closest("#new-job [data-send]")) sendTree();
  if (event.target.closest("#new-job [data-drop]")) drop();
});
