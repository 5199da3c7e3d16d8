"use strict";
// Brings a page up to date while somebody looks at it. Without this script each page is as it was when it was asked for.
(() => {
  const main = document.querySelector("main");
  const button = document.querySelector("#updates");
  if (!main || !button || !main.hasAttribute("data-live")) { return; }
  const every = 3000;
  let paused = false;
  let away = false;
  // What somebody has typed, chosen or marked stays.
  const changed = (each) => each.type !== "hidden" && (each.tagName === "SELECT"
    ? [...each.options].some((option) => option.selected !== option.defaultSelected && each.selectedIndex > 0)
    : each.value !== each.defaultValue);
  const busy = () => {
    const active = document.activeElement;
    const marked = document.getSelection();
    return (main.contains(active) && active.closest("form") !== null)
      || [...main.querySelectorAll("input, select, textarea")].some(changed)
      || (marked !== null && !marked.isCollapsed && main.contains(marked.anchorNode));
  };
  const update = async () => {
    if (paused || document.hidden || busy()) { return; }
    try {
      const answer = await fetch(location.href, { headers: { "X-Fragment": "1" }, credentials: "same-origin" });
      if (answer.redirected) { location.reload(); return; }
      away = !answer.ok;
      if (answer.ok && !busy()) {
        const open = [...main.querySelectorAll("details")].map((each) => each.open);
        const focused = main.contains(document.activeElement) && document.activeElement.id;
        main.innerHTML = await answer.text();
        document.querySelector("#now").textContent = answer.headers.get("X-Now");
        main.querySelectorAll("details").forEach((each, number) => { each.open = Boolean(open[number]); });
        if (focused) { document.getElementById(focused)?.focus(); }
      }
    } catch {
      away = true;
    }
    say();
  };
  const say = () => {
    button.textContent = paused ? "Resume updates" : `Pause updates${away ? " (no answer)" : ""}`;
    button.setAttribute("aria-pressed", String(paused));
  };
  // What takes long to answer is asked for less often.
  const go = async () => {
    const begun = Date.now();
    await update();
    setTimeout(go, Math.max(every, Date.now() - begun));
  };
  button.hidden = false;
  button.addEventListener("click", () => { paused = !paused; say(); update(); });
  document.addEventListener("visibilitychange", update);
  setTimeout(go, every);
})();
