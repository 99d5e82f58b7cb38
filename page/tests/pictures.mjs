// Makes docs/page-box.png and docs/page-charts.png: a box with traffic, in the page as it is.

import { statSync } from "node:fs";
import { launch, login, node, open, shown, view } from "./browser.mjs";
import { PASSWORD, Rig } from "./rig.mjs";

const DOCS = new URL("../../docs/", import.meta.url).pathname;
const BYTES_MAX = 150_000;
/** So long the charts show traffic. */
const TRAFFIC_MS = 75_000;

const ref = (uri) => ({ "@odata.id": uri });
const rig = await Rig.start({ drives: ["d0", "d1"] });
const browser = await launch();
const loads = [];
try {
  await rig.settle();
  await fill();
  const page = await open(browser, rig.url, { viewport: { width: 1280, height: 700 } });
  await login(page, "admin", PASSWORD);
  await shown(page);
  await page.waitForTimeout(TRAFFIC_MS);
  await node(page, "function", "d0/vf2").click();
  await page.mouse.move(4, 4);
  await page.waitForTimeout(1500);
  await picture(page, "page-box.png");
  await view(page, "charts/Drives/d0");
  await page.check("input[value='1 min']");
  await page.waitForTimeout(2500);
  await picture(page, "page-charts.png");
} finally {
  await Promise.all(loads.map((load) => load.stop()));
  await browser.close();
  await rig.stop();
}

async function picture(page, name) {
  const path = DOCS + name;
  await page.screenshot({ path });
  const bytes = statSync(path).size;
  console.log(`${path}: ${bytes} bytes`);
  if (bytes > BYTES_MAX) throw new Error(`${name} is larger than ${BYTES_MAX} bytes`);
}

async function change(method, path, body) {
  const answer = await rig.call(method, path, body);
  if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
  const monitor = answer.status === 202 ? answer.headers.get("location") : undefined;
  for (;;) {
    if (!monitor) return;
    const task = await rig.call("GET", monitor);
    if (task.status >= 300) throw new Error(`${method} ${path}: ${JSON.stringify(task.body)}`);
    if (task.status !== 202) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** Namespaces for functions at both ports, weights, and hosts that use them. */
async function fill() {
  const at = { fabric0: [], fabric1: [] };
  for (const [drive, functions] of [
    ["d0", 4],
    ["d1", 2],
  ]) {
    for (let number = 1; number <= functions; number++) {
      const controller = `/redfish/v1/Storage/${drive}/Controllers/vf${number}`;
      await change("POST", `/redfish/v1/Storage/${drive}/Volumes`, { CapacityBytes: 16 << 20, Links: { Controllers: [ref(controller)] } });
      await change("PATCH", controller, { Oem: { Ebof: { Weight: number } } });
      at[`fabric${number % 2}`].push(ref(`/redfish/v1/Fabrics/NVMeoF/Endpoints/${drive}-vf${number}`));
    }
  }
  for (const [port, added] of Object.entries(at)) {
    const zone = `/redfish/v1/Fabrics/NVMeoF/Zones/${port}`;
    const now = (await rig.call("GET", zone)).body.Links.Endpoints;
    await change("PATCH", zone, { Links: { Endpoints: [...now, ...added] } });
  }
  for (const number of [1, 2, 3, 4]) loads.push(rig.load("d0", number % 2, `vf${number}`, number));
  loads.push(rig.load("d1", 1, "vf1", 1));
}
