//! What the page knows: signals, and how events of the service bring them up to date.

import { batch, computed, signal } from "@preact/signals";
import type { Manager } from "../actions/manager";
import { MANAGER, ROOT } from "../api/addresses";
import { ServiceError, get, members } from "../api/client";
import { startStream, stopStream, streamState } from "../api/stream";
import type { Endpoint, EventRecord, MetricReport, Task } from "../api/types";
import { notify } from "../ui/notices";
import { type Box, type DriveView, hostViews, readDrives, readHostEndpoints, readPorts } from "./box";

/** The most events and tasks that are kept. */
const EVENTS_MAX = 500;
/** Events that come together lead to one reading; a storm of them to few. */
const GATHER_MS = 150;
const GATHER_ALL_MS = 1500;
/** What could not be read is tried again after so long. */
const AGAIN_MS = 3_000;
/** Without an event, everything is read again after so long: an event may have been lost. */
const REFRESH_MS = 60_000;
/** Without the stream of events, the box is asked for what there is. */
const REFRESH_ALONE_MS = 5_000;

export const drives = signal<DriveView[]>([]);
export const ports = signal<Box["ports"]>([]);
export const endpoints = signal<Endpoint[]>([]);
export const tasks = signal<Task[]>([]);
export const events = signal<EventRecord[]>([]);
/** Whether the box has been read once. */
export const loaded = signal(false);
export const problem = signal("");
/** What is to be served and cannot be had, each in a sentence. */
export const missing = signal<string[]>([]);

export const box = computed<Box>(() => ({
  drives: drives.value,
  ports: ports.value,
  hosts: hostViews(drives.value, endpoints.value),
}));

export const functions = computed(() => drives.value.flatMap((drive) => drive.functions));
export const namespaces = computed(() => drives.value.flatMap((drive) => drive.namespaces));

export function functionAt(uri: string) {
  return functions.value.find((one) => one.uri === uri);
}

const listeners = new Set<(record: EventRecord) => void>();

