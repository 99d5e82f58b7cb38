// Document 003's story: namespaces are mapped to functions, functions given to ports and moved while
// a host uses them. By mouse, and again by keyboard alone.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { apply, carry, changePassword, drag, launch, login, node, open, shown, view } from "./browser.mjs";
import { PASSWORD, Rig } from "./rig.mjs";

let rig;
let browser;

before(async () => {
  rig = await Rig.start();
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await rig?.stop();
});

async function says(page, kind, name, text) {
  await page.waitForFunction(
    ([selector, wanted]) => document.querySelector(selector)?.textContent.includes(wanted),
    [`[data-node="${kind}:${name}"]`, text],
  );
}

async function createNamespace(page, drive, size) {
  await view(page, "namespaces");
  await page.selectOption("form select", drive);
  await page.fill("[name=size]", size);
  await page.click("form button[type=submit]");
  const plan = await apply(page);
  await page.waitForSelector(`[data-row="${drive}/ns1"]`);
  return plan;
}

test("the first password is changed before anything else", async () => {
  const page = await open(browser, rig.url);
  await login(page, "admin", rig.initialPassword);
  await page.waitForSelector("[name=new-password]");
  assert.equal(await page.locator("nav").count(), 0);
  // What is too short is refused, with the reason.
  await changePassword(page, "short");
  assert.match(await page.locator(".failure").innerText(), /\d+/);
  await changePassword(page, PASSWORD);
  await shown(page);
  assert.deepEqual(page.errors, []);
  await page.context().close();
});

for (const [name, put, drive] of [
  ["by mouse", drag, "d0"],
  ["by keyboard", carry, "d1"],
]) {
  test(`a namespace is mapped, a function given to a port and moved under load, ${name}`, async () => {
    const page = await open(browser, rig.url);
    await login(page, "admin", PASSWORD);
    await shown(page);
    await createNamespace(page, drive, "64Mi");
    await view(page, "box");
    const vf1 = node(page, "function", `${drive}/vf1`);

    await put(page, node(page, "namespace", `${drive}/ns1`), vf1);
    await page.waitForSelector("[data-test=plan]");
    assert.match(await page.locator("dialog .call code").innerText(), /curl .*AttachNamespaces/s);
    assert.match(await apply(page), new RegExp(`${drive}/ns1`));
    await says(page, "function", `${drive}/vf1`, "1 namespace");

    await put(page, vf1, node(page, "port", "fabric0"));
    assert.match(await apply(page), /fabric0/);
    await says(page, "function", `${drive}/vf1`, "at port fabric0");

    const load = rig.load(drive, 0, "vf1");
    await page.waitForSelector("[data-node^='host:']");
    await page.waitForFunction((key) => /\d/.test(document.querySelector(key)?.textContent ?? ""), `[data-node="function:${drive}/vf1"] .node-more`);

    // What has no host can be left out.
    const other = node(page, "function", `${drive}/vf2`);
    await page.click("text=Only connected");
    await other.waitFor({ state: "detached" });
    assert.ok(await vf1.isVisible());
    await page.click("text=Only connected");
    await other.waitFor();

    await put(page, vf1, node(page, "port", "fabric1"));
    const plan = await page.waitForSelector("[data-test=plan]").then((element) => element.innerText());
    assert.match(plan, /fabric1/);
    assert.match(plan, /Hosts that notice\s+nqn\./, "the connected host is named");
    await apply(page, { timeout: 60_000 });
    await says(page, "function", `${drive}/vf1`, "at port fabric1");
    await load.stop();

    const again = rig.load(drive, 1, "vf1");
    await charted(page, `${drive}/vf1`);
    await again.stop();
    assert.deepEqual(page.errors, []);
    await page.context().close();
  });
}

/** The charts of a function show what a host does now. */
async function charted(page, name) {
  await view(page, "charts/Functions");
  // What is busy comes first.
  await page.waitForFunction((name) => document.querySelector(".tools select")?.value === name, name);
  const row = page.locator("[data-test='chart Operations per second'] tbody tr").first();
  await page.waitForFunction(
    () => {
      const cell = document.querySelector("[data-test='chart Operations per second'] tbody td");
      return cell && /^[1-9]/.test(cell.textContent);
    },
    undefined,
    { timeout: 20_000 },
  );
  assert.match(await row.innerText(), /read/);
  await page.waitForFunction(() => {
    const cell = document.querySelector("[data-test='chart Latency'] tbody td");
    return cell && /µs|ms/.test(cell.textContent);
  });
  // All charts show the time of the cursor that is in one.
  await page.locator("[data-test='chart Bandwidth'] .u-over").hover();
  await page.locator("[data-test='chart Latency'] [data-test='cursor time']", { hasText: /at \d+:\d+/ }).waitFor();
}

