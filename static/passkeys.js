// Passkeys: adds one, logs in with one, confirms with one. Forms say what for: data-passkey is the address that asks.
// The address that asks answers what the device must sign; the form's own address gets what it signed. Then the page goes
// on to the address that it names, or sends the form that data-then names.
import { say } from "./texts.js";

async function send(form, address, document_) {
  const answer = await fetch(address, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-CSRFToken": form.elements.csrfmiddlewaretoken.value },
    body: JSON.stringify(document_),
  });
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(found.error ?? say("The server does not answer. Try again."));
  return found;
}

async function signed(options) {
  if (options.user) {
    return navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options) });
  }
  return navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options) });
}

function why(problem) {
  if (problem.name === "NotAllowedError") return say("The device was not asked, or said no. Try again.");
  if (problem.name === "InvalidStateError") return say("This device has a passkey for you already.");
  return problem.message;
}

async function use(event) {
  event.preventDefault();
  const form = event.currentTarget;
  const told = form.querySelector("[data-part=told]");
  const button = form.querySelector("button");
  button.disabled = true;
  told.textContent = "";
  try {
    const { publicKey } = await send(form, form.dataset.passkey, {});
    const credential = await signed(publicKey);
    const fields = Object.fromEntries([...new FormData(form)].filter(([name]) => name !== "csrfmiddlewaretoken"));
    const { next } = await send(form, form.action, { ...fields, credential: credential.toJSON() });
    if (form.dataset.then) document.getElementById(form.dataset.then).submit();
    else location.assign(next);
  } catch (problem) {
    told.textContent = why(problem);
  } finally {
    button.disabled = false;
  }
}

for (const form of document.querySelectorAll("form[data-passkey]")) {
  const can = window.isSecureContext && "PublicKeyCredential" in window &&
    "parseRequestOptionsFromJSON" in PublicKeyCredential;
  form.hidden = !can && form.hasAttribute("data-quiet");
  if (can) form.addEventListener("submit", use);
  else form.querySelector("[data-part=told]").textContent = say("This browser has no passkeys at this address.");
  form.querySelector("button").disabled = !can;
}
