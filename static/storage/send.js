// Sends a file to a REST address, and shows how far it is in an element with `data-progress` (storage/_progress.html).

import { say } from "../texts.js";

export function sizeText(bytes) {
  const units = ["B", "kB", "MB", "GB"];
  let unit = 0;
  while (bytes >= 1000 && unit < units.length - 1) {
    bytes /= 1000;
    unit += 1;
  }
  return `${bytes.toFixed(unit && bytes < 10 ? 1 : 0)} ${units[unit]}`;
}

function timeText(seconds) {
  if (seconds < 60) return say("{number} s", { number: Math.ceil(seconds) });
  if (seconds < 3600) return say("{number} min", { number: Math.ceil(seconds / 60) });
  return say("{number} h", { number: Math.ceil(seconds / 3600) });
}

function refusal(request) {
  try {
    return JSON.parse(request.responseText).error.message;
  } catch {
    return "";
  }
}

// Resolves to the text of the answer. Rejects with what to tell the person, who sees it beside the bar already.
export function send(part, method, address, token, file) {
  const [bar, text] = [part.querySelector("progress"), part.querySelector("[data-said]")];
  const request = new XMLHttpRequest();
  const begun = performance.now();
  part.hidden = bar.hidden = false;
  text.textContent = "";
  bar.value = 0;
  request.upload.addEventListener("progress", (event) => {
    const seconds = (performance.now() - begun) / 1000;
    const left = seconds * (event.total / Math.max(event.loaded, 1) - 1);
    bar.value = (100 * event.loaded) / event.total;
    text.textContent = say("{done} of {all}, about {time} left", {
      done: sizeText(event.loaded),
      all: sizeText(event.total),
      time: timeText(left),
    });
  });
  return new Promise((resolve, reject) => {
    const failed = (why) => {
      text.textContent = why || say("The connection broke off. Try again.");
      bar.hidden = true;
      reject(new Error(text.textContent));
    };
    request.addEventListener("load", () => {
      if (request.status < 300) resolve(request.responseText);
      else failed(refusal(request));
    });
    request.addEventListener("error", () => failed(""));
    request.open(method, address);
    request.setRequestHeader("X-CSRFToken", token);
    request.setRequestHeader("Content-Type", file.type || "application/octet-stream");
    request.send(file);
  });
}
