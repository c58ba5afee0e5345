// For other sites: <script src="https://YOUR-RAGD/widget.js" data-assistant="NAME" async></script>
// A button that opens the public page of an assistant in a frame. The site must be among those that the assistant names.
"use strict";

(() => {
  const script = document.currentScript;
  const name = script.dataset.assistant;
  const page = new URL(`a/${encodeURIComponent(name)}/`, script.src).href;
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = script.dataset.label || "?";
  button.setAttribute("aria-expanded", "false");
  button.setAttribute("aria-label", script.dataset.label || "Ask a question");
  Object.assign(button.style, {
    position: "fixed", right: "16px", bottom: "16px", zIndex: "2147483000", minWidth: "48px", height: "48px",
    padding: "0 16px", border: "0", borderRadius: "24px", background: "#0a6a7d", color: "#fff", font: "600 16px system-ui",
    cursor: "pointer",
  });
  let frame = null;
  button.addEventListener("click", () => {
    if (!frame) {
      frame = document.createElement("iframe");
      frame.src = page;
      frame.title = button.getAttribute("aria-label");
      frame.allow = "clipboard-write";
      Object.assign(frame.style, {
        position: "fixed", right: "16px", bottom: "76px", zIndex: "2147483000", width: "min(400px, calc(100vw - 32px))",
        height: "min(600px, calc(100vh - 100px))", border: "1px solid #888", borderRadius: "8px", background: "#fff",
      });
      document.body.append(frame);
    } else frame.hidden = !frame.hidden;
    button.setAttribute("aria-expanded", String(!frame.hidden));
  });
  document.body.append(button);
})();
