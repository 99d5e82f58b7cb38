// Runs the tests of the page, one file after the other: each has a target and a browser of its own.
// The last line is "N passed, M failed, K skipped".

import { run } from "node:test";
import { readdirSync } from "node:fs";
import { hasBrowser } from "./browser.mjs";
import { EBOF, hasProgram } from "./rig.mjs";

const LIMIT_MS = 230_000;
const directory = new URL(".", import.meta.url);
const only = process.argv[2] ?? "";
const all = readdirSync(directory)
  .filter((name) => name.endsWith(".test.mjs") && name.includes(only))
  .map((name) => new URL(name, directory).pathname);

const missing = [
  hasBrowser ? "" : "there is no chromium (scripts/packages.sh test)",
  hasProgram ? "" : `there is no ${EBOF} (cargo build -p ebof)`,
].filter(Boolean);
const files = missing.length ? all.filter((name) => name.endsWith("units.test.mjs")) : all;
if (missing.length) console.log(`SKIPPED: ${missing.join("; ")}`);

const counts = { passed: 0, failed: 0, skipped: all.length - files.length };
const began = Date.now();
const stream = run({ files, concurrency: false, timeout: LIMIT_MS });
stream.on("test:pass", ({ name, details, skip: skipped, nesting, file }) => {
  if (name === file || nesting > 0 || name.endsWith(".mjs")) return;
  counts[skipped ? "skipped" : "passed"]++;
  console.log(`ok      ${name} (${(details.duration_ms / 1000).toFixed(1)} s)`);
});
stream.on("test:fail", ({ name, details }) => {
  if (details.error?.failureType === "subtestsFailed") return;
  counts.failed++;
  console.log(`FAILED  ${name}`);
  console.log(String(details.error?.cause?.stack ?? details.error?.cause ?? details.error).replace(/^/gm, "        "));
});
stream.on("test:stdout", ({ message }) => process.stdout.write(message));
stream.on("end", () => {
  // No test ran: that is a failure.
  if (counts.passed + counts.failed + counts.skipped === 0) counts.failed = 1;
  console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped, ${Math.round((Date.now() - began) / 1000)} s`);
  process.exit(counts.failed ? 1 : 0);
});
stream.resume();
