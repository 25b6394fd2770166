// The new-job form: adds rows for variables as they are needed, makes rows of pasted .env lines, offers to make a variable
// secret, and warns before typed text is lost. It listens to the document, because htmx replaces the form with its
// checked copy.
"use strict";

const FORM = "#new-job";
const LOOKS_SECRET = /(^|[_.-])(TOKEN|KEY|PASSWORD|PASSWD|SECRET|CREDENTIALS?)$/i;
const ENV_LINES = /^\s*(export\s+)?[A-Za-z_][\w.-]*\s*=/;

const input = (row, part) => row.querySelector(`[name$="-${part}"]`);

function renumber(box) {
  box.querySelectorAll(".env-row").forEach((row, index) => {
    for (const field of row.querySelectorAll("[aria-label]")) {
      field.setAttribute("aria-label", field.getAttribute("aria-label").replace(/\d+/, String(index + 1)));
    }
  });
}

function addRow(box) {
  const row = box.lastElementChild.cloneNode(true);
  for (const field of row.querySelectorAll("input, textarea")) {
    field.value = "";
    field.removeAttribute("id");
  }
  row.querySelector("select").selectedIndex = 0;
  offerSecret(row);
  box.append(row);
  renumber(box);
}

// Only a plain value can be read by others. What people choose themselves is not asked about again.
function offerSecret(row) {
  const plain = input(row, "kind").value === "plain";
  row.querySelector("[data-make-secret]").hidden = !(plain && LOOKS_SECRET.test(input(row, "name").value.trim()));
}

function offerSecrets() {
  document.querySelectorAll(`${FORM} .env-row`).forEach(offerSecret);
}

// One grammar, on the server. What it answers are rows, and what is wrong with lines that are none.
async function pasteLines(row, lines) {
  const box = row.parentElement;
  const pool = box.dataset.name.replace(/-env$/, "");
  box.querySelector("[data-pasted-problem]")?.remove();
  await window.htmx.ajax("POST", box.closest("form").dataset.envRows, {
    target: row, swap: "beforebegin",
    values: { lines, pool, csrfmiddlewaretoken: box.closest("form").elements.csrfmiddlewaretoken.value },
  });
  renumber(box);
  offerSecrets();
  input(box.lastElementChild, "name").dispatchEvent(new Event("input", { bubbles: true }));
}

// The machine type that is recommended for Reduction Server, where the pool has none and its image is chosen.
function offerMachine(image) {
  const images = document.getElementById(image.getAttribute("list") ?? "");
  const machine = images?.dataset.machine && image.form.elements[image.name.replace(/image$/, "machine_type")];
  if (!machine || machine.value || ![...images.options].some((each) => each.value === image.value)) return;
  machine.value = images.dataset.machine;
  machine.dispatchEvent(new Event("input", { bubbles: true }));
}

document.addEventListener("change", ({ target }) => {
  if (target.form?.matches(FORM) && target.getAttribute("list")) offerMachine(target);
});

let typed = false;
let typedSinceCheck = false;

document.addEventListener("input", (event) => {
  if (!event.target.closest(FORM)) return;
  typed = typedSinceCheck = true;
  const row = event.target.closest(".env-row");
  if (!row) return;
  offerSecret(row);
  if (event.isTrusted && row === row.parentElement.lastElementChild) addRow(row.parentElement);
});
document.addEventListener("paste", (event) => {
  const row = event.target.closest(`${FORM} .env-row`);
  const text = event.clipboardData?.getData("text") ?? "";
  if (!row || event.target !== input(row, "name") || !ENV_LINES.test(text)) return;
  event.preventDefault();
  pasteLines(row, text);
});
document.addEventListener("click", (event) => {
  const row = event.target.closest("[data-make-secret]")?.parentElement;
  if (!row) return;
  input(row, "kind").value = "secret";
  input(row, "kind").dispatchEvent(new Event("input", { bubbles: true }));
  input(row, "value").focus();
});

document.addEventListener("htmx:beforeRequest", ({ detail }) => {
  if (detail.target.id === "draft") typedSinceCheck = false;
});

// The checked copy does not know what was typed while the server looked: the form stays, and only the answer is shown.
function showVerdict(html) {
  const verdict = new DOMParser().parseFromString(html, "text/html").querySelector("#draft > .verdict");
  if (verdict) document.querySelector("#draft > .verdict").replaceWith(verdict);
}

// The server never sends a secret value back. What was typed in this page is put into the checked copy of the form.
let kept = [];
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (detail.target.id !== "draft") return;
  if (typedSinceCheck && detail.shouldSwap) {
    detail.shouldSwap = false;
    showVerdict(detail.serverResponse);
    return;
  }
  const rows = [...detail.target.querySelectorAll(".env-row")].filter((row) => input(row, "kind").value === "secret");
  kept = rows.map((row) => [input(row, "name").name, input(row, "name").value.trim(), input(row, "value").value]);
});
document.addEventListener("htmx:afterSettle", () => {
  offerSecrets();
  for (const row of document.querySelectorAll(`${FORM} .env-row`)) {
    if (input(row, "kind").value !== "secret" || input(row, "value").value) continue;
    const name = input(row, "name");
    const known = kept.find(([field, value]) => field === name.name && value === name.value);
    if (known) input(row, "value").value = known[2];
  }
  kept = [];
});

document.addEventListener("submit", (event) => {
  if (event.target.matches(FORM)) typed = false;
});
addEventListener("beforeunload", (event) => {
  if (typed) event.preventDefault();
});
document.addEventListener("DOMContentLoaded", offerSecrets);

// On a phone the summary is folded until somebody opens it. Its line tells the most important.
document.addEventListener("DOMContentLoaded", () => {
  const summary = document.getElementById("summary");
  if (summary && matchMedia("(max-width: 44rem)").matches) summary.open = false;
});
