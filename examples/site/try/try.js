// Shows what the server answers to a few requests, head by head. Without it the page still has the
// commands for a terminal.
"use strict";

const shown = document.getElementById("exchange");
const said = document.getElementById("said");
const buttons = document.getElementById("buttons");

// Fields in the order in which they are worth reading; others follow.
const FIRST = ["date", "content-type", "content-length", "content-encoding", "content-range", "etag"];

const ASKED = [
  {
    label: "The head of this page",
    method: "HEAD",
    path: "/try/",
    note: "No body follows: Content-Length, if there is one, says how long it would be.",
  },
  {
    label: "Have I got it already?",
    method: "GET",
    path: "/style.css",
    revalidate: true,
    note: "The ETag of the answer before goes back as If-None-Match. 304 means: yours is still good.",
  },
  {
    label: "One line out of many",
    method: "GET",
    path: "/downloads/numbers.txt",
    fields: { Range: "bytes=66065-66131" },
    body: true,
    note: "206, with the 67 bytes of a 338 KB file that are about 1001.",
  },
  {
    label: "Two ranges at once",
    method: "GET",
    path: "/downloads/numbers.txt",
    fields: { Range: "bytes=0-57,-85" },
    body: true,
    note: "The first and the last line, as the parts of one multipart body.",
  },
  {
    label: "Beyond the end",
    method: "GET",
    path: "/robots.txt",
    fields: { Range: "bytes=1000000-" },
    note: "416, and Content-Range says how long the file is.",
  },
  {
    label: "A compressed sibling",
    method: "HEAD",
    path: "/data/systems.json",
    note: "Stored beside the original as .br and .gz. Browsers offer br only over TLS or to localhost.",
  },
  {
    label: "Nothing there",
    method: "GET",
    path: "/no/such/page",
    note: "404, with the page that this site has for it.",
  },
  {
    label: "A method it has not",
    method: "DELETE",
    path: "/",
    note: "405, and Allow says what it has.",
  },
];

function head(response) {
  const fields = [...response.headers].sort(([a], [b]) => rank(a) - rank(b) || a.localeCompare(b));
  return fields.map(([name, value]) => `${name}: ${value}`).join("\n");
}

function rank(name) {
  const at = FIRST.indexOf(name);
  return at < 0 ? FIRST.length : at;
}

function part(text, className) {
  const span = document.createElement("span");
  span.textContent = text;
  span.className = className;
  return span;
}

async function exchange(asked) {
  const fields = { ...asked.fields };
  if (asked.revalidate) {
    const before = await fetch(asked.path, { method: "HEAD", cache: "no-store" });
    const etag = before.headers.get("etag");
    if (etag) {
      fields["If-None-Match"] = etag;
    }
  }
  // no-store: the server is to answer, not the browser's cache.
  const began = performance.now();
  const response = await fetch(asked.path, { method: asked.method, headers: fields, cache: "no-store" });
  const body = asked.body ? await response.text() : "";
  return { fields, response, body, took_ms: performance.now() - began };
}

function show(asked, { fields, response, body, took_ms }) {
  const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}`);
  shown.replaceChildren(
    part([`${asked.method} ${asked.path}`, ...lines].join("\n"), "asked"),
    "\n\n",
    part(`${response.status} ${response.statusText}`, "status"),
    `\n${head(response)}`,
    body ? `\n\n${body}` : "",
  );
  said.textContent = `${asked.note} (${took_ms.toFixed(1)} ms, as the browser sees it.)`;
}

async function ask(asked, button) {
  for (const other of buttons.children) {
    other.setAttribute("aria-pressed", String(other === button));
  }
  try {
    show(asked, await exchange(asked));
  } catch (error) {
    shown.textContent = `${asked.method} ${asked.path}`;
    said.textContent = `No answer: ${error.message}.`;
  }
}

for (const asked of ASKED) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = asked.label;
  button.setAttribute("aria-pressed", "false");
  button.addEventListener("click", () => ask(asked, button));
  buttons.append(button);
}

document.getElementById("live").hidden = false;
ask(ASKED[0], buttons.firstElementChild);
