// The new-job form: more rows for variables as they are needed, and a warning before typed text is lost.
"use strict";

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

const form = document.getElementById("new-job");
let typed = false;

form.addEventListener("input", (event) => {
  typed = true;
  const row = event.target.closest(".env-row");
  if (row && row === row.parentElement.lastElementChild) addRow(row.parentElement);
});

form.addEventListener("submit", () => { typed = false; });
addEventListener("beforeunload", (event) => { if (typed) event.preventDefault(); });
