/* Forms with data-passkey hand over to allauth's script; where no passkey comes back, they say so. */
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  for (const form of document.querySelectorAll("form[data-passkey]")) {
    const kind = form.dataset.passkey; // add, authenticate or login
    const passwordless = form.querySelector("[name=passwordless]");
    window.allauth.webauthn.forms[`${kind}Form`]({
      ids: {
        [kind]: "passkey-start",
        credential: "passkey-credential",
        data: form.dataset.passkeyData,
        passwordless: passwordless ? passwordless.id : undefined,
      },
    });
  }
  const start = document.getElementById("passkey-start");
  if (start) start.disabled = false; // before this a click would do nothing
});
document.addEventListener("allauth.error", (event) => {
  event.preventDefault();
  for (const note of document.querySelectorAll("[data-passkey-failed]")) note.hidden = false;
});
