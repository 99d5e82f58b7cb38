// What an administrator does beyond the picture, through the page; what came of it is asked for by
// Redfish and by the command line.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { apply, axe, focused, launch, login, open, row, shown, view } from "./browser.mjs";
import { PASSWORD, Rig, freePort } from "./rig.mjs";

/** A file that is not empty: this one. */
const SOMETHING = new URL(import.meta.url).pathname;

let rig;
let browser;
let page;

before(async () => {
  rig = await Rig.start({ drives: ["d0", "d1"] });
  await rig.settle();
  await rig.createNamespace("d0", "16Mi");
  browser = await launch();
  page = await open(browser, rig.url);
  await login(page, "admin", PASSWORD);
  await shown(page);
});
after(async () => {
  await browser?.close();
  await rig?.stop();
});

// A dialog that a test has left open is not in the way of the next one.
beforeEach(async () => {
  while (await page.locator("dialog").count()) await page.keyboard.press("Escape");
});

async function resource(path) {
  const answer = await rig.call("GET", `/redfish/v1/${path}`);
  assert.equal(answer.status, 200, `${path}: ${JSON.stringify(answer.body)}`);
  return answer.body;
}

/** Waits until a resource is as wanted. */
async function becomes(path, wanted) {
  for (let attempt = 0; ; attempt++) {
    const body = await resource(path);
    if (wanted(body)) return body;
    assert.ok(attempt < 100, JSON.stringify(body));
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

async function image(name, revision, personality) {
  const path = join(rig.directory, name);
  await rig.ebof("fw-image", path, "-r", revision, "-p", JSON.stringify(personality));
  return path;
}

async function upload(path, slot, when, remark) {
  await page.setInputFiles("[name=image]", path);
  await page.selectOption("[name=slot]", { label: String(slot) });
  await page.selectOption("[name=when]", when);
  await page.click("text=Upload …");
  const call = await page.locator("dialog .call code").innerText();
  assert.match(call, new RegExp(`slot${slot}"\\].*-F 'UpdateFile=@`));
  await apply(page, { remark });
}

test("an image is sent to a slot and activated, another one runs after a reset", async () => {
  const [first, second] = [await image("first.img", "7.1", {}), await image("second.img", "7.2", { copy: false })];
  await view(page, "drives/d0");
  await upload(first, 2, "Stage");
  await becomes("UpdateService/FirmwareInventory/d0-slot2", (slot) => slot.Version === "7.1" && !slot.Active);
  await page.click("[aria-label^='Activate Firmware slot 2']");
  await apply(page);
  await becomes("UpdateService/FirmwareInventory/d0-slot2", (slot) => slot.Active);
  await row(page, "d0-slot2", /7\.1\s*runs/);
  assert.match(await rig.ebof("id-ctrl", rig.uri("d0", 0)), /fr +: 7\.1/);

  // One that needs a reset stays in its slot until then, and that is said.
  await upload(second, 3, "Immediate", /slot 3 .* runs after the next reset/);
  await becomes("UpdateService/FirmwareInventory/d0-slot3", (slot) => slot.Staged && !slot.Active);
  await row(page, "d0-slot3", /7\.2\s*runs after the next reset/);
  // A host that goes resets its controller.
  await rig.ebof("id-ctrl", rig.uri("d0", 0));
  await becomes("UpdateService/FirmwareInventory/d0-slot3", (slot) => slot.Active);
  await row(page, "d0-slot3", /7\.2\s*runs/);
  assert.match(await rig.ebof("id-ctrl", rig.uri("d0", 0)), /fr +: 7\.2/);

  // What is no image is refused in the service's words.
  await page.setInputFiles("[name=image]", { name: "none.img", mimeType: "application/octet-stream", buffer: Buffer.from("none") });
  await page.click("text=Upload …");
  await assert.rejects(apply(page), /image/i);
  await page.keyboard.press("Escape");
});

test("a drive is reset after its name was typed, and its functions go offline", async () => {
  await rig.ebof("target", "assign", "d0/vf1", "--port", "fabric0", "--control", rig.control);
  await becomes("Storage/d0/Controllers/vf1", (one) => one.Oem.Ebof.State === "Online");
  await view(page, "drives/d0");
  await page.click("text=Reset …");
  assert.match(await apply(page, { confirm: "d0" }), /reset the primary controller of drive d0/);
  await becomes("Storage/d0/Controllers/vf1", (one) => one.Oem.Ebof.State === "Offline");
});

test("a drive tests itself", async () => {
  await view(page, "drives/d0");
  await page.click("text=Short self-test …");
  assert.match(await apply(page), /test drive d0/);
  const passed = page.locator("[aria-label='Self-tests'] tbody tr", { hasText: "Short" });
  await passed.locator(".badge", { hasText: "passed" }).waitFor();
  const log = JSON.parse(await rig.ebof("self-test-log", rig.uri("d0", 0), "-o", "json"));
  const [latest] = log["List of Valid Reports"];
  assert.deepEqual([latest["Self test result"], latest["Self test code"]], [0, 1]);
  // Whoever does not wait for the end is told.
  await page.click("text=Short self-test …");
  await page.waitForSelector("dialog [data-test=apply]:enabled");
  await page.evaluate(() => {
    for (const button of ["[data-test=apply]", "dialog [aria-label=close]"]) document.querySelector(button).click();
  });
  await page.locator("[data-test=notices]", { hasText: /self-test.*: done/i }).waitFor();
});

test("a namespace is formatted, and its drive sanitized, after the name was typed", async () => {
  const uri = `${rig.uri("d0", 0)}/1`;
  const file = join(rig.directory, "data");
  const stored = async (bytes) => {
    await rig.ebof("read", uri, "-s", "0", "-z", String(bytes), "-d", file, "--force");
    return readFileSync(file);
  };
  await view(page, "namespaces/d0%2Fns1");
  await page.selectOption("[name=attach]", "d0/pf");
  await page.click("text=Attach …");
  await apply(page);
  await rig.ebof("write", uri, "-s", "0", "-z", "4096", "-d", SOMETHING);
  assert.ok((await stored(4096)).some((byte) => byte !== 0));

  await page.selectOption("[name=block]", "4096");
  await page.click("text=Format …");
  assert.match(await apply(page, { confirm: "d0/ns1" }), /d0\/ns1/);
  await becomes("Storage/d0/Volumes/ns1", (volume) => volume.BlockSizeBytes === 4096);
  await page.waitForFunction(() => document.querySelector("main").innerText.includes("4096 B"));
  assert.ok((await stored(4096)).every((byte) => byte === 0), "formatted");

  await rig.ebof("write", uri, "-s", "0", "-z", "4096", "-d", SOMETHING);
  await view(page, "drives/d0");
  await page.selectOption("[name=sanitize]", "BlockErase");
  await page.click("text=Sanitize …");
  assert.match(await apply(page, { confirm: "d0" }), /sanitize|erase/i);
  await becomes("Chassis/enclosure/Drives/d0", (drive) => drive.Oem.Ebof.Sanitize.State === "Succeeded");
  assert.ok((await stored(4096)).every((byte) => byte === 0), "sanitized");
});

test("a drive is added, and removed after its name was typed", async () => {
  await view(page, "drives");
  await page.fill("[name=drive-name]", "d9");
  await page.fill("[name=backing]", "mem:64Mi");
  await page.fill("[name=functions]", "2");
  await page.click("text=Add …");
  assert.match(await apply(page), /d9/);
  await row(page, "d9", /OK/);
  const functions = await resource("Storage/d9/Controllers");
  assert.equal(functions["Members@odata.count"], 3);
  assert.match(await rig.ebof("id-ctrl", rig.uri("d9", 1)), /mn +: /);

  await page.click("[data-row=d9] a");
  await page.click("text=Remove …");
  await apply(page, { confirm: "d9" });
  await page.waitForSelector("text=There is no drive d9");
  assert.equal((await rig.call("GET", "/redfish/v1/Chassis/enclosure/Drives/d9")).status, 404);
  await assert.rejects(rig.ebof("id-ctrl", rig.uri("d9", 1)));
});

test("ports are added, closed with a plan that names their hosts, opened and removed", async () => {
  rig.fabric[2] = await freePort();
  const connects = () => rig.ebof("id-ctrl", rig.uri("d0", 2));
  await view(page, "ports");
  await page.fill("[name=listen]", `tcp://127.0.0.1:${rig.fabric[2]}`);
  await page.fill("[name=port-name]", "fabric2");
  await page.click("text=Add …");
  assert.match(await apply(page), /add port fabric2/);
  await row(page, "fabric2", /open/);
  await connects();

  // The plan says that nobody notices, and a host comes before it is applied.
  await page.click("[aria-label='Drain port fabric2']");
  await page.waitForSelector("[data-test=plan]");
  const load = rig.load("d0", 2, undefined, 1);
  await becomes("Chassis/enclosure/NetworkAdapters/fabric/Ports/fabric2/Metrics", (metrics) => metrics.Oem.Ebof.Open > 0);
  await assert.rejects(apply(page), /plan|changed/i);
  await page.keyboard.press("Escape");
  await page.click("[aria-label='Drain port fabric2']");
  assert.match(await apply(page), /Hosts that notice\s+nqn\..* at port fabric2/);
  await row(page, "fabric2", /disabled/);
  await load.stop();
  await assert.rejects(connects());
  assert.match(await rig.ebof("config", "export", "--control", rig.control), /enabled = false/);

  await page.click("[aria-label='Enable port fabric2']");
  await apply(page);
  await row(page, "fabric2", /open/);
  await connects();
  await page.click("[aria-label='Disable port fabric2']");
  await apply(page);
  await page.click("[aria-label='Remove port fabric2']");
  assert.match(await apply(page), /remove port fabric2/);
  await page.waitForSelector("[data-row=fabric2]", { state: "detached" });
  // The focus was in the row that is gone.
  assert.ok(await page.evaluate(() => document.activeElement.closest("tr[data-row]")), await focused(page));
  assert.doesNotMatch(await rig.ebof("config", "export", "--control", rig.control), /fabric2/);
});

test("the state of an ANA group at a port is set with a plan, and shown", async () => {
  const inForce = () => rig.ebof("config", "export", "--control", rig.control);
  await view(page, "ports");
  await row(page, "fabric1", /optimized/);
  await page.selectOption("[name=ana-port]", "fabric1");
  await page.fill("[name=ana-group]", "129");
  assert.ok(await page.isDisabled("text=Set …"));
  await page.fill("[name=ana-group]", "1");
  await page.selectOption("[name=ana-state]", "inaccessible");
  await page.click("text=Set …");
  assert.match(await apply(page), /fabric1/);
  await row(page, "fabric1", /1 inaccessible/);
  assert.match(await inForce(), /1 = "inaccessible"/);
  await page.selectOption("[name=ana-state]", "optimized");
  await page.click("text=Set …");
  await apply(page);
  await row(page, "fabric1", /optimized/);
  assert.doesNotMatch(await inForce(), /inaccessible/);
});

test("hosts are added, allowed, forbidden and removed", async () => {
  const nqn = "nqn.2014-08.org.example:tenant";
  const connects = (host) => rig.ebof("id-ctrl", rig.uri("d1", 0), "--hostnqn", host);
  await view(page, "hosts");
  await page.fill("[name=nqn]", nqn);
  await page.click("text=Add …");
  assert.match(await apply(page), /tenant/);
  await row(page, nqn, /not connected/);

  await page.click("[aria-label='Forbid every host at d1']");
  await apply(page);
  await assert.rejects(connects(nqn), /not admit|no subsystem|not allowed/);
  await page.selectOption("[name=host]", nqn);
  await page.selectOption("[name=drive]", "d1");
  await page.click("text=Allow …");
  assert.match(await apply(page), /tenant/);
  await connects(nqn);
  await assert.rejects(connects("nqn.2014-08.org.example:other"));
  assert.match(await rig.ebof("config", "export", "--control", rig.control), /tenant/);

  // A host that may connect is not removed: that is refused, with what to do.
  await page.click(`[aria-label='Remove host ${nqn}']`);
  await page.waitForSelector("dialog .failure");
  assert.match(await page.locator("dialog .failure").innerText(), /connect to .*d1[^]*first/);
  await page.keyboard.press("Escape");
  await page.click(`[aria-label='Forbid ${nqn} at d1']`);
  await apply(page);
  await page.click(`[aria-label='Remove host ${nqn}']`);
  await apply(page);
  await page.waitForSelector(`[data-row="${nqn}"]`, { state: "detached" });
  await assert.rejects(connects(nqn));
});

test("another configuration is compared, applied and taken back", async () => {
  await view(page, "configuration");
  await page.click("text=Apply another one");
  const text = await page.inputValue("#configuration");
  await page.fill("#configuration", `${text.replace("hosts = []", "")}\n[[hosts]]\nnqn = "nqn.2014-08.org.example:added"\n`);
  await page.click("text=Apply …");
  assert.match(await apply(page), /added/);
  const exported = () => rig.ebof("config", "export", "--control", rig.control);
  assert.match(await exported(), /example:added/);
  // It differs from the file now, and the page says so.
  await page.waitForSelector("text=differs");

  // A text that is wrong is refused with its line, and not sent.
  await page.waitForFunction(() => document.querySelector("#configuration").value.includes("example:added"));
  await page.fill("#configuration", "[[hosts]]\nnqn = 7\n");
  await page.click("text=Apply …");
  await page.waitForSelector("dialog .failure");
  assert.match(await page.locator("dialog .failure").innerText(), /:2:/);
  await page.keyboard.press("Escape");

  const back = page.locator("[aria-label='Stored configurations'] tbody tr").nth(1);
  assert.match(await back.innerText(), /\d/);
  await back.locator("button").click();
  assert.match(await apply(page), /added/);
  assert.doesNotMatch(await exported(), /example:added/);
  // What was typed is still there, and not lost to the other one.
  await page.waitForSelector("text=Another configuration was put in force meanwhile.");
  assert.match(await page.inputValue("#configuration"), /^\[\[hosts\]\]\nnqn = 7/);
  await page.click("text=Begin anew with it");
  assert.match(await page.inputValue("#configuration"), /\[target\]/);
});

test("accounts are created, get another role, and are deleted; a role that may not is refused", async () => {
  const operator = { UserName: "operator1", Password: "one more password 7" };
  await view(page, "accounts");
  await page.fill("[name=username]", operator.UserName);
  await page.fill("form:has([name=username]) [type=password]", operator.Password);
  await page.selectOption("[name=role]", "Operator");
  await page.click("text=Create …");
  assert.ok(!(await page.locator("dialog").innerText()).includes(operator.Password), "it is not shown");
  await apply(page);
  const account = page.locator("[aria-label=Accounts] tbody tr", { hasText: operator.UserName });
  await account.waitFor();

  // An operator changes what is served, and not who may.
  const other = await open(browser, rig.url);
  await login(other, operator.UserName, operator.Password);
  await shown(other);
  assert.equal(await other.locator("nav >> text=Certificates").count(), 0);
  await view(other, "accounts");
  await other.waitForSelector("[aria-label=Accounts] tbody tr");
  assert.equal(await other.locator("text=Create …").count(), 0);
  assert.equal(await other.locator("main .bad").count(), 0, await other.locator("main").innerText());
  await view(other, "configuration");
  await other.waitForSelector("pre");
  assert.equal(await other.locator("text=Apply another one").count(), 0);
  await view(other, "drives");
  await other.waitForSelector("[data-row=d0]");
  assert.equal(await other.locator("text=Add a drive").count(), 0);

  await account.locator("select").selectOption("ReadOnly");
  await apply(page);
  await page.waitForFunction((name) => document.querySelector(`select[aria-label="Role of ${name}"]`)?.value === "ReadOnly", operator.UserName);
  const token = await rig.session(operator.UserName, operator.Password);
  const weight = { Oem: { Ebof: { Weight: 3 } } };
  const refused = await rig.fetch("PATCH", "/redfish/v1/Storage/d0/Controllers/vf1", weight, { "X-Auth-Token": token });
  assert.equal(refused.status, 403);
  await page.fill("[name=reset-password]", "yet another password 8");
  await page.click("text=Reset …");
  await apply(page);
  await assert.rejects(rig.session(operator.UserName, operator.Password), /401/);
  const { body } = await rig.login(operator.UserName, "yet another password 8");
  assert.match(JSON.stringify(body), /PasswordChangeRequired/);

  await page.click(`[aria-label='Delete ${operator.UserName}']`);
  await apply(page);
  await account.waitFor({ state: "detached" });
  await assert.rejects(rig.session(operator.UserName, operator.Password), /401/);
  // Its session is over, and the page says so.
  await other.waitForSelector("[name=username]", { timeout: 70_000 });
  await other.context().close();
});

test("slow commands tell where their time went", async () => {
  const controller = "/redfish/v1/Storage/d0/Controllers/vf2";
  const volume = { CapacityBytes: 16 << 20, Links: { Controllers: [{ "@odata.id": controller }] } };
  assert.ok((await rig.call("POST", "/redfish/v1/Storage/d0/Volumes", volume)).status < 300);
  const created = await becomes("Storage/d0/Controllers/vf2", (one) => one.Links.AttachedVolumes.length > 0 && !one.Oem.Ebof.Task);
  await rig.ebof("target", "assign", "d0/vf2", "--port", "fabric0", "--control", rig.control);
  const nsid = created.Links.AttachedVolumes[0]["@odata.id"].match(/\d+$/)[0];
  // Commands wait for their function's share: 4 at a time, 20 a second.
  await rig.call("PATCH", controller, { Oem: { Ebof: { IOPSLimit: 20 } } });
  const load = rig.load("d0", 0, "vf2", nsid);
  await view(page, "slow");
  const rows = page.locator("[aria-label='Slow commands'] tbody tr");
  await rows.first().waitFor({ timeout: 20_000 });
  await load.stop();
  const first = await rows.first().innerText();
  assert.match(first, new RegExp(`read of 4\\.10 kB, d0/vf2 namespace ${nsid}`));
  assert.match(first, /queue [\d.]+ ms/);
  assert.match(await page.locator("[aria-label='Slow commands by function']").innerText(), /d0\/vf2/);
  const { slow } = JSON.parse(await rig.ebof("target", "slow", "-o", "json", "--control", rig.control));
  assert.ok(slow.commands.length > 0 && slow.commands.every((one) => one.parts.queue_us > one.parts.device_us));
  await page.click("text=Read again");
  await page.waitForFunction((total) => document.querySelector("main").innerText.includes(`${total} commands have taken 100 ms or longer`), slow.total);
});

test("axe finds nothing where there is something to show", async () => {
  for (const [colorScheme, views] of [
    ["light", ["slow", "hosts", "configuration"]],
    ["dark", ["events", "tasks", "drives/d0"]],
  ]) {
    await page.emulateMedia({ colorScheme });
    for (const one of views) {
      await view(page, one);
      await page.locator("tbody tr").first().waitFor();
      await axe(page, `${one}, ${colorScheme}`);
    }
  }
});

test("a long table is searched and sorted, and shows what fits until all of it is wanted", async () => {
  for (let weight = 2; weight < 30; weight++) await rig.call("PATCH", "/redfish/v1/Storage/d0/Controllers/vf3", { Oem: { Ebof: { Weight: weight } } });
  await view(page, "tasks");
  const rows = page.locator("[aria-label=Tasks] tbody tr");
  await page.click("text=Show all");
  await page.waitForFunction(() => document.querySelectorAll("[aria-label=Tasks] tbody tr").length > 28);
  const all = await rows.count();
  await page.fill("[aria-label='Filter of Tasks']", "test d0");
  await page.waitForFunction((all) => document.querySelectorAll("[aria-label=Tasks] tbody tr").length < all, all);
  for (const text of await rows.allInnerTexts()) assert.match(text, /test[^]*d0/);
  await page.fill("[aria-label='Filter of Tasks']", "");
  await page.click("text=What");
  const names = await page.locator("[aria-label=Tasks] tbody td:nth-child(2)").allInnerTexts();
  assert.deepEqual(names, names.toSorted((a, b) => a.localeCompare(b, "en", { numeric: true })));
});

// The last one.
test("each change was listed as a call, without the passwords, and the console is silent", async () => {
  await view(page, "calls");
  const calls = await page.locator(".calls").innerText();
  for (const part of ["UpdateService/upload", "UpdateService.Activate", "EbofVolume.Format", "Drive.SecureErase", "EbofDrive.SelfTest"]) {
    assert.ok(calls.includes(part), part);
  }
  for (const part of ["EbofChassis.AddDrive", "EbofDrive.Remove", "EbofStorage.ResetDrive", "EbofConfiguration.Apply", "/Connections", "/Accounts"]) {
    assert.ok(calls.includes(part), part);
  }
  assert.doesNotMatch(calls, /one more password/);
  assert.deepEqual(page.errors, []);
});
