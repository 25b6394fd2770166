// Small pages in a dialog above the present page. A link with `data-dialog` opens its address there.

const { htmx } = window;
const dialog = document.getElementById("dialog");

export async function openInDialog(address) {
  await htmx.ajax("GET", address, { target: "#dialog-body", swap: "innerHTML" });
  if (!dialog.open) dialog.showModal();
}

// A click beside a dialog closes it, as Esc does.
export function closesBeside(element) {
  element.addEventListener("click", (event) => {
    if (event.target === element) element.close();
  });
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-dialog]");
  // Another tab or window shows the whole page.
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  openInDialog(link.href);
});
closesBeside(dialog);
