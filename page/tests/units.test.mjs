// Parts of the page that need neither a browser nor a target.

import assert from "node:assert/strict";
import { build } from "esbuild";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

// The sources look for a session when they are loaded.
globalThis.sessionStorage = { getItem: () => null };

/** A module of the page's sources. */
async function load(path) {
  const { outputFiles } = await build({
    entryPoints: [new URL(`../src/${path}`, import.meta.url).pathname],
    bundle: true,
    format: "esm",
    write: false,
    jsx: "automatic",
    jsxImportSource: "preact",
  });
  return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);
}

test("a stream of events is the same wherever it is split", async () => {
  const { Parser } = await load("api/sse.ts");
  for (const end of ["\n", "\r\n", "\r"]) {
    const text = [": a comment", "id: 7", 'data: {"a":1,', 'data: "b":2}', "", "retry: 10", "data:x", "", "data: not whole"].join(end);
    for (let at = 0; at <= text.length; at++) {
      const parser = new Parser();
      const messages = [...parser.push(text.slice(0, at)), ...parser.push(text.slice(at))];
      assert.deepEqual(messages, ['{"a":1,\n"b":2}', "x"], `${JSON.stringify(end)} at ${at}`);
      assert.equal(parser.lastId, "7");
    }
  }
});

test("a message that does not end is given up", async () => {
  const { Parser } = await load("api/sse.ts");
  const parser = new Parser();
  for (const end of ["", "\n"]) {
    const piece = "data: ".padEnd(1 << 20, "x") + end;
    assert.throws(() => {
      for (let pieces = 0; pieces < 64; pieces++) parser.push(piece);
    }, /too long/);
  }
});

test("sizes are read as people write them", async () => {
  const { parseBytes, parseCount, bytes, latency, short } = await load("ui/format.ts");
  for (const [text, value] of [
    ["100G", 100e9],
    ["2.5 TB", 2.5e12],
    ["64Mi", 64 << 20],
    ["4096", 4096],
    ["1 k", 1000],
    ["", undefined],
    ["-1", undefined],
    ["10X", undefined],
    ["1e3", undefined],
    ["99999999P", undefined],
  ]) {
    assert.equal(parseBytes(text), value, text);
  }
  assert.equal(parseCount("50k"), 50_000);
  assert.equal(parseCount("50ki"), undefined);
  for (const [value, text] of [
    [0, "0"],
    [50_000, "50k"],
    [12_345, "12345"],
    [1e9, "1G"],
    [1_500_000, "1500k"],
    [4e15, "4P"],
  ]) {
    assert.equal(short(value), text);
    assert.equal(parseCount(text), value);
  }
  assert.equal(bytes(1e12), "1.00 TB");
  assert.equal(bytes(999_999_999_999), "1.00 TB");
  assert.equal(latency(999.6), "1000 µs");
  assert.equal(latency(1500), "1.50 ms");
});

const fn = (drive, number, more = {}) => ({
  name: `${drive}/vf${number}`,
  uri: `/redfish/v1/Storage/${drive}/Controllers/vf${number}`,
  short: `vf${number}`,
  drive,
  hosts: [],
  ...more,
});

function boxOf(drives) {
  const ports = ["fabric0", "fabric1"].map((name) => ({ name, endpoints: [], zone: "/redfish/v1/Fabrics/NVMeoF/Zones/x" }));
  const views = Array.from({ length: drives }, (_, at) => {
    const name = `d${at}`;
    const functions = [1, 2, 3, 4, 5].map((number) => fn(name, number, number === 1 ? { port: "fabric0" } : {}));
    const namespaces = [{ name: `${name}/ns1`, uri: `${name}/ns1`, functions: [functions[0].uri] }];
    return { name, nqn: "", functions, namespaces };
  });
  return { box: { drives: views, ports, hosts: [] }, views };
}

