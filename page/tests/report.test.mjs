// Reports of `ebof qualify` in a browser: examples of every procedure, made by the crate's own code.
// Every chart is drawn, nothing overlaps or overflows, light and dark, wide and narrow, and on paper.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { launch, open } from "./browser.mjs";
import { EBOF } from "./rig.mjs";

const EXAMPLES = process.env.EBOF_EXAMPLE_REPORTS ?? join(dirname(EBOF), "examples/example-reports");
const skip = existsSync(EXAMPLES) ? false : `there is no ${EXAMPLES} (cargo build -p ebof-qualify --examples)`;
/** Pictures of all reports go here, to be looked at. */
const PICTURES = process.env.EBOF_REPORT_PICTURES;

let browser;
let directory;
before(async () => {
  if (skip) return;
  directory = mkdtempSync(join(tmpdir(), "ebof-reports."));
  execFileSync(EXAMPLES, [directory]);
  browser = await launch();
});
after(async () => {
  await browser?.close();
  if (directory) rmSync(directory, { recursive: true });
});

/** What is wrong with the charts of the page that is open. */
function faults() {
  const wrong = [];
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) wrong.push(`the page is ${document.documentElement.scrollWidth} wide`);
  // A chart may have a form for narrow screens: one of both is hidden.
  const charts = [...document.querySelectorAll("svg[role=img]")].filter((chart) => chart.getClientRects().length > 0);
  for (const figure of document.querySelectorAll("figure")) {
    if (!charts.some((chart) => figure.contains(chart))) wrong.push(`${figure.textContent}: no chart is shown`);
  }
  for (const chart of charts) {
    const name = chart.querySelector("title")?.textContent ?? "a chart without a title";
    const box = chart.getBoundingClientRect();
    if (box.width < 100 || box.height < 20) wrong.push(`${name}: ${box.width} x ${box.height}`);
    const drawn = [...chart.querySelectorAll("path, rect, line, circle, polyline")];
    if (!drawn.some((shape) => shape.getBoundingClientRect().width + shape.getBoundingClientRect().height > 4))
      wrong.push(`${name}: nothing is drawn`);
    const texts = [...chart.querySelectorAll("text")].filter((text) => text.textContent.trim());
    const boxes = texts.map((text) => [text.textContent, text.getBoundingClientRect()]);
    for (const [text, at] of boxes) {
      if (at.left < box.left - 1 || at.right > box.right + 1) wrong.push(`${name}: "${text}" leaves the chart`);
    }
    for (let one = 0; one < boxes.length; one++) {
      for (let other = one + 1; other < boxes.length; other++) {
        const [a, b] = [boxes[one][1], boxes[other][1]];
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 2 && down > 4) wrong.push(`${name}: "${boxes[one][0]}" and "${boxes[other][0]}" overlap`);
      }
    }
  }
  return wrong;
}

const SIZES = [
  ["wide", { width: 1280, height: 900 }],
  ["narrow", { width: 400, height: 800 }],
];

test("reports are readable: wide and narrow, light and dark", { skip }, async () => {
  const files = readdirSync(directory).filter((name) => name.endsWith(".html"));
  assert.ok(files.length >= 9);
  for (const file of files) {
    const page = await open(browser, `file://${join(directory, file)}`);
    // What was never measured has no charts.
    const charts = await page.locator("svg[role=img]").count();
    assert.ok(file === "nothing.html" || charts >= 3, `${file} has ${charts} charts`);
    for (const [size, viewport] of SIZES) {
      await page.setViewportSize(viewport);
      for (const colorScheme of ["light", "dark"]) {
        await page.emulateMedia({ colorScheme });
        assert.deepEqual(await page.evaluate(faults), [], `${file}, ${size}, ${colorScheme}`);
        if (PICTURES) await page.screenshot({ path: join(PICTURES, `${file}-${size}-${colorScheme}.png`), fullPage: true });
      }
    }
    assert.deepEqual(page.errors, [], file);
    await page.context().close();
  }
});

test("a report needs nothing from elsewhere, and prints", { skip }, async () => {
  const page = await open(browser, `file://${join(directory, "odcc.html")}`);
  const outside = await page.evaluate(() => performance.getEntriesByType("resource").map((entry) => entry.name));
  assert.deepEqual(outside, []);
  const paper = join(directory, "odcc.pdf");
  await page.pdf({ path: paper, format: "A4" });
  assert.ok(statSync(paper).size > 20_000);
  await page.context().close();
});

test("a hostile device name is text, not markup", { skip }, async () => {
  const page = await open(browser, "about:blank");
  page.on("dialog", (dialog) => page.errors.push(`it says ${dialog.message()}`) && dialog.dismiss());
  await page.goto(`file://${join(directory, "hostile.html")}`);
  assert.equal(await page.evaluate(() => document.querySelectorAll("script[src], img, iframe, a[href^='javascript']").length), 0);
  assert.deepEqual(page.errors, []);
  await page.context().close();
});
