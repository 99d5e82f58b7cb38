//! The list of calls that the page made, and how each is repeated in a shell: whatever the page does
//! can be scripted.

import { signal } from "@preact/signals";
import { SESSIONS } from "./addresses";

/** The most calls that are remembered. */
const CALLS_MAX = 200;

export type Method = "GET" | "POST" | "PATCH" | "PUT" | "DELETE";

export interface Call {
  id: number;
  method: Method;
  uri: string;
  body: unknown;
  ifMatch: string | undefined;
  began: number;
  /** HTTP status; 0 while it runs, -1 without an answer. */
  status: number;
  tookMs: number;
}

export const calls = signal<Call[]>([]);

/** A body with a file: what is asked for, and the file itself. */
export class Upload {
  constructor(
    readonly parameters: object,
    readonly file: File,
  ) {}

  form(): FormData {
    const form = new FormData();
    form.append("UpdateParameters", new Blob([JSON.stringify(this.parameters)], { type: "application/json" }));
    form.append("UpdateFile", this.file, this.file.name);
    return form;
  }
}

let nextCall = 1;

/** A call that begins. Reads that the page makes by itself are not listed. */
export function begun(method: Method, uri: string, body: unknown, ifMatch: string | undefined, quiet: boolean): Call {
  const call: Call = {
    id: nextCall++,
    method,
    uri,
    body: hidden(body),
    ifMatch,
    began: Date.now(),
    status: 0,
    tookMs: 0,
  };
  if (!quiet) calls.value = [...calls.value.slice(1 - CALLS_MAX), call];
  return call;
}

/** Passwords and keys are not shown again, wherever they are in a body. */
function hidden(body: unknown): unknown {
  if (body === null || typeof body !== "object" || Array.isArray(body) || body instanceof Upload) return body;
  const isSecret = (key: string, value: unknown) =>
    key === "Password" || key === "KeyString" || (typeof value === "string" && value.includes("PRIVATE KEY"));
  return Object.fromEntries(Object.entries(body).map(([key, value]) => [key, isSecret(key, value) ? "…" : hidden(value)]));
}

export function ended(call: Call, status: number): void {
  call.status = status;
  call.tookMs = Date.now() - call.began;
  if (calls.value.includes(call)) calls.value = calls.value.slice();
}

/** A call as a command for a shell. `$TOKEN` is left for the user to set. */
export function curl(call: { method: Method; uri: string; body?: unknown; ifMatch?: string | undefined }): string {
  const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;
  const url = call.uri.startsWith("/") ? location.origin + call.uri : call.uri;
  const words = ["curl -k", call.method === "GET" ? "" : `-X ${call.method}`, quoted(url)];
  // A login is what gives the token.
  if (call.uri !== SESSIONS) words.push('-H "X-Auth-Token: $TOKEN"');
  if (call.ifMatch) words.push("-H", quoted(`If-Match: ${call.ifMatch}`));
  if (call.body instanceof Upload) {
    const { parameters, file } = call.body;
    words.push("-F", quoted(`UpdateParameters=${JSON.stringify(parameters)};type=application/json`));
    words.push("-F", quoted(`UpdateFile=@${file.name};type=application/octet-stream`));
  } else if (call.body !== undefined) {
    words.push("-H 'Content-Type: application/json'", "-d", quoted(JSON.stringify(hidden(call.body))));
  }
  return words.filter(Boolean).join(" ");
}
