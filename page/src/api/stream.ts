//! The event stream: server-sent events, read with fetch because EventSource cannot send the
//! session's token. It reconnects by itself, and tells when it has been away.

import { signal } from "@preact/signals";
import { ROOT } from "./addresses";
import { headers, onRefused, token } from "./client";
import { Parser } from "./sse";
import type { EventRecord, MetricReport } from "./types";

/** The service sends a comment each ten seconds; without anything for so long, it is gone. */
const SILENCE_MS = 30_000;
const RETRY_MIN_MS = 500;
const RETRY_MAX_MS = 8_000;

export type StreamState = "off" | "connecting" | "open" | "waiting";

export const streamState = signal<StreamState>("off");

export interface Listener {
  event(record: EventRecord): void;
  report(report: MetricReport): void;
  /** The stream is open, and what happened before may have been missed. */
  opened(): void;
}

let running: AbortController | undefined;
let wake: (() => void) | undefined;

export function startStream(listener: Listener): void {
  stopStream();
  running = new AbortController();
  void run(listener, running.signal);
}

export function stopStream(): void {
  running?.abort();
  running = undefined;
  streamState.value = "off";
}

/** Reconnects at once if the stream waits to. */
export function retryStream(): void {
  wake?.();
}

async function run(listener: Listener, stop: AbortSignal): Promise<void> {
  let wait = RETRY_MIN_MS;
  const place: { lastId?: string | undefined } = {};
  while (!stop.aborted) {
    streamState.value = "connecting";
    const sentWith = token.value;
    const outcome = await once(listener, stop, place).catch(() => "lost" as const);
    if (stop.aborted) return;
    if (outcome === "refused") {
      if (sentWith === token.value) onRefused.session();
      return;
    }
    wait = outcome === "ended" ? RETRY_MIN_MS : Math.min(wait * 2, RETRY_MAX_MS);
    streamState.value = "waiting";
    await pause(wait, stop);
  }
}

function pause(ms: number, stop: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      stop.removeEventListener("abort", end);
      wake = undefined;
      resolve();
    };
    const timer = setTimeout(end, ms);
    wake = end;
    stop.addEventListener("abort", end);
  });
}

/** One connection. `ended` if it was open, `lost` if it never was. */
async function once(
  listener: Listener,
  stop: AbortSignal,
  place: { lastId?: string | undefined },
): Promise<"ended" | "lost" | "refused"> {
  const connection = new AbortController();
  const end = () => connection.abort();
  stop.addEventListener("abort", end);
  let timer = setTimeout(end, SILENCE_MS);
  const extra: Record<string, string> = { Accept: "text/event-stream" };
  if (place.lastId) extra["Last-Event-ID"] = place.lastId;
  try {
    const response = await fetch(`${ROOT}/EventService/SSE`, {
      headers: headers(extra),
      cache: "no-store",
      credentials: "omit",
      signal: connection.signal,
    });
    if (response.status === 401) return "refused";
    if (!response.ok || !response.body) return "lost";
    streamState.value = "open";
    listener.opened();
    const parser = new Parser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return "ended";
      clearTimeout(timer);
      timer = setTimeout(end, SILENCE_MS);
      for (const text of parser.push(value)) deliver(listener, text);
      place.lastId = parser.lastId ?? place.lastId;
    }
  } catch {
    return streamState.value === "open" ? "ended" : "lost";
  } finally {
    clearTimeout(timer);
    stop.removeEventListener("abort", end);
  }
}

function deliver(listener: Listener, text: string): void {
  let message: { "@odata.type"?: string; Events?: EventRecord[]; MetricValues?: unknown };
  try {
    message = JSON.parse(text);
  } catch {
    return;
  }
  if (message.Events) for (const record of message.Events) listener.event(record);
  else if (message.MetricValues) listener.report(message as MetricReport);
}
