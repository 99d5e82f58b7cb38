//! Requests to the Redfish service, and their errors. Sessions are in session.ts; this file only holds
//! the token.

import { signal } from "@preact/signals";
import { inPageWords } from "./advice";
import { type Method, Upload, begun, ended } from "./calls";
import type { Collection, ErrorBody, Message, Ref, Resource } from "./types";

/** Without an answer for so long, a request is given up. */
const TIMEOUT_MS = 30_000;

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
  /** The revision of the plan that was looked at. */
  plan?: string | undefined;
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
  const call = begun(method, uri, body, options.ifMatch, quiet);
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
  if (options.plan) sent["Ebof-Plan"] = options.plan;
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

function readable(key: string, value: unknown): unknown {
  return key === "Resolution" && typeof value === "string" ? inPageWords(value) : value;
}

function parsed(text: string): unknown {
  try {
    return text ? JSON.parse(text, readable) : {};
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
