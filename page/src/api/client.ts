//! Requests to the Redfish service, their errors, and the list of calls that the page made. Sessions
//! are in session.ts; this file only holds the token.

import { signal } from "@preact/signals";
import type { Collection, ErrorBody, Message, Ref, Resource } from "./types";

export const ROOT = "/redfish/v1";
export const SESSIONS = `${ROOT}/SessionService/Sessions`;

/** The most calls that are remembered. */
const CALLS_MAX = 200;
/** Without an answer for so long, a request is given up. */
const TIMEOUT_MS = 30_000;

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

export interface Answer<T> {
  status: number;
  body: T;
  etag: string | undefined;
  location: string | undefined;
  retryAfterS: number | undefined;
  token: string | undefined;
}

export interface Options {
  ifMatch?: string | undefined;
  /** Reads that the page makes by itself are not listed. */
  quiet?: boolean;
}

/** What the service answered instead of what was asked for, in its own words. */
export class ServiceError extends Error {
  constructor(
    readonly status: number,
    readonly messages: Message[],
    readonly retryAfterS: number | undefined,
    fallback: string,
  ) {
    super(messages[0]?.Message || fallback);
  }

  get advice(): string {
    return this.messages.map((message) => message.Resolution ?? "").filter(Boolean).join(" ");
  }

  has(id: string): boolean {
    return this.messages.some((message) => message.MessageId?.endsWith(`.${id}`));
  }
}

export const calls = signal<Call[]>([]);
export const token = signal<string | null>(sessionStorage.getItem("ebof-token"));

/** Whether the last request reached the service. */
export const reachable = signal(true);

/** Called when the service no longer accepts the session, or demands another password. */
export const onRefused: { session: () => void; password: (error: ServiceError) => void } = {
  session: () => {},
  password: () => {},
};

export function setToken(value: string | null): void {
  token.value = value;
  if (value === null) sessionStorage.removeItem("ebof-token");
  else sessionStorage.setItem("ebof-token", value);
}

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

function listed(method: Method, uri: string, body: unknown, options: Options): Call {
  const call: Call = {
    id: nextCall++,
    method,
    uri,
    body: hidden(body),
    ifMatch: options.ifMatch,
    began: Date.now(),
    status: 0,
    tookMs: 0,
  };
  if (!options.quiet) calls.value = [...calls.value.slice(1 - CALLS_MAX), call];
  return call;
}

/** Passwords are not shown again. */
function hidden(body: unknown): unknown {
  if (body === null || typeof body !== "object" || body instanceof Upload) return body;
  const secret = ["Password", "OldPassword", "DHChapKey"];
  return Object.fromEntries(
    Object.entries(body).map(([key, value]) => [key, secret.includes(key) ? "…" : value]),
  );
}

function ended(call: Call, status: number): void {
  call.status = status;
  call.tookMs = Date.now() - call.began;
  if (calls.value.includes(call)) calls.value = calls.value.slice();
}

export function headers(extra: Record<string, string> = {}): Record<string, string> {
  const all: Record<string, string> = { "OData-Version": "4.0", ...extra };
  if (token.value) all["X-Auth-Token"] = token.value;
  return all;
}

export async function request<T>(
  method: Method,
  uri: string,
  body?: unknown,
  options: Options = {},
): Promise<Answer<T>> {
  const quiet = options.quiet ?? method === "GET";
  const call = listed(method, uri, body, { ...options, quiet });
  const sentWith = token.value;
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  const init: RequestInit = {
    method,
    headers: headers({ Accept: "application/json" }),
    cache: "no-store",
    // The session is in a header. With credentials, the browser would ask for a name and a password
    // itself when the service answers 401.
    credentials: "omit",
    signal: timeout,
  };
  const sent = init.headers as Record<string, string>;
  if (options.ifMatch) sent["If-Match"] = options.ifMatch;
  if (body instanceof Upload) init.body = body.form();
  else if (body !== undefined) {
    sent["Content-Type"] = "application/json";
    init.body = JSON.stringify(body);
  }
  let response: Response;
  let text: string;
  try {
    response = await fetch(uri, init);
    text = await response.text();
  } catch {
    ended(call, -1);
    reachable.value = false;
    throw new ServiceError(0, [], undefined, unreachable(timeout.aborted));
  }
  reachable.value = true;
  compareClocks(response);
  ended(call, response.status);
  if (!response.ok) throw refusal(response, text, sentWith);
  return answer<T>(response, text);
}

