//! What needs somebody's attention: conditions of the box, and warnings of its logs; and which of
//! them somebody has acknowledged. An acknowledgement is kept by the browser, and covers what was
//! there then: another state of the same object is another alert.

import { signal } from "@preact/signals";
import type { LogEntry, Task } from "../api/types";
import type { DriveView, PortView } from "./box";

export interface Alert {
  /** Tells it apart, together with its state. */
  key: string;
  severity: "Warning" | "Critical";
  /** What it is about. */
  object: string;
  text: string;
  advice: string;
  /** When it happened; conditions have no time. */
  at: string | undefined;
  /** Segments of the view that tells more. */
  view: string[];
}

const KEY = "ebof-acknowledged";
/** What was acknowledged longest ago is forgotten beyond so many. */
const KEYS_MAX = 500;
/** What the log has from before so long is history. */
const RECENT_MS = 24 * 3600 * 1000;

function stored(): string[] {
  try {
    const list: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(list) ? list.filter((one) => typeof one === "string") : [];
  } catch {
    return [];
  }
}

export const acknowledged = signal<readonly string[]>(stored());

function keep(keys: readonly string[]): void {
  acknowledged.value = keys.slice(-KEYS_MAX);
  try {
    localStorage.setItem(KEY, JSON.stringify(acknowledged.value));
  } catch {
    // A browser that stores nothing shows them again after it was closed.
  }
}

export function acknowledge(alerts: Alert[]): void {
  const fresh = alerts.map((one) => one.key).filter((key) => !acknowledged.value.includes(key));
  keep([...acknowledged.value, ...fresh]);
}

export function recall(alert: Alert): void {
  keep(acknowledged.value.filter((key) => key !== alert.key));
}

function severity(health: string | null | undefined): Alert["severity"] | undefined {
  return health === "Warning" || health === "Critical" ? health : undefined;
}

/** Conditions of drives and ports, as they are now. */
export function conditions(drives: DriveView[], ports: PortView[]): Alert[] {
  const ofDrives = drives.flatMap((drive): Alert[] => {
    const told = drive.resource?.Status?.Conditions ?? [];
    const level = severity(drive.health) ?? (drive.problem ? "Critical" : undefined);
    if (!level) return [];
    const text = told.map((one) => one.Message).filter(Boolean).join(" ") || drive.problem || `Its health is ${drive.health}.`;
    const advice = told.map((one) => one.Resolution).filter(Boolean).join(" ");
    const key = `drive ${drive.storage} ${level} ${text}`;
    return [{ key, severity: level, object: drive.name, text, advice, at: undefined, view: ["drives", drive.name] }];
  });
  const ofPorts = ports.flatMap((port): Alert[] => {
    const level = severity(port.resource?.Status?.Health);
    if (!level) return [];
    const told = port.resource?.Status?.Conditions ?? [];
    const text = told.map((one) => one.Message).filter(Boolean).join(" ") || `Its health is ${level}.`;
    const advice = told.map((one) => one.Resolution).filter(Boolean).join(" ");
    return [{ key: `port ${port.uri} ${level} ${text}`, severity: level, object: port.name, text, advice, at: undefined, view: ["ports"] }];
  });
  return [...ofDrives, ...ofPorts];
}

/** What is to be served and cannot be had, each told in a sentence. */
export function absences(missing: string[]): Alert[] {
  return missing.map((text) => {
    const [, kind, name] = text.match(/^(port|drive) (\S+) /) ?? [];
    const view = kind === "port" ? ["ports"] : kind === "drive" ? ["drives"] : ["configuration"];
    const rest = name ? text.slice(`${kind} ${name} `.length) : text;
    return { key: `missing ${text}`, severity: "Warning", object: name ? `${kind} ${name}` : "", text: rest, advice: "", at: undefined, view };
  });
}

/** Tasks that have failed. */
export function failures(tasks: Task[]): Alert[] {
  return tasks
    .filter((task) => task.TaskState === "Exception" || task.TaskState === "Killed")
    .map((task) => ({
      key: `task ${task.Id} ${task.StartTime}`,
      severity: "Warning",
      object: `task ${task.Id}`,
      text: `${task.Name ?? "A task"} failed. ${task.Messages?.at(-1)?.Message ?? ""}`.trim(),
      advice: task.Messages?.at(-1)?.Resolution ?? "",
      at: task.EndTime,
      view: ["tasks"],
    }));
}

/** Warnings of a log, as many as are recent; those that say the same once, the last time. */
export function warnings(name: string, entries: LogEntry[], view: string, now: number): Alert[] {
  const last = new Map<string, { entry: LogEntry; count: number }>();
  for (const entry of entries) {
    const at = Date.parse(entry.Created ?? "");
    if (!severity(entry.Severity) || !(now - at < RECENT_MS)) continue;
    const same = `${entry.Oem?.Ebof?.Object ?? ""} ${entry.Message}`;
    const known = last.get(same);
    const newer = known && (known.entry.Created ?? "") > (entry.Created ?? "") ? known.entry : entry;
    last.set(same, { entry: newer, count: (known?.count ?? 0) + 1 });
  }
  return [...last.values()].map(({ entry, count }) => ({
    key: `${name} ${entry.Created} ${entry.Id}`,
    severity: severity(entry.Severity) ?? "Warning",
    object: entry.Oem?.Ebof?.Object ?? "",
    text: `${entry.Message ?? ""}${count > 1 ? ` (${count} times)` : ""}`,
    advice: entry.Resolution ?? "",
    at: entry.Created,
    view: [view],
  }));
}

/** The most urgent first: critical ones, conditions, then the newest. */
export function byUrgency(a: Alert, b: Alert): number {
  if (a.severity !== b.severity) return a.severity === "Critical" ? -1 : 1;
  if (!a.at !== !b.at) return a.at ? 1 : -1;
  return (b.at ?? "").localeCompare(a.at ?? "");
}