test("nodes of the picture do not overlap, and stay within its width", async () => {
  const { layOut } = await load("picture/layout.ts");
  for (const [drives, open, width] of [
    [1, true, 344],
    [2, true, 690],
    [16, false, 1600],
    [16, true, 2200],
  ]) {
    const { box, views } = boxOf(drives);
    const layout = layOut(box, views, () => open, width);
    for (const one of layout.nodes) {
      assert.ok(one.x >= 0 && one.x + one.width <= width, `${one.key} ends at ${one.x + one.width} of ${width}`);
      for (const other of layout.nodes) {
        if (other === one || other.column !== one.column) continue;
        assert.ok(other.y >= one.y + one.height || one.y >= other.y + other.height, `${one.key} and ${other.key} overlap`);
      }
    }
    const named = (key) => layout.edges.some((edge) => edge.key === key);
    if (open) assert.ok(named("port:fabric0>function:d0/vf1") && named("function:d0/vf1>namespace:d0/ns1"));
    else assert.ok(named("port:fabric0>functions:d0") && named("functions:d0>namespaces:d0") && named("namespaces:d0>drive:d0"));
  }
});

test("ports stay where they are when a function moves", async () => {
  const { layOut } = await load("picture/layout.ts");
  const places = (port) => {
    const { box, views } = boxOf(2);
    views[1].functions[3].port = port;
    return layOut(box, views, () => true, 1000).nodes.filter((node) => node.kind === "port").map((node) => node.y);
  };
  assert.deepEqual(places("fabric0"), places("fabric1"));
});

test("keys have the form and the checksum of nvme-cli", async () => {
  const { crc32, keyText, generateKey } = await load("model/keys.ts");
  assert.equal(crc32(new TextEncoder().encode("123456789")), 0xcbf43926);
  const bytes = Uint8Array.from({ length: 32 }, (_, at) => at);
  // What `nvme gen-dhchap-key` and `nvme gen-tls-key` print of these bytes.
  assert.equal(keyText("DHCHAP", 1, bytes), "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:");
  assert.equal(keyText("TLS", 1, bytes), "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:");
  for (const [kind, hash, length] of [["DHCHAP", 1, 32], ["DHCHAPController", 3, 64], ["TLS", 2, 48]]) {
    const [one, other] = [generateKey(kind, hash), generateKey(kind, hash)];
    assert.notEqual(one, other);
    const decoded = Buffer.from(one.split(":")[2], "base64");
    assert.equal(decoded.length, length + 4);
    assert.equal(decoded.readUInt32LE(length), crc32(decoded.subarray(0, length)));
  }
});

test("no call is remembered with a key, wherever that is in its body", async () => {
  globalThis.location ??= { origin: "https://127.0.0.1" };
  const { begun, curl } = await load("api/calls.ts");
  const key = { KeyString: "SECRET", NVMeoF: { NQN: "nqn.x" } };
  for (const body of [key, { Method: "POST", Body: key }, { Password: "SECRET" }]) {
    const call = begun("POST", "/redfish/v1/KeyService/NVMeoFSecrets", body, undefined, false);
    assert.doesNotMatch(JSON.stringify(call) + curl({ method: "POST", uri: "/x", body }), /SECRET/);
  }
});

/** The texts of a source that name a verb of the command line, without comments and tests. */
function namingVerbs(path) {
  const code = readFileSync(path, "utf8").split("#[cfg(test)]")[0].replace(/^\s*\/\/.*$/gm, "").replace(/\\\n\s*/g, "");
  return [...code.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, text]) => text).filter((text) => /`ebof target|\(--/.test(text));
}

test("advice of the service has no command line in it where the page shows it", async () => {
  const { inPageWords } = await load("api/advice.ts");
  assert.equal(inPageWords("take that from it (`ebof target assign d0/vf1 --none`), or choose another port"), "take that from it, or choose another port");
  assert.equal(inPageWords("`ebof target tasks 7 --wait` waits for its end"), "wait for its end, which Tasks shows");
  const crates = new URL("../../crates/", import.meta.url).pathname;
  const files = ["manage/src/enclosure", "manage/src/enclosure/check", "manage/src/edit", "server/src/enclosure", "server/src/life/keys"].flatMap((directory) =>
    readdirSync(crates + directory)
      .filter((name) => name.endsWith(".rs") && name !== "tests.rs")
      .map((name) => join(crates, directory, name)),
  );
  const texts = files.flatMap(namingVerbs);
  assert.ok(texts.length > 15, `${texts.length} texts were found`);
  for (const text of texts) assert.doesNotMatch(inPageWords(text), /`ebof|--[a-z]/, text);
});
