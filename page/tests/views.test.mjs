// Every view: axe finds nothing in either scheme, nothing is wider than the window, and the page is
// small and quick.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { axe, focused, launch, login, node, open, row, shown, view } from "./browser.mjs";
import { PASSWORD, Rig } from "./rig.mjs";

const VIEWS = [
  "overview",
  "box",
  "charts",
  "charts/Functions/d0%2Fvf1",
  "charts/Drives/d0",
  "drives",
  "drives/d0",
  "namespaces",
  "namespaces/d0%2Fns1",
  "hosts",
  "keys",
  "ports",
  "slow",
  "refused",
  "events",
  "tasks",
  "configuration",
  "accounts",
  "certificates",
  "calls",
];
const BUDGET_BYTES = 120_000;
const FIRST_PAINT_MS = 300;

let rig;
let browser;
let page;

before(async () => {
  rig = await Rig.start({ drives: ["d0"], more: { gone: "tcp://192.0.2.77:4420" } });
  await rig.settle();
  await rig.createNamespace("d0", "64Mi");
  browser = await launch();
  page = await open(browser, rig.url);
});
after(async () => {
  await browser?.close();
  await rig?.stop();
});

test("axe finds nothing in the login", async () => {
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await axe(page, `login, ${colorScheme}`);
  }
});

test("axe finds nothing in any view, light and dark, wide and narrow", async () => {
  await login(page, "admin", PASSWORD);
  await shown(page);
  // The colours are the same at each width.
  for (const [colorScheme, width] of [
    ["light", 1280],
    ["dark", 400],
  ]) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width, height: 900 });
    for (const one of VIEWS) {
      await view(page, one);
      if (one === "box") await node(page, "function", "d0/vf1").click();
      await page.waitForTimeout(150);
      assert.equal(await page.locator(".bad:visible").count(), 0, `${one}: ${await page.locator(".bad:visible").allInnerTexts()}`);
      await axe(page, `${one}, ${colorScheme}, ${width}`);
    }
  }
  assert.deepEqual(page.errors, []);
});

test("what is missing needs attention until that is acknowledged", async () => {
  await view(page, "ports");
  await row(page, "gone", /missing/);
  const told = page.locator("[data-test=missing]", { hasText: "port gone is missing" });
  await told.waitFor();
  await view(page, "overview");
  const alert = page.locator("[data-alert='port gone']");
  await alert.locator("button").click();
  await alert.waitFor({ state: "detached" });
  assert.match(await focused(page), /cknowledge|BUTTON/);
  await page.reload();
  await page.click("text=acknowledged");
  await alert.waitFor();
  await view(page, "ports");
  assert.equal(await told.count(), 0);
});

test("axe finds nothing in the dialog of a change", async () => {
  await view(page, "namespaces/d0%2Fns1");
  await page.click("text=Delete …");
  await page.waitForSelector("[name=confirm]");
  await axe(page, "dialog");
  await page.keyboard.press("Escape");
});

test("nothing is wider than the window from 400 to 2560 pixels", async () => {
  for (const width of [400, 720, 1280, 2560]) {
    await page.setViewportSize({ width, height: 900 });
    for (const one of VIEWS) {
      await view(page, one);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${one} is ${wide} pixels too wide at ${width}`);
    }
  }
});

test("the switch of colours wins over the system's, and is remembered", async () => {
  await page.emulateMedia({ colorScheme: "light" });
  await page.check("input[value=dark]");
  const scheme = () => page.evaluate(() => document.documentElement.dataset.scheme);
  assert.equal(await scheme(), "dark");
  await page.reload();
  await page.waitForSelector("main h1");
  assert.equal(await scheme(), "dark");
  await page.check("input[value=auto]");
  assert.equal(await scheme(), "light");
});

test("the first paint is quick, and all that is loaded is small", async () => {
  let best = Infinity;
  let loaded = 0;
  for (let round = 0; round < 5; round++) {
    const fresh = await open(browser, rig.url);
    await fresh.waitForFunction(() => performance.getEntriesByName("first-contentful-paint").length > 0);
    const measured = await fresh.evaluate(() => ({
      paint: performance.getEntriesByName("first-contentful-paint")[0].startTime,
      bytes: [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")].reduce(
        (sum, one) => sum + one.encodedBodySize,
        0,
      ),
    }));
    best = Math.min(best, measured.paint);
    loaded = measured.bytes;
    await fresh.context().close();
  }
  console.log(`first paint after ${Math.round(best)} ms, ${loaded} bytes loaded`);
  assert.ok(best < FIRST_PAINT_MS, `first paint after ${best} ms`);
  assert.ok(loaded > 10_000 && loaded < BUDGET_BYTES, `${loaded} bytes`);
});
