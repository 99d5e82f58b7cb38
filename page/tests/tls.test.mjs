// The page over HTTPS, with the certificate that the target has made itself, and with another one.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { connect } from "node:tls";
import { apply, changePassword, drag, launch, login, node, open, shown, view } from "./browser.mjs";
import { PASSWORD, Rig } from "./rig.mjs";

let rig;
let browser;
let page;

before(async () => {
  rig = await Rig.start({ drives: ["d0"], tls: true });
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await rig?.stop();
});

/** The certificate that a new connection is shown. */
async function served() {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: "127.0.0.1", port: rig.port, rejectUnauthorized: false }, () => {
      resolve({ ...socket.getPeerCertificate(), protocol: socket.getProtocol() });
      socket.destroy();
    });
    socket.once("error", reject);
  });
}

test("the first login and a change, with headers that browsers want, and without a cookie", async () => {
  const answers = [];
  page = await open(browser, rig.url);
  page.on("response", (response) => answers.push(response));
  const document = await page.reload();
  await login(page, "admin", rig.initialPassword);
  await changePassword(page, PASSWORD);
  await shown(page);
  await drag(page, node(page, "function", "d0/vf1"), node(page, "port", "fabric0"));
  assert.match(await page.locator("dialog .call code").innerText(), /^curl -k -X POST 'https:/);
  assert.match(await apply(page), /fabric0/);
  const one = await rig.call("GET", "/redfish/v1/Storage/d0/Controllers/vf1");
  assert.equal(one.body.Oem.Ebof.Port, "fabric0");

  const headers = await document.allHeaders();
  assert.match(headers["content-security-policy"], /default-src 'none'.*script-src 'self'.*frame-ancestors 'none'/);
  assert.ok(!/unsafe/.test(headers["content-security-policy"]));
  const kinds = new Set();
  for (const answer of answers) {
    const url = new URL(answer.url());
    const own = await answer.allHeaders();
    const api = url.pathname.startsWith("/redfish");
    kinds.add(api);
    assert.equal(own["x-content-type-options"], "nosniff", url.pathname);
    assert.equal(own["x-frame-options"], "DENY", url.pathname);
    assert.equal(own["referrer-policy"], "no-referrer", url.pathname);
    if (api) assert.match(own["cache-control"], /no-store|no-cache/, url.pathname);
    assert.equal(own["set-cookie"], undefined, url.pathname);
    // A browser that has been told so would not let its user pass a certificate that it does not
    // know, at any port of the machine.
    assert.equal(own["strict-transport-security"], undefined, url.pathname);
  }
  assert.equal(kinds.size, 2, "files and answers of the service");
  assert.deepEqual(await page.context().cookies(), []);
  const { protocol, fingerprint256 } = await served();
  assert.equal(protocol, "TLSv1.3");
  assert.ok(rig.output.replaceAll(":", "").toUpperCase().includes(fingerprint256.replaceAll(":", "")), rig.output);
  assert.deepEqual(page.errors, []);
});

/** A certificate authority of its own, which signs a request; the certificate and its issuer's. */
function signed(request) {
  const at = (name) => join(rig.directory, name);
  const openssl = (...args) => {
    const { status, stderr } = spawnSync("openssl", args, { encoding: "utf8" });
    assert.equal(status, 0, `openssl ${args.join(" ")}: ${stderr}`);
  };
  writeFileSync(at("server.csr"), request);
  const name = ["-subj", "/CN=authority of the test", "-days", "2"];
  openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", at("ca.key"), "-out", at("ca.pem"), ...name);
  const by = ["-CA", at("ca.pem"), "-CAkey", at("ca.key"), "-CAcreateserial", "-copy_extensions", "copyall", "-days", "2"];
  openssl("x509", "-req", "-in", at("server.csr"), ...by, "-out", at("server.pem"));
  return { certificate: readFileSync(at("server.pem"), "utf8"), issuer: readFileSync(at("ca.pem"), "utf8") };
}

const hasOpenssl = spawnSync("openssl", ["version"]).status === 0;

test("a certificate is requested, signed elsewhere and replaced", { skip: hasOpenssl ? false : "there is no openssl" }, async () => {
  await view(page, "certificates");
  const before = await served();
  await page.waitForFunction((text) => document.querySelector("main").innerText.replaceAll(":", "").toUpperCase().includes(text), before.fingerprint256.replaceAll(":", ""));
  await page.fill("[name=server]", "box.example.org");
  await page.click("text=Make …");
  await apply(page);
  const request = await page.locator("[aria-label='request for a certificate']").innerText();
  assert.match(request, /BEGIN CERTIFICATE REQUEST/);
  const { certificate, issuer } = signed(request);

  // That of somebody else is refused, and the present one stays.
  await page.fill("#certificate", issuer);
  await page.click("text=Replace …");
  await assert.rejects(apply(page), /key/);
  await page.keyboard.press("Escape");
  assert.equal((await served()).fingerprint256, before.fingerprint256);

  await page.fill("#certificate", `${certificate}${issuer}`);
  await page.click("text=Replace …");
  await apply(page);
  const now = await served();
  assert.equal(now.subject.CN, "box.example.org");
  assert.equal(now.issuer.CN, "authority of the test");
  assert.match(now.subjectaltname, /DNS:box\.example\.org/);
  // New connections of the page, too.
  await page.waitForFunction(() => document.querySelector("main").innerText.includes("authority of the test"));
  const again = await open(browser, rig.url);
  await login(again, "admin", PASSWORD);
  await shown(again);
  assert.deepEqual([...page.errors, ...again.errors], []);
});