/** Calls `listener` for each event; returns how to end that. */
export function onEvent(listener: (record: EventRecord) => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

// ---- reading

const wanted = { all: false, storages: new Set<string>(), ports: false, tasks: false };
let gathering: ReturnType<typeof setTimeout> | undefined;
let reading: Promise<void> = Promise.resolve();
let refreshing: ReturnType<typeof setInterval> | undefined;

/** What views read beside the box. */
const readers = new Set<() => Promise<void>>();

/** Has `reader` read again with all the rest; returns how to end that. */
export function onRefresh(reader: () => Promise<void>): () => void {
  readers.add(reader);
  return () => readers.delete(reader);
}

/** Reads everything that is shown. */
export async function refresh(): Promise<void> {
  wanted.all = true;
  await Promise.all([readNow(), ...[...readers].map((reader) => reader())]);
}

let readAllAt = 0;

/** Reading takes the service time, too: it gets pauses as long as that was. */
let tookMs = 0;

function readSoon(leastMs = GATHER_MS): void {
  const sinceAll = performance.now() - readAllAt;
  const wait = Math.max(leastMs, tookMs, wanted.all ? GATHER_ALL_MS - sinceAll : 0);
  gathering ??= setTimeout(() => {
    gathering = undefined;
    void readNow();
  }, wait);
}

/** One reading after the other: what is read last is what is shown. */
function readNow(): Promise<void> {
  reading = reading.then(readWanted, readWanted);
  return reading;
}

async function readWanted(): Promise<void> {
  const { all, ports: wantPorts, tasks: wantTasks } = wanted;
  const storages = new Set(wanted.storages);
  wanted.all = wanted.ports = wanted.tasks = false;
  wanted.storages.clear();
  if (!all && !wantPorts && !wantTasks && !storages.size) return;
  const began = performance.now();
  if (all) readAllAt = began;
  try {
    const some = all ? undefined : (uri: string) => storages.has(uri);
    const [newDrives, newPorts, newEndpoints, newTasks, manager] = await Promise.all([
      all || storages.size ? readDrives(some) : undefined,
      all || wantPorts ? readPorts() : undefined,
      all ? readHostEndpoints() : undefined,
      all || wantTasks ? members<Task>(`${ROOT}/TaskService/Tasks`) : undefined,
      all ? get<Manager>(MANAGER) : undefined,
    ]);
    batch(() => {
      if (newDrives) drives.value = all ? newDrives : merged(drives.value, newDrives, storages);
      if (newPorts) ports.value = newPorts;
      if (newEndpoints) endpoints.value = newEndpoints;
      if (newTasks) {
        tellEnds(tasks.value, newTasks);
        tasks.value = newTasks;
      }
      if (manager) missing.value = (manager.Status?.Conditions ?? []).flatMap((one) => one.Message ?? []);
      loaded.value = true;
      problem.value = "";
    });
    tookMs = performance.now() - began;
  } catch (error) {
    problem.value = error instanceof ServiceError ? `${error.message} ${error.advice}`.trim() : String(error);
    wanted.all = true;
    const wait = error instanceof ServiceError ? (error.retryAfterS ?? 0) * 1000 : 0;
    if (refreshing !== undefined) readSoon(Math.max(AGAIN_MS, wait));
  }
}

const OVER = new Set(["Completed", "Exception", "Killed", "Cancelled", "Interrupted"]);

/** Tasks whose ends are told where they were begun. */
const followed = new Set<string>();

export function follows(task: string): void {
  followed.add(task);
}

/** Tasks that ran when they were last seen, and have ended: begun by somebody else. */
function tellEnds(before: Task[], now: Task[]): void {
  for (const task of now) {
    if (followed.has(task.Id ?? "")) continue;
    const last = before.find((one) => one.Id === task.Id);
    if (!last || OVER.has(last.TaskState ?? "") || !OVER.has(task.TaskState ?? "")) continue;
    const good = task.TaskState === "Completed";
    const why = good ? "" : ` ${task.Messages?.at(-1)?.Message ?? ""}`;
    notify({ text: `${task.Name ?? `Task ${task.Id}`}: ${good ? "done" : "failed"}.${why}`.trim(), good });
  }
}

function merged(old: DriveView[], fresh: DriveView[], read: Set<string>): DriveView[] {
  const kept = old
    .map((one) => fresh.find((other) => other.storage === one.storage) ?? (read.has(one.storage) ? undefined : one))
    .filter((one) => one !== undefined);
  const added = fresh.filter((one) => !old.some((other) => other.storage === one.storage));
  return [...kept, ...added];
}

// ---- events

function record(event: EventRecord): void {
  const last = events.value;
  if (event.EventId && last.some((one) => one.EventId === event.EventId && one.Message === event.Message)) return;
  events.value = [...last.slice(1 - EVENTS_MAX), event];
  want(event.OriginOfCondition?.["@odata.id"] ?? "");
  readSoon();
  for (const listener of listeners) listener(event);
}

/** What an event about a resource may have changed. */
function want(origin: string): void {
  const storage =
    origin.match(/^\/redfish\/v1\/Storage\/[^/]+/)?.[0] ??
    drives.value.find((drive) => drive.uri !== undefined && origin.startsWith(drive.uri))?.storage;
  if (/\/(SessionService|AccountService)\//.test(origin)) return;
  wanted.tasks = true;
  if (storage) {
    wanted.storages.add(storage);
    wanted.ports = true;
  } else if (!origin.includes("/TaskService/")) wanted.all = true;
}

export function startStore(onReport: (report: MetricReport) => void): void {
  startStream({ event: record, report: onReport, opened: () => void refresh() });
  void refresh();
  refreshing ??= setInterval(() => {
    const due = streamState.value === "open" ? REFRESH_MS : REFRESH_ALONE_MS;
    if (!document.hidden && performance.now() - readAllAt >= due) void refresh();
  }, REFRESH_ALONE_MS);
}

export function stopStore(): void {
  stopStream();
  clearTimeout(gathering);
  gathering = undefined;
  clearInterval(refreshing);
  refreshing = undefined;
  batch(() => {
    drives.value = [];
    ports.value = [];
    endpoints.value = [];
    tasks.value = [];
    followed.clear();
    events.value = [];
    loaded.value = false;
    problem.value = "";
  });
}
