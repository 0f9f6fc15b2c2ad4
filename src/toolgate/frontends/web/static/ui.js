// The pages work without this script. It filters tables, moves by keys, asks before what cannot be undone, and shows
// what changes. It makes no markup of text, and asks nobody but the gateway.
"use strict";

const find = (what, where = document) => where.querySelector(what);
const all = (what, where = document) => [...where.querySelectorAll(what)];
const isTyping = () => /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");

function filter(input) {
  const wanted = input.value.toLowerCase();
  for (const row of all(`#${input.dataset.filter} > tbody > tr`)) {
    row.hidden = !row.textContent.toLowerCase().includes(wanted);
  }
}

document.addEventListener("input", (event) => {
  if (event.target.dataset.filter) filter(event.target);
});

document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !confirm(question)) event.preventDefault();
});

document.addEventListener("click", (event) => {
  if (event.target.dataset.back !== undefined && history.length > 1) {
    event.preventDefault();
    history.back();
  }
});

// The text of a file that is chosen, put where it could be pasted. The file itself is not sent.
document.addEventListener("change", async (event) => {
  const { into, named } = event.target.dataset;
  const [file] = (into && event.target.files) || [];
  if (!file) return;
  document.getElementById(into).value = await file.text();
  document.getElementById(named).value = file.name;
});

// Keys: g and a letter goes to a page, / filters, j and k move in a table, Enter opens.
let isGoing = false;

function move(step) {
  const rows = all("tbody > tr").filter((row) => !row.hidden);
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.classList.contains("at"));
  const next = rows[Math.max(0, Math.min(rows.length - 1, at + step))];
  rows[at]?.classList.remove("at");
  next.classList.add("at");
  next.scrollIntoView({ block: "nearest" });
  find("a, button", next)?.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") document.activeElement?.blur();
  if (isTyping()) return;
  if (isGoing) {
    isGoing = false;
    const link = all("nav a").find((each) => each.dataset.key === event.key);
    if (link) {
      event.preventDefault();
      link.click();
      return;
    }
  }
  if (event.key === "g") isGoing = true;
  else if (event.key === "/" && find("[data-filter]")) {
    event.preventDefault();
    find("[data-filter]").focus();
  } else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
});

// A page that says so is loaded again now and then, while nobody writes, selects or looks elsewhere.
async function refresh(seconds) {
  const main = find("main");
  const isUsed = () => main !== document.activeElement && main.contains(document.activeElement);
  const isBusy = () => isUsed() || document.hidden || find("details[open]") || String(getSelection());
  if (!isBusy()) {
    try {
      const answer = await fetch(location.href, { redirect: "error" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (answer.ok && !isBusy()) {
        const said = find(".says[role=status]", main); // of what was done: it stays to be read
        main.replaceChildren(...find("main", page).childNodes);
        if (said && !find(".says", main)) main.prepend(said);
      }
    } catch {
      location.reload();
      return;
    }
  }
  setTimeout(refresh, seconds * 1000, seconds);
}

const seconds = Number(find("main").dataset.refresh);
if (seconds) setTimeout(refresh, seconds * 1000, seconds);

// Live traffic: what comes becomes rows of texts. While it is paused nothing is asked for.
const feed = find("#calls");
const MOST_ROWS = 500;

// What cannot be seen is written out, as on the pages.
const visible = (text) => String(text).replace(/(?! )[\p{C}\p{Z}]/gu, (sign) => `\\u{${sign.codePointAt(0).toString(16)}}`);

function row(call) {
  const line = document.createElement("tr");
  const cell = (text, kind = "") => {
    const made = line.insertCell();
    made.textContent = visible(text);
    made.className = kind;
    return made;
  };
  cell(new Date((call.time ?? call.since) * 1000).toLocaleTimeString());
  cell(call.who);
  const what = cell(call.method === "tools/call" ? call.target : `${call.method} ${call.target}`);
  if (call.via) what.append(` by ${call.via}`);
  if (call.arguments) what.append(document.createElement("br"), visible(call.arguments));
  cell(call.server);
  const isBad = call.decision === "deny" || call.outcome === "error";
  const isOver = call.time !== undefined;
  cell(isOver ? [call.decision, call.outcome, call.code].filter(Boolean).join(" ") : "under way", isBad ? "bad" : isOver ? "" : "warn");
  cell(isOver ? call.ms.toFixed(1) : "");
  cell(isOver ? `${call.bytes_in}, ${call.bytes_out}` : "");
  return line;
}

function watch() {
  const says = find("#feed");
  const pause = find("#pause");
  let source = null;
  let lost = 0;

  const open = () => {
    source = new EventSource(feed.dataset.events);
    source.onopen = () => (says.textContent = "Waiting for calls.");
    source.onmessage = (event) => {
      const portion = JSON.parse(event.data);
      lost += portion.lost;
      feed.prepend(...portion.calls.map(row).reverse());
      find("#running").replaceChildren(...portion.under_way.map(row));
      while (feed.rows.length > MOST_ROWS) feed.deleteRow(-1);
      says.textContent = lost ? `${lost} more are not shown: they came too fast.` : "";
    };
    source.onerror = () => {
      const isOver = source.readyState === EventSource.CLOSED;
      says.textContent = isOver ? "The gateway tells nothing more: load the page again." : "The gateway does not answer.";
    };
  };

  pause.hidden = false;
  pause.addEventListener("click", () => {
    if (source) source.close();
    pause.textContent = source ? "Go on" : "Pause";
    says.textContent = source ? "Paused: what ends now is not shown." : "";
    find("#running").replaceChildren();
    if (source) source = null;
    else open();
  });
  open();
}

if (feed) watch();
