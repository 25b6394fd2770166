// The new-job form: adds rows for variables as they are needed, and warns before typed text is lost. It listens to the
// document, because htmx replaces the form with its checked copy.
"use strict";

const FORM = "#new-job";

function addRow(box) {
  const rows = box.querySelectorAll(".env-row");
  const row = rows[rows.length - 1].cloneNode(true);
  const number = rows.length + 1;
  for (const field of row.querySelectorAll("input, textarea")) {
    field.value = "";
    field.removeAttribute("id");
    field.setAttribute("aria-label", field.getAttribute("aria-label").replace(/\d+$/, String(number)));
  }
  box.append(row);
}

let typed = false;

document.addEventListener("input", (event) => {
  if (!event.target.closest(FORM)) return;
  typed = true;
  const row = event.target.closest(".env-row");
  if (row && row === row.parentElement.lastElementChild) addRow(row.parentElement);
});
document.addEventListener("submit", (event) => {
  if (event.target.matches(FORM)) typed = false;
});
addEventListener("beforeunload", (event) => {
  if (typed) event.preventDefault();
});
