// Uploads with a bar: a form with `data-upload` sends its file to that REST address, and shows how far it is. Without
// scripts the form sends itself.

import { say } from "../texts.js";

function size(bytes) {
  const units = ["B", "kB", "MB", "GB"];
  let unit = 0;
  while (bytes >= 1000 && unit < units.length - 1) {
    bytes /= 1000;
    unit += 1;
  }
  return `${bytes.toFixed(unit && bytes < 10 ? 1 : 0)} ${units[unit]}`;
}

function address(form, file) {
  if (!("put" in form.dataset)) {
    const query = new URLSearchParams({ kind: form.elements.kind.value, name: file.name });
    return `${form.dataset.upload}?${query}`;
  }
  const name = form.elements.folder.value + file.name;
  return form.dataset.upload + name.split("/").map(encodeURIComponent).join("/");
}

function told(request) {
  try {
    return JSON.parse(request.responseText).error.message;
  } catch {
    return "";
  }
}

function send(form, file) {
  const part = form.querySelector("[data-progress]");
  const [bar, text] = [part.querySelector("progress"), part.querySelector("[data-said]")];
  const button = form.querySelector("button");
  const request = new XMLHttpRequest();
  const begun = performance.now();
  const failed = (why) => {
    text.textContent = why || say("The connection broke off. Try again.");
    bar.hidden = true;
    button.disabled = false;
  };
  part.hidden = bar.hidden = false;
  bar.hidden = false;
  button.disabled = true;
  request.upload.addEventListener("progress", (event) => {
    const seconds = (performance.now() - begun) / 1000;
    const left = seconds * (event.total / Math.max(event.loaded, 1) - 1);
    bar.value = (100 * event.loaded) / event.total;
    text.textContent = say("{done} of {all}, about {seconds} s left", {
      done: size(event.loaded),
      all: size(event.total),
      seconds: Math.ceil(left),
    });
  });
  request.addEventListener("load", () => {
    if (request.status < 300) window.location.reload();
    else failed(told(request));
  });
  request.addEventListener("error", () => failed(""));
  request.open("put" in form.dataset ? "PUT" : "POST", address(form, file));
  request.setRequestHeader("X-CSRFToken", form.elements.csrfmiddlewaretoken.value);
  request.setRequestHeader("Content-Type", file.type || "application/octet-stream");
  request.send(file);
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  const file = form.dataset?.upload && form.elements.file.files[0];
  if (!file) return;
  event.preventDefault();
  send(form, file);
});