test("a key right after a dialog has closed is not lost to the focus that it gives back", async () => {
  const page = await open(browser, rig.url);
  await login(page, "admin", PASSWORD);
  await shown(page);
  await node(page, "function", "d0/vf4").click();
  await page.click("text=Give …");
  await page.waitForSelector("[data-test=plan]");
  const focused = await page.evaluate(async () => {
    const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
    document.querySelector("dialog footer button").click();
    // As soon as anything else gets its turn.
    await pause(0);
    const from = document.querySelector('[data-node="function:d0/vf4"]');
    from.focus();
    from.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true }));
    await pause(300);
    return document.activeElement?.getAttribute("data-node") ?? document.activeElement?.outerHTML;
  });
  assert.match(focused, /^port:/);
  await page.context().close();
});

test("what is chosen in the panel looks for its target in the picture, which the panel does not cover", async () => {
  const page = await open(browser, rig.url, { viewport: { width: 700, height: 700 } });
  await login(page, "admin", PASSWORD);
  await shown(page);
  await node(page, "function", "d0/vf4").click();
  await page.click("text=Choose in the picture");
  await page.waitForFunction(() => document.activeElement?.getAttribute("data-node")?.startsWith("port:"));
  assert.ok(!(await page.locator(".details").isVisible()));
  await page.keyboard.press("Escape");
  assert.ok(await page.locator(".details").isVisible());
  assert.equal(await page.evaluate(() => document.activeElement?.getAttribute("data-node")), "function:d0/vf4");
  await page.context().close();
});

test("a finger drags by the handle, and scrolls elsewhere", async () => {
  const page = await open(browser, rig.url, { hasTouch: true });
  await login(page, "admin", PASSWORD);
  await shown(page);
  const touch = (from, to) =>
    page.evaluate(
      ([fromSelector, toSelector]) => {
        const [source, target] = [fromSelector, toSelector].map((one) => document.querySelector(one));
        const at = (element) => {
          const { x, y, width, height } = element.getBoundingClientRect();
          return { clientX: x + width / 2, clientY: y + height / 2 };
        };
        const send = (type, element, place) =>
          element.dispatchEvent(
            new PointerEvent(type, { bubbles: true, pointerId: 7, pointerType: "touch", isPrimary: true, button: 0, ...place }),
          );
        send("pointerdown", source, at(source.closest("button")));
        send("pointermove", document.body, at(target));
        send("pointerup", document.body, at(target));
      },
      [from, to],
    );
  await touch('[data-node="function:d0/vf4"]', '[data-node="port:fabric0"]');
  assert.equal(await page.locator("dialog").count(), 0);
  await touch('[data-node="function:d0/vf4"] [data-handle]', '[data-node="port:fabric0"]');
  await page.waitForSelector("[data-test=plan]");
  assert.match(await page.locator("dialog").innerText(), /d0\/vf4 to port fabric0/);
  await page.context().close();
});

test("what is not allowed says why, in the service's words", async () => {
  const page = await open(browser, rig.url);
  await login(page, "admin", PASSWORD);
  await shown(page);
  await drag(page, node(page, "namespace", "d1/ns1"), node(page, "function", "d0/vf2"));
  await page.waitForSelector("dialog .failure");
  assert.match(await page.locator("dialog .failure").innerText(), /d1|d0/);
  assert.equal(await page.locator("[data-test=apply]").count(), 0);
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog", { state: "detached" });
  await page.context().close();
});

test("each change is listed as a call that can be repeated", async () => {
  const page = await open(browser, rig.url);
  await login(page, "admin", PASSWORD);
  await shown(page);
  await node(page, "function", "d0/vf3").click();
  // The form has what somebody else sets meanwhile, and keeps it to the last digit.
  await rig.call("PATCH", "/redfish/v1/Storage/d0/Controllers/vf3", { Oem: { Ebof: { IOPSLimit: 12345 } } });
  await page.waitForFunction(() => [...document.querySelectorAll(".share input")].some((one) => one.value === "12345"));
  await page.fill(".share input >> nth=0", "7");
  await page.click(".share button[type=submit]");
  await apply(page);
  await view(page, "calls");
  const text = await page.locator(".calls").innerText();
  assert.match(text, /-X PATCH 'http:[^']*\/Controllers\/vf3'/);
  assert.match(text, /"Weight":7/);
  assert.doesNotMatch(text, new RegExp(PASSWORD));
  const body = await rig.call("GET", "/redfish/v1/Storage/d0/Controllers/vf3");
  assert.equal(body.body.Oem.Ebof.Weight, 7);
  assert.equal(body.body.Oem.Ebof.IOPSLimit, 12345);
  await page.context().close();
});

test("a namespace is deleted only after its name was typed", async () => {
  const page = await open(browser, rig.url);
  await login(page, "admin", PASSWORD);
  await shown(page);
  await view(page, "namespaces/d0%2Fns1");
  await page.click("text=Delete …");
  await page.waitForSelector("[name=confirm]");
  assert.ok(await page.locator("[data-test=apply]").isDisabled());
  await page.fill("[name=confirm]", "d0/ns2");
  assert.ok(await page.locator("[data-test=apply]").isDisabled());
  await apply(page, { confirm: "d0/ns1" });
  await page.waitForSelector("text=There is no namespace d0/ns1");
  assert.deepEqual(page.errors, []);
  await page.context().close();
});

