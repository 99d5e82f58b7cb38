// Builds the page: dist/index.html, app-HASH.js and app-HASH.css, each also compressed, because the
// program has no compressor of its own. Fails if what a browser loads exceeds the budget.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdir, readFile, readdir, rm, utimes, writeFile } from "node:fs/promises";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const BUDGET_BYTES = 120_000;
const here = new URL(".", import.meta.url);
const dist = new URL("dist/", here);

const bundle = await build({
  absWorkingDir: new URL(".", here).pathname,
  entryPoints: { app: "src/main.tsx" },
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022", "chrome110", "firefox115", "safari16"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  outdir: "dist",
  write: false,
  logLevel: "warning",
});

const files = new Map();
const names = {};
for (const { path, contents } of bundle.outputFiles) {
  const kind = path.endsWith(".css") ? "css" : "js";
  const digest = createHash("sha256").update(contents).digest("hex").slice(0, 12);
  names[kind] = `app-${digest}.${kind}`;
  files.set(names[kind], Buffer.from(contents));
}
const html = (await readFile(new URL("src/index.html", here), "utf8"))
  .replace("app.js", names.js)
  .replace("app.css", names.css);
files.set("index.html", Buffer.from(html));
files.set("icon.svg", await readFile(new URL("src/icon.svg", here)));

await mkdir(dist, { recursive: true });
let changed = false;
const stale = new Set(await readdir(dist));
let total = 0;
for (const [name, content] of files) {
  const gzip = gzipSync(content, { level: 9 });
  const brotli = brotliCompressSync(content, {
    params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: content.length },
  });
  await put(name, content);
  await put(`${name}.gz`, gzip);
  await put(`${name}.br`, brotli);
  total += gzip.length;
  console.log(`${name}: ${content.length} bytes, gzip ${gzip.length}, brotli ${brotli.length}`);
}
for (const name of stale) await rm(new URL(name, dist));
// Cargo watches this file, and the directory only once it is there.
if (changed) await utimes(new URL("../crates/ebof/build.rs", here), new Date(), new Date());
console.log(`in all: gzip ${total} bytes of ${BUDGET_BYTES}`);
if (total > BUDGET_BYTES) {
  console.error(`the page is larger than its budget of ${BUDGET_BYTES} bytes`);
  process.exit(1);
}

/** Writes a file unless it is there already, so that the program is not built again for nothing. */
async function put(name, content) {
  stale.delete(name);
  const there = await readFile(new URL(name, dist)).catch(() => undefined);
  if (there?.equals(content)) return;
  changed = true;
  await writeFile(new URL(name, dist), content);
}
