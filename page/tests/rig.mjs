// A target for tests: the real program with a box in memory, at ports of its own, in a directory of
// its own; and clients of it that are not the page.

import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { request as overPlain } from "node:http";
import { request as overTls } from "node:https";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const target = process.env.CARGO_TARGET_DIR ?? new URL("../../target", import.meta.url).pathname;
export const EBOF = process.env.EBOF ?? join(target, "debug/ebof");
export const hasProgram = existsSync(EBOF);

export const PASSWORD = "a better password 1";
const NQN = "nqn.2014-08.org.example:box";
/** How long the target may take to start, and to do what a test waits for. */
const START_MS = 20_000;

export async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

function configuration(directory, drives, ports) {
  const text = [`[target]\ncontrol = "${join(directory, "control.sock")}"\n`];
  for (const [name, listen] of Object.entries(ports)) text.push(`[[ports]]\nname = "${name}"\nlisten = "${listen}"\n`);
  for (const name of drives) {
    text.push(`[[drives]]\nname = "${name}"\nbacking = "mem:256Mi"\nfunctions = 5\n`);
    text.push(`[[subsystems]]\nnqn = "${NQN}:${name}"\ndrive = "${name}"\nallow_any_host = true\nports = ["fabric0", "fabric1"]\n`);
  }
  return text.join("\n");
}

export class Rig {
  static async start({ drives = ["d0", "d1"], tls = false, more = {} } = {}) {
    const rig = new Rig();
    rig.directory = mkdtempSync(join(tmpdir(), "ebof-page-"));
    rig.fabric = [await freePort(), await freePort()];
    rig.port = await freePort();
    rig.tls = tls;
    rig.url = `${tls ? "https" : "http"}://127.0.0.1:${rig.port}`;
    const ports = {
      fabric0: `tcp://127.0.0.1:${rig.fabric[0]}`,
      fabric1: `tcp://127.0.0.1:${rig.fabric[1]}`,
      direct1: `vfio-user:${join(rig.directory, "direct1.sock")}`,
      ...more,
    };
    rig.config = join(rig.directory, "ebof.toml");
    writeFileSync(rig.config, configuration(rig.directory, drives, ports));
    await rig.run();
    return rig;
  }

  async run() {
    const listen = [this.tls ? "--https" : "--http", `127.0.0.1:${this.port}`];
    this.child = spawn(EBOF, ["serve", "--config", this.config, ...listen], {
      env: { ...process.env, STATE_DIRECTORY: this.directory, EBOF_LOG: "warn" },
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.output = "";
    const ready = new Promise((resolve, reject) => {
      const read = (chunk) => {
        this.output += chunk;
        if (/^managed at /m.test(this.output)) resolve();
      };
      this.child.stdout.on("data", read);
      this.child.stderr.on("data", read);
      this.child.once("exit", (code) => reject(new Error(`the target ended (${code}):\n${this.output}`)));
      setTimeout(() => reject(new Error(`the target does not start:\n${this.output}`)), START_MS).unref();
    });
    await ready;
  }

  /** As a crash does. */
  async kill() {
    const gone = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.kill("SIGKILL");
    await gone;
  }

  async stop() {
    if (this.child.exitCode === null && this.child.signalCode === null) await this.kill();
    rmSync(this.directory, { recursive: true, force: true });
  }

  get control() {
    return join(this.directory, "control.sock");
  }

  get initialPassword() {
    const lines = readFileSync(join(this.directory, "initial-password"), "utf8").trim().split("\n");
    return lines.at(-1);
  }

  /** A request by another client than the page, with a session of its own. */
  async call(method, path, body) {
    this.token ??= await this.session("admin", PASSWORD);
    return this.fetch(method, path, body, { "X-Auth-Token": this.token });
  }

  async fetch(method, path, body, headers = {}) {
    const send = this.tls ? overTls : overPlain;
    const text = body === undefined ? undefined : JSON.stringify(body);
    const length = text === undefined ? {} : { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(text) };
    // The certificate is the target's own.
    const options = { method, headers: { ...length, ...headers }, agent: false, rejectUnauthorized: false };
    const response = await new Promise((resolve, reject) => {
      send(this.url + path, options, resolve).once("error", reject).end(text);
    });
    const parts = [];
    for await (const part of response) parts.push(part);
    const answer = Buffer.concat(parts).toString();
    return { status: response.statusCode, headers: new Headers(response.headers), body: answer ? JSON.parse(answer) : undefined };
  }

  async login(name, password) {
    const answer = await this.fetch("POST", "/redfish/v1/SessionService/Sessions", { UserName: name, Password: password });
    const token = answer.headers.get("x-auth-token");
    if (!token) throw new Error(`no session for ${name}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return { token, body: answer.body };
  }

  async session(name, password) {
    return (await this.login(name, password)).token;
  }

  /** The first password is changed, as the page does it in a test of its own. */
  async settle() {
    const { token, body } = await this.login("admin", this.initialPassword);
    const account = (body["@Message.ExtendedInfo"] ?? []).flatMap((message) => message.MessageArgs ?? [])[0];
    const answer = await this.fetch("PATCH", account, { Password: PASSWORD }, { "X-Auth-Token": token });
    if (answer.status >= 300) throw new Error(`the password is not changed: ${JSON.stringify(answer.body)}`);
  }

  /** Runs the program; its output if it succeeds. */
  async ebof(...args) {
    const child = spawn(EBOF, args, { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, STATE_DIRECTORY: this.directory } });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (output += chunk));
    const code = await new Promise((resolve) => child.once("exit", resolve));
    if (code !== 0) throw new Error(`ebof ${args.join(" ")}: ${output}`);
    return output;
  }

  uri(drive, port, func) {
    return `nvme+tcp://127.0.0.1:${this.fabric[port]}/${NQN}:${drive}${func ? `:${func}` : ""}`;
  }

  /** A namespace that an administrator's host makes, shared, and attached to nobody. */
  async createNamespace(drive, size) {
    await this.ebof("create-ns", this.uri(drive, 0), "-S", size, "-m", "1");
  }

  /** Reads from a function until it is stopped, as a host does. */
  load(drive, port, func, nsid = 1) {
    const what = ["--rw", "randread", "--bs", "4K", "--iodepth", "4", "--runtime", "120"];
    const args = ["bench", `${this.uri(drive, port, func)}/${nsid}`, ...what];
    const child = spawn(EBOF, args, { stdio: ["ignore", "pipe", "pipe"], env: process.env });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (output += chunk));
    const ended = new Promise((resolve) => child.once("exit", resolve));
    return {
      ended,
      output: () => output,
      async stop() {
        child.kill("SIGINT");
        await ended;
      },
    };
  }
}
