// The target is killed and comes back; the stream of events is slow, or silent.

import assert from "node:assert/strict";
import { createServer, request } from "node:http";
import { after, before, test } from "node:test";
import { apply, drag, launch, login, node, open, shown } from "./browser.mjs";
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

test("the target is killed and comes back", async () => {
  const page = await open(browser, rig.url);
  await login(page, "admin", PASSWORD);
  await shown(page);
  await rig.kill();
  await page.waitForSelector(".trouble");
  assert.equal(await page.locator("[data-test=stream]").innerText(), "reconnecting …");
  // What was there can still be looked at.
  assert.ok(await node(page, "function", "d0/vf1").isVisible());
  await rig.run();
  // Sessions live in the target: it asks for a login again, by itself.
  await page.waitForSelector("[name=username], [data-test=stream].good", { timeout: 30_000 });
  if (await page.locator("[name=username]").count()) await login(page, "admin", PASSWORD);
  await shown(page);
  await page.waitForSelector("[data-test=stream].good");
  assert.equal(await page.locator(".trouble").count(), 0);
  assert.deepEqual(page.errors, []);
  await page.context().close();
});

/** A proxy before the target that lets the event stream through a few bytes at a time. */
async function slowly(bytes, everyMs) {
  const server = createServer((from, to) => {
    const { port } = new URL(rig.url);
    const onward = request({ host: "127.0.0.1", port, method: from.method, path: from.url, headers: from.headers }, (answer) => {
      to.writeHead(answer.statusCode, answer.headers);
      if (!from.url.includes("/SSE")) return void answer.pipe(to);
      const waiting = [];
      answer.on("data", (chunk) => waiting.push(...chunk));
      const timer = setInterval(() => {
        if (waiting.length) to.write(Buffer.from(waiting.splice(0, bytes)));
      }, everyMs);
      to.on("close", () => {
        clearInterval(timer);
        answer.destroy();
      });
      return undefined;
    });
    onward.on("error", () => to.destroy());
    from.pipe(onward);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return server;
}

test("with a slow stream of events everything can be done, and nothing is lost", async () => {
  const server = await slowly(7, 20);
  const page = await open(browser, `http://127.0.0.1:${server.address().port}`);
  await login(page, "admin", PASSWORD);
  await shown(page);
  await page.waitForSelector("[data-test=stream].good");
  await drag(page, node(page, "function", "d0/vf1"), node(page, "port", "fabric0"));
  await apply(page);
  await page.waitForFunction(() => document.querySelector('[data-node="function:d0/vf1"]').textContent.includes("at port fabric0"));
  // A change by somebody else arrives, letters split anywhere.
  const uri = "/redfish/v1/Fabrics/NVMeoF/Zones/fabric0";
  const { Endpoints } = (await rig.call("GET", uri)).body.Links;
  const others = Endpoints.filter((one) => !one["@odata.id"].endsWith("-vf1"));
  assert.equal(others.length, Endpoints.length - 1);
  const answer = await rig.call("PATCH", uri, { Links: { Endpoints: others } });
  assert.ok(answer.status < 300, JSON.stringify(answer.body));
  await page.waitForFunction(() => document.querySelector('[data-node="function:d0/vf1"]').textContent.includes("at no port"), undefined, { timeout: 30_000 });
  assert.deepEqual(page.errors, []);
  await page.context().close();
  server.closeAllConnections();
  server.close();
});