/** What the service's clock is ahead of the browser's; differences of a second or two are none. */
let aheadMs = 0;
const CLOCKS_AGREE_MS = 2500;

function compareClocks(response: Response): void {
  const date = Date.parse(response.headers.get("Date") ?? "");
  if (Number.isNaN(date)) return;
  const ahead = date - Date.now();
  aheadMs = Math.abs(ahead) < CLOCKS_AGREE_MS ? 0 : ahead;
}

/** The time by the service's clock. */
export function serviceNow(): number {
  return Date.now() + aheadMs;
}

function unreachable(timedOut: boolean): string {
  return timedOut ? `No answer within ${TIMEOUT_MS / 1000} s.` : "The target cannot be reached.";
}

function answer<T>(response: Response, text: string): Answer<T> {
  return {
    status: response.status,
    body: parsed(text) as T,
    etag: response.headers.get("ETag") ?? undefined,
    location: response.headers.get("Location") ?? undefined,
    retryAfterS: seconds(response.headers.get("Retry-After")),
    token: response.headers.get("X-Auth-Token") ?? undefined,
  };
}

function parsed(text: string): unknown {
  try {
    return text ? JSON.parse(text) : {};
  } catch {
    return {};
  }
}

function seconds(text: string | null): number | undefined {
  if (text === null) return undefined;
  const number = Number(text);
  if (Number.isFinite(number)) return Math.max(0, number);
  const date = Date.parse(text);
  return Number.isNaN(date) ? undefined : Math.max(0, Math.ceil((date - Date.now()) / 1000));
}

function refusal(response: Response, text: string, sentWith: string | null): ServiceError {
  const body = parsed(text) as ErrorBody;
  const info = body.error?.["@Message.ExtendedInfo"] ?? body["@Message.ExtendedInfo"] ?? [];
  const fallback = body.error?.message ?? `HTTP status ${response.status}`;
  const wait = seconds(response.headers.get("Retry-After"));
  const error = new ServiceError(response.status, info, wait, fallback);
  if (error.has("PasswordChangeRequired")) onRefused.password(error);
  else if (response.status === 401 && sentWith !== null && sentWith === token.value) onRefused.session();
  return error;
}

export async function get<T extends Resource>(uri: string, options: Options = {}): Promise<T> {
  return (await request<T>("GET", uri, undefined, options)).body;
}

/** The most members of a collection that are read. */
const MEMBERS_MAX = 1000;

/** The members of a collection, with their content. A collection that does not exist is empty. */
export async function members<T extends Resource>(uri: string, most = MEMBERS_MAX): Promise<T[]> {
  const all: T[] = [];
  let next: string | undefined = `${uri}?$expand=.($levels=1)${most < MEMBERS_MAX ? `&$top=${most}` : ""}`;
  try {
    while (next && all.length < most) {
      const page: Collection<T> = await get<Collection<T>>(next);
      all.push(...(page.Members ?? []));
      next = page["Members@odata.nextLink"];
    }
  } catch (error) {
    if (error instanceof ServiceError && error.status === 404) return all;
    throw error;
  }
  return all;
}

export function ids(refs: Ref[] | undefined): string[] {
  return (refs ?? []).map((ref) => ref["@odata.id"]);
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
    words.push("-H 'Content-Type: application/json'", "-d", quoted(JSON.stringify(call.body)));
  }
  return words.filter(Boolean).join(" ");
}
