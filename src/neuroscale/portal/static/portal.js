// Shows the plan while somebody types, fills a choice in, and renews the parts of a page that change.
"use strict";

document.documentElement.classList.add("scripted");

async function part(url, options) {
  const answer = await fetch(url, { credentials: "same-origin", ...options });
  if (answer.redirected) { // the session is over
    location.reload();
    return null;
  }
  return { ok: answer.ok, text: await answer.text() };
}

function watch(place) {
  const every = Number(place.dataset.every || 0);
  let waits = every || 2000;
  let shown = ""; // what a screen reader has read is not read out again unchanged
  const ask = async () => {
    if (document.hidden) return void setTimeout(ask, 1000);
    try {
      const found = await part(place.dataset.load);
      if (found === null) return;
      if (found.ok) {
        if (shown !== found.text && !place.contains(document.activeElement)) place.innerHTML = shown = found.text;
        const slower = place.querySelector("[data-wait]");
        waits = slower ? Number(slower.dataset.wait) : every || waits;
        const go = place.querySelector("[data-go]");
        if (go) return void location.replace(go.dataset.go);
        if (!every || place.querySelector("[data-over]")) return;
      } else {
        waits = Math.min(waits * 2, 60000);
      }
    } catch {
      waits = Math.min(waits * 2, 60000);
    }
    setTimeout(ask, waits);
  };
  ask();
}

function planning(form) {
  const place = document.getElementById("plan");
  const touched = new Set(form.querySelectorAll("[aria-invalid]").length ? [...form.elements].map((one) => one.name) : []);
  let timer = 0;
  let newest = 0;

  const tell = () => {
    const errors = new Map();
    for (const one of place.querySelectorAll("[data-error]")) {
      errors.set(one.dataset.field, [...(errors.get(one.dataset.field) || []), one.dataset.error]);
    }
    for (const field of form.querySelectorAll(".field [id]:is(input, select)")) {
      const spot = document.getElementById(`error-${field.name}`);
      if (!spot) continue;
      const told = touched.has(field.name) ? (errors.get(field.name) || []).join(" ") : "";
      if (spot.textContent !== told) spot.textContent = told;
      if (told) field.setAttribute("aria-invalid", "true");
      else field.removeAttribute("aria-invalid");
      field.closest(".field").classList.toggle("wrong", told !== "");
    }
  };

  const ask = async () => {
    const mine = ++newest;
    place.setAttribute("aria-busy", "true");
    try {
      const found = await part(form.dataset.plan, { method: "POST", body: new URLSearchParams(new FormData(form)) });
      if (found === null || mine !== newest) return;
      if (found.ok) {
        place.innerHTML = found.text;
        tell();
      } else {
        place.textContent = "The plan cannot be shown now. Load the page again.";
      }
    } catch {
      if (mine === newest) place.textContent = "The server does not answer.";
    } finally {
      if (mine === newest) place.setAttribute("aria-busy", "false");
    }
  };

  const soon = (wait) => {
    clearTimeout(timer);
    timer = setTimeout(ask, wait);
  };

  form.addEventListener("input", (event) => {
    if (event.target.id === "reason") return;
    soon(350);
  });
  form.addEventListener("change", (event) => {
    touched.add(event.target.name);
    if (event.target.id !== "reason") soon(0);
  });
  form.addEventListener("click", (event) => {
    const button = event.target.closest("button[name=fill]");
    if (!button) return;
    event.preventDefault();
    let first = null;
    for (const [name, value] of Object.entries(JSON.parse(button.value))) {
      const field = document.getElementById(name);
      if (!field) continue;
      field.value = value;
      touched.add(name);
      first = first || field;
    }
    if (first) first.focus();
    soon(0);
  });
  form.addEventListener("submit", (event) => {
    if (event.submitter && event.submitter.value === "plan") {
      event.preventDefault();
      soon(0);
    }
  });
  if (document.getElementById("model")?.value && !place.querySelector(".verdict")) soon(0);
}

for (const place of document.querySelectorAll("[data-load]")) watch(place);
for (const form of document.querySelectorAll("form[data-plan]")) planning(form);
document.getElementById("faults")?.focus();
