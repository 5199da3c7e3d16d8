"use strict";
// Brings a page up to date while somebody looks at it. Without this script each page is as it was when it was asked for.
(() => {
  const main = document.querySelector("main");
  const button = document.querySelector("#updates");
  if (!main || !button || !main.hasAttribute("data-live")) { return; }
  const every = 3000;
  let paused = false;
  let asking = false;
  const busy = () => main.contains(document.activeElement) && /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
  const update = async () => {
    if (paused || asking || document.hidden || busy()) { return; }
    asking = true;
    try {
      const answer = await fetch(location.href, { headers: { "X-Fragment": "1" }, credentials: "same-origin" });
      if (answer.ok && !answer.redirected && !busy()) {
        const open = [...main.querySelectorAll("details")].map((each) => each.open);
        const focused = main.contains(document.activeElement) && document.activeElement.id;
        main.innerHTML = await answer.text();
        main.querySelectorAll("details").forEach((each, number) => { each.open = Boolean(open[number]); });
        if (focused) { document.getElementById(focused)?.focus(); }
      }
      button.dataset.away = String(!answer.ok);
    } catch {
      button.dataset.away = "true";
    } finally {
      asking = false;
      say();
    }
  };
  const say = () => {
    const away = button.dataset.away === "true" ? " (no answer)" : "";
    button.textContent = paused ? "Resume updates" : `Pause updates${away}`;
    button.setAttribute("aria-pressed", String(paused));
  };
  button.hidden = false;
  button.addEventListener("click", () => { paused = !paused; say(); update(); });
  document.addEventListener("visibilitychange", update);
  setInterval(update, every);
})();
