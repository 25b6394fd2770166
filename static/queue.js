// Dragging rows of the queue: a drop sends the form that the buttons send, and the server shows what it would change.
"use strict";

const ROW = "tr[data-movable]";
let dragged = null;

const rowOf = (event) => event.target instanceof Element && event.target.closest(ROW);

const mark = (row) => {
  document.querySelectorAll(".drop-here").forEach((each) => each.classList.remove("drop-here"));
  row?.classList.add("drop-here");
};

// A row that is ticked takes the other ticked rows along.
const takenAlong = (id) => {
  const ticked = [...document.querySelectorAll('input[name="job"][form="move"]:checked')].map((box) => box.value);
  return ticked.includes(id) ? ticked : [id];
};

const hidden = (form, name, value) => {
  const input = document.createElement("input");
  Object.assign(input, { type: "hidden", name, value });
  form.append(input);
};

const putBefore = (row) => {
  const form = document.getElementById("move");
  const jobs = takenAlong(dragged);
  if (!form || jobs.includes(row.dataset.movable)) return;
  // A copy: the boxes of the page stay as they are, for those who come back.
  const sent = form.cloneNode(true);
  sent.removeAttribute("id");
  sent.querySelector('[name="before"]').value = row.dataset.movable;
  jobs.forEach((job) => hidden(sent, "job", job));
  hidden(sent, "act", "before");
  sent.hidden = true;
  document.body.append(sent);
  sent.submit();
  sent.remove();
};

document.addEventListener("dragstart", (event) => {
  if (!(event.target instanceof Element) || !event.target.classList.contains("drag-handle")) return;
  const row = rowOf(event);
  dragged = row.dataset.movable;
  event.dataTransfer.effectAllowed = "move";
  event.dataTransfer.setData("text/plain", dragged);
  event.dataTransfer.setDragImage(row, 0, 0);
});

document.addEventListener("dragover", (event) => {
  const row = dragged && rowOf(event);
  if (!row) return;
  event.preventDefault();
  mark(row);
});

document.addEventListener("drop", (event) => {
  const row = dragged && rowOf(event);
  if (!row) return;
  event.preventDefault();
  putBefore(row);
});

document.addEventListener("dragend", () => {
  dragged = null;
  mark(null);
});
