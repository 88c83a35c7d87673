// Builds the page: one file with script and style inline, whose hashes the Content-Security-Policy allows.
// Writes crates/server/src/admin/dashboard.html and dashboard.csp; with `--check`, only compares.

import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, "../crates/server/src/admin");

async function bundle(entry, loaders = {}) {
  const result = await build({
    absWorkingDir: here,
    entryPoints: [entry],
    bundle: true,
    minify: true,
    charset: "utf8",
    target: ["chrome111", "firefox115", "safari16.4"],
    format: "iife",
    legalComments: "none",
    write: false,
    loader: loaders,
  });
  return result.outputFiles[0].text.trim();
}

const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

const script = await bundle("src/main.ts");
const style = await bundle("src/page.css");
if (script.includes("</script") || style.includes("</style")) throw new Error("the page would end within its script or style");

const notice = "<!-- Built by `npm run build` in dashboard/. Contains uPlot, (c) Leon Sorokin, MIT licence. -->";
const markup = (await readFile(join(here, "index.html"), "utf8")).replace(/\n\s+/g, "\n");
const page = markup
  .replace("<!doctype html>", () => `<!doctype html>\n${notice}`)
  .replace("<!-- style -->", () => `<style>${style}</style>`)
  .replace("<!-- script -->", () => `<script>${script}</script>`);
const policy = [
  "default-src 'none'",
  `script-src ${hash(script)}`,
  `style-src ${hash(style)}`,
  "connect-src 'self'",
  "img-src data:",
  "frame-ancestors 'none'",
  "base-uri 'none'",
  "form-action 'none'",
].join("; ");

const outputs = { "dashboard.html": page, "dashboard.csp": policy };
for (const [name, text] of Object.entries(outputs)) {
  const path = join(target, name);
  if (process.argv.includes("--check")) {
    const committed = await readFile(path, "utf8").catch(() => "");
    if (committed !== text) throw new Error(`${name} does not belong to the sources: run npm run build`);
  } else {
    await writeFile(path, text);
  }
}
console.log(`dashboard.html: ${Buffer.byteLength(page)} bytes`);
