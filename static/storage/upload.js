// Uploads with a bar: a form with `data-upload` sends its file to that REST address, and shows how far it is. Without
// scripts the form sends itself.

import { send } from "./send.js";

function address(form, file) {
  if (!("put" in form.dataset)) {
    const query = new URLSearchParams({ kind: form.elements.kind.value, name: file.name });
    return `${form.dataset.upload}?${query}`;
  }
  const name = form.elements.folder.value + file.name;
  return form.dataset.upload + name.split("/").map(encodeURIComponent).join("/");
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  const file = form.dataset?.upload && form.elements.file.files[0];
  if (!file) return;
  event.preventDefault();
  const button = form.querySelector("button");
  const method = "put" in form.dataset ? "PUT" : "POST";
  button.disabled = true;
  try {
    const token = form.elements.csrfmiddlewaretoken.value;
    await send(form.querySelector("[data-progress]"), method, address(form, file), token, file);
    window.location.reload();
  } catch {
    button.disabled = false;
  }
});
