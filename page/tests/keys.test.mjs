// Keys of hosts through the page: made by the browser, shown once, good for real connections,
// rotated and removed.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { apply, axe, focused, launch, login, open, shown, view } from "./browser.mjs";
import { PASSWORD, Rig } from "./rig.mjs";

const BLADE = "nqn.2014-08.org.example:blade1";

let rig;
let browser;
let page;
/** All keys that were shown. */
const keys = [];

before(async () => {
  rig = await Rig.start({ drives: ["d0"] });
  await rig.settle();
  browser = await launch();
  page = await open(browser, rig.url);
  await login(page, "admin", PASSWORD);
  await shown(page);
  await view(page, "keys");
});
after(async () => {
  await browser?.close();
  await rig?.stop();
});
beforeEach(async () => {
  while (await page.locator("dialog").count()) await page.keyboard.press("Escape");
});

const row = (text) => page.locator("[aria-label=Keys] tbody tr", { hasText: text });

/** Fills in the form for another key. */
async function make(kind, hash) {
  await page.fill("[name=key-host]", BLADE);
  await page.selectOption("[name=key-kind]", kind);
  await page.selectOption("[name=key-hash]", hash);
  await page.click("text=Make …");
}

/** Adds the key that is proposed; its text, which is shown once. */
async function added() {
  await page.waitForSelector("dialog [data-test=plan], dialog .failure");
  assert.match(await page.locator("dialog .call code").innerText(), /"KeyString":"…"/);
  const plan = await page.locator("dialog [data-test=plan]").innerText();
  await page.click("dialog [data-test=apply]");
  await page.waitForSelector("dialog [data-test=done]");
  // Behind this dialog comes another one.
  await page.click("dialog footer button");
  const shows = page.locator("[data-test=key]");
  const key = await shows.innerText();
  await axe(page, "the key");
  await page.click("text=I have it");
  await shows.waitFor({ state: "detached" });
  assert.notEqual(await focused(page), "BODY", "the focus is somewhere");
  keys.push(key);
  return { key, plan };
}

function file(name, key) {
  const path = join(rig.directory, name);
  writeFileSync(path, `${key}\n`, { mode: 0o600 });
  return path;
}

const connects = (...more) => rig.ebof("id-ctrl", rig.uri("d0", 0), "--hostnqn", BLADE, ...more);

test("a key is made, shown once, and demanded of its host from then on", async () => {
  await connects();
  await make("DHCHAP", "1");
  const { key, plan } = await added();
  assert.match(plan, /add key .*blade1/);
  assert.match(await rig.ebof("check-dhchap-key", "--key", key), /32 bytes, transformed with SHA-256/);
  await row(BLADE).waitFor();
  await assert.rejects(connects(), /authenticat|secret|proof/i);
  await connects("--dhchap-secret-file", file("first", key));
  // Only its own host has it.
  await assert.rejects(connects("--dhchap-secret-file", file("wrong", key.replace(/:..../, ":01:AAAA"))));
});

test("a key is rotated: both are good until the old one is removed", async () => {
  const first = keys[0];
  await page.click("[aria-label^='Rotate key']");
  const { key } = await added();
  assert.notEqual(key, first);
  await row("older").waitFor();
  assert.equal(await row(BLADE).count(), 2);
  await connects("--dhchap-secret-file", file("first", first));
  await connects("--dhchap-secret-file", file("second", key));
  await row("older").locator("[aria-label^='Remove key']").click();
  assert.match(await apply(page), /remove key/);
  await row("older").waitFor({ state: "detached" });
  await assert.rejects(connects("--dhchap-secret-file", file("first", first)));
  await connects("--dhchap-secret-file", file("second", key));
});

test("keys of the target and for TLS have the form of their kind", async () => {
  await make("DHCHAPController", "3");
  const own = await added();
  assert.match(await rig.ebof("check-dhchap-key", "--key", own.key), /64 bytes, transformed with SHA-512/);
  const secrets = ["--dhchap-secret-file", file("second", keys[1])];
  await connects(...secrets, "--dhchap-ctrl-secret-file", file("own", own.key));
  await assert.rejects(connects(...secrets, "--dhchap-ctrl-secret-file", file("first", keys[0])));
  // There is one: another one takes its place.
  await make("DHCHAPController", "1");
  const next = await added();
  assert.match(next.plan, /add key[^]*remove key/);
  await connects(...secrets, "--dhchap-ctrl-secret-file", file("next", next.key));

  await page.selectOption("[name=key-kind]", "TLS");
  assert.equal(await page.locator("[name=key-hash] option").count(), 2);
  await make("TLS", "2");
  const tls = await added();
  assert.match(await rig.ebof("check-tls-key", "--keydata", tls.key), /valid/);
  assert.match(tls.key, /^NVMeTLSkey-1:02:/);
});

test("what a subsystem demands is changed with a plan", async () => {
  const demands = page.locator("[aria-label='What subsystems demand'] select");
  assert.equal(await demands.inputValue(), "Anyone");
  await demands.selectOption("Authenticated");
  assert.match(await apply(page), /security/);
  await page.waitForFunction(() => document.querySelector("[aria-label='What subsystems demand'] select")?.value === "Authenticated");
  await assert.rejects(rig.ebof("id-ctrl", rig.uri("d0", 0), "--hostnqn", "nqn.2014-08.org.example:stranger"));
  await demands.selectOption("Anyone");
  await apply(page);
});

test("the last key of a host is removed after its name was typed", async () => {
  const last = row("host proves itself");
  const id = (await last.locator("td code").first().innerText()).trim();
  await last.locator("[aria-label^='Remove key']").click();
  await page.waitForSelector("dialog .warning");
  await apply(page, { confirm: id });
  await last.waitFor({ state: "detached" });
  await connects();
});

test("no key is anywhere after it was shown, and only administrators see the view", async () => {
  const stored = await page.evaluate(() => JSON.stringify({ ...sessionStorage, ...localStorage }));
  await view(page, "calls");
  const calls = await page.locator(".calls").innerText();
  assert.match(calls, /NVMeoFSecrets/);
  const html = await page.content();
  const { body } = await rig.call("GET", "/redfish/v1/KeyService/NVMeoFSecrets?$expand=*");
  const told = [stored, calls, html, JSON.stringify(body), await rig.ebof("config", "export", "--control", rig.control)];
  for (const key of keys) for (const text of told) assert.ok(!text.includes(key.split(":")[2]), "a key is told");

  const operator = { UserName: "operator1", Password: "one more password 7", RoleId: "Operator" };
  assert.equal((await rig.call("POST", "/redfish/v1/AccountService/Accounts", operator)).status, 201);
  const other = await open(browser, rig.url);
  await login(other, operator.UserName, operator.Password);
  await shown(other);
  assert.equal(await other.locator("nav >> text=Keys").count(), 0);
  await other.context().close();
  assert.deepEqual(page.errors, []);
});
