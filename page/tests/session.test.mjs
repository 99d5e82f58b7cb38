// Who may use the page: refused logins, roles, sessions that end, and two browsers at once.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { apply, drag, launch, login, node, open, shown, view } from "./browser.mjs";
import { PASSWORD, Rig } from "./rig.mjs";

let rig;
let browser;

before(async () => {
  rig = await Rig.start({ drives: ["d0"] });
  await rig.settle();
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await rig?.stop();
});

async function enter(name = "admin", password = PASSWORD) {
  const page = await open(browser, rig.url);
  await login(page, name, password);
  return page;
}

async function atPort(page, name, port) {
  await page.waitForFunction(
    ([selector, wanted]) => document.querySelector(selector)?.textContent.includes(wanted),
    [`[data-node="function:${name}"]`, `at port ${port}`],
  );
}

test("two browsers see each other's changes, and an outdated plan is refused", async () => {
  const [first, second] = [await enter(), await enter()];
  await Promise.all([shown(first), shown(second)]);
  await drag(first, node(first, "function", "d0/vf1"), node(first, "port", "fabric0"));
  await apply(first);
  await atPort(second, "d0/vf1", "fabric0");

  // What others do to the same port is no conflict: both changes are made.
  await drag(second, node(second, "function", "d0/vf2"), node(second, "port", "fabric0"));
  await second.waitForSelector("[data-test=plan]");
  await drag(first, node(first, "function", "d0/vf3"), node(first, "port", "fabric0"));
  await apply(first);
  await apply(second);
  await Promise.all([atPort(first, "d0/vf2", "fabric0"), atPort(second, "d0/vf3", "fabric0")]);

  // The plan of one function is another one after it was given to a port.
  await drag(second, node(second, "function", "d0/vf4"), node(second, "port", "fabric0"));
  await second.waitForSelector("[data-test=plan]");
  await drag(first, node(first, "function", "d0/vf4"), node(first, "port", "fabric1"));
  await apply(first);
  await assert.rejects(apply(second), /plan|changed/i);
  await second.keyboard.press("Escape");
  await atPort(second, "d0/vf4", "fabric1");
  // Another look, and it is possible.
  await drag(second, node(second, "function", "d0/vf4"), node(second, "port", "fabric0"));
  await apply(second);
  await atPort(first, "d0/vf4", "fabric0");
  assert.deepEqual([...first.errors, ...second.errors], []);
  await first.context().close();
  await second.context().close();
});

test("who may only look is told so", async () => {
  const created = await rig.call("POST", "/redfish/v1/AccountService/Accounts", {
    UserName: "watcher",
    Password: PASSWORD,
    RoleId: "ReadOnly",
  });
  assert.equal(created.status, 201, JSON.stringify(created.body));
  const page = await enter("watcher");
  await shown(page);
  await drag(page, node(page, "function", "d0/vf4"), node(page, "port", "fabric1"));
  await page.waitForSelector("dialog");
  await page.waitForFunction(() => /ReadOnly|privilege|role/i.test(document.querySelector("dialog").textContent));
  await page.waitForSelector("dialog .failure, dialog [data-test=plan]");
  assert.equal(await page.locator("[data-test=apply]:enabled").count(), 0);
  await page.keyboard.press("Escape");
  await view(page, "namespaces");
  assert.equal(await page.locator("form").count(), 0);
  await page.context().close();
});

test("a session that ends leads back to the login, with the reason", async () => {
  const page = await enter();
  await shown(page);
  const session = await page.evaluate(() => JSON.parse(sessionStorage.getItem("ebof-user")).session);
  const ended = await rig.call("DELETE", session);
  assert.ok(ended.status < 300, String(ended.status));
  await page.waitForSelector("[name=username]", { timeout: 70_000 });
  assert.match(await page.locator("main").innerText(), /session has ended/i);
  assert.equal(await page.evaluate(() => sessionStorage.getItem("ebof-token")), null);
  await page.context().close();
});

test("logging out ends the session at the service", async () => {
  const page = await enter();
  await shown(page);
  const token = await page.evaluate(() => sessionStorage.getItem("ebof-token"));
  await page.click("text=Log out");
  await page.waitForSelector("[name=username]");
  const answer = await rig.fetch("GET", "/redfish/v1/Storage", undefined, { "X-Auth-Token": token });
  assert.equal(answer.status, 401);
  await page.context().close();
});

// The last one: afterwards this address has to wait.
test("a refused login says why, and how long to wait", async () => {
  const page = await open(browser, rig.url);
  await login(page, "admin", "not the password");
  await page.waitForSelector(".failure");
  assert.ok((await page.locator(".failure").innerText()).length > 10);
  // At once, because a short wait is soon over.
  const state = () =>
    page.evaluate(() => ({
      wait: document.querySelector("[data-test=wait]")?.textContent ?? "",
      disabled: document.querySelector("button[type=submit]").disabled,
    }));
  let now = await state();
  for (let attempt = 0; attempt < 20 && !now.wait; attempt++) {
    await login(page, "admin", `not the password ${attempt}`);
    await page.waitForFunction(() => !document.querySelector("[aria-busy=true]"));
    now = await state();
  }
  assert.match(now.wait, /\d+ s/);
  assert.ok(now.disabled);
  assert.deepEqual(page.errors, []);
  await page.context().close();
});
