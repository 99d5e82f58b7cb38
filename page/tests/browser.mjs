// Driving the page in Debian's chromium: starting it, logging in, the picture by mouse and keyboard.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const AXE = readFileSync(new URL("../node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

const PROGRAM = process.env.EBOF_CHROMIUM ?? "/usr/bin/chromium";

// A container has no display, no user namespaces and often a small /dev/shm; nothing but the target
// is to be talked to.
const ARGUMENTS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--disable-dev-shm-usage",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export const hasBrowser = existsSync(PROGRAM);

export function launch() {
  return chromium.launch({ executablePath: PROGRAM, args: ARGUMENTS });
}

/** A page in a context of its own, with what its console said: it is to be silent. */
export async function open(browser, url, options = {}) {
  const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: { width: 1280, height: 860 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  page.errors = [];
  page.on("pageerror", (error) => page.errors.push(error.stack ?? error.message));
  page.on("console", (message) => {
    const text = message.text();
    // The browser reports refused and failed requests by itself, which tests provoke.
    if (message.type() === "error" && !/Failed to load resource|net::ERR_/.test(text)) page.errors.push(text);
  });
  await page.goto(url);
  return page;
}

export async function login(page, name, password) {
  await page.fill("[name=username]", name);
  await page.fill("[name=password]", password);
  await page.click("button[type=submit]");
}

export async function changePassword(page, password) {
  await page.waitForSelector("[name=new-password]");
  await page.fill("[name=new-password]", password);
  await page.fill("[name=again]", password);
  await page.click("button[type=submit]");
}

/** Goes to the picture of the box from the overview that a login leads to, and waits for it. */
export async function shown(page) {
  await page.waitForSelector("main h1");
  if (/^(#\/?)?$/.test(await page.evaluate(() => location.hash))) await view(page, "box");
  await page.waitForSelector("[data-node^='drive:']");
}

export async function view(page, hash) {
  await page.evaluate((to) => (location.hash = to), `#/${hash}`);
  await page.waitForSelector("main h1");
}

/** Waits until the row of a table says something. */
export async function row(page, id, text) {
  await page.locator(`[data-row="${id}"]`, { hasText: text }).waitFor();
}

export function node(page, kind, name) {
  return page.locator(`[data-node="${kind}:${name}"]`);
}

async function middle(locator) {
  await locator.scrollIntoViewIfNeeded();
  const box = await locator.boundingBox();
  return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
}

/** By mouse, in steps, as a hand does. */
export async function drag(page, from, to) {
  const start = await middle(from);
  await page.mouse.move(start.x, start.y);
  await page.mouse.down();
  const end = await middle(to);
  await page.mouse.move((start.x + end.x) / 2, (start.y + end.y) / 2, { steps: 4 });
  await page.mouse.move(end.x, end.y, { steps: 4 });
  await page.waitForSelector(".ghost");
  await page.mouse.up();
}

/** By keyboard alone: picks up, goes to the target with arrows, puts down. */
export async function carry(page, from, to) {
  const target = await to.getAttribute("data-node");
  const at = () => page.evaluate(() => document.activeElement?.getAttribute("data-node"));
  const first = await from.getAttribute("data-node");
  await from.focus();
  await page.keyboard.press("Enter");
  await page.waitForFunction((first) => document.activeElement?.getAttribute("data-node") !== first, first);
  for (const key of ["ArrowUp", "ArrowDown"]) {
    for (let steps = 0; steps < 40 && (await at()) !== target; steps++) {
      const before = await at();
      await page.keyboard.press(key);
      if ((await at()) === before) break;
    }
  }
  if ((await at()) !== target) throw new Error(`the keyboard does not reach ${target}, but ${await at()}`);
  await page.keyboard.press("Enter");
}

/** Finds what keeps people out who cannot see, or not use a mouse. */
export async function axe(page, name) {
  // Colours that are still changing, or are about to, are not those of the page.
  await page.evaluate(async () => {
    for (let frames = 0; frames < 2; frames++) await new Promise(requestAnimationFrame);
    await Promise.allSettled(document.getAnimations().map((one) => one.finished));
  });
  // Not as an element: the page's policy admits no foreign script.
  await page.evaluate(AXE);
  const { violations } = await page.evaluate((rules) => globalThis.axe.run(document, { runOnly: rules }), RULES);
  const found = violations.map((one) => `${name}: ${one.help}: ${one.nodes.map((each) => each.html).join("\n")}`);
  assert.deepEqual(found, []);
}

/** What has the focus: its name, or what it is. */
export function focused(page) {
  return page.evaluate(() => document.activeElement?.getAttribute("aria-label") || document.activeElement?.tagName);
}

/** Reads the plan that is shown, applies it, and waits for its end. The dialog shows the call. */
export async function apply(page, options = {}) {
  await page.waitForSelector("dialog [data-test=plan], dialog [data-test=apply]:enabled, dialog .failure");
  const plan = (await page.locator("dialog [data-test=plan]").allInnerTexts()).join("\n");
  assert.match(await page.locator("dialog .call code").innerText(), /^curl -k -X (POST|PATCH|DELETE) '/);
  if (options.confirm) {
    assert.ok(await page.locator("dialog [data-test=apply]").isDisabled(), "nothing is typed yet");
    await page.fill("dialog [name=confirm]", options.confirm);
  }
  const failure = page.locator("dialog .failure");
  if (await failure.count()) throw new Error(`not possible: ${await failure.innerText()}`);
  await page.click("dialog [data-test=apply]");
  await page.waitForSelector("dialog [data-test=done], dialog .failure", { timeout: options.timeout ?? 30_000 });
  if (await failure.count()) throw new Error(`not done: ${await failure.innerText()}`);
  if (options.remark) assert.match(await page.locator("dialog").innerText(), options.remark);
  await page.click("dialog footer button");
  await page.waitForSelector("dialog", { state: "detached" });
  assert.notEqual(await focused(page), "BODY", "the focus is somewhere");
  return plan;
}
