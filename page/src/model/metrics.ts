//! Rates and latencies now, and their history. Units as the service reports them: commands and bytes
//! a second, microseconds.

import { signal } from "@preact/signals";
import { ROOT } from "../api/addresses";
import { ServiceError, get } from "../api/client";
import type { MetricReport, MetricValue } from "../api/types";

export type Kind = "Functions" | "Namespaces" | "Ports" | "Drives" | "Hosts" | "Target";

export const METRICS = [
  "ReadCommands",
  "WriteCommands",
  "ReadBytes",
  "WriteBytes",
  "LatencyP50",
  "LatencyP99",
  "LatencyP999",
] as const;
export type Metric = (typeof METRICS)[number];
/** `time` is when it was taken, by the service: seconds since 1970. */
export type Sample = Partial<Record<Metric | "time", number>>;

/** By the URI of the object. */
export const current = signal<ReadonlyMap<string, Sample>>(new Map());

function isMetric(id: string | undefined): id is Metric {
  return (METRICS as readonly string[]).includes(id ?? "");
}

function valued(value: MetricValue): number | undefined {
  if (value.MetricValue === null || value.MetricValue === undefined) return undefined;
  const number = Number(value.MetricValue);
  return Number.isFinite(number) ? number : undefined;
}

/** The object that a value is about: the property's URI without its fragment. */
function objectOf(value: MetricValue): string {
  return (value.MetricProperty ?? "").replace(/[#?].*$/, "").replace(/\/$/, "");
}

/** The latest samples, by report: an object that a report no longer has, has none. */
const reports = new Map<string, Map<string, Sample>>();

export function takeReport(report: MetricReport): void {
  const fresh = new Map<string, Sample>();
  for (const value of report.MetricValues ?? []) {
    const number = valued(value);
    if (!isMetric(value.MetricId) || number === undefined) continue;
    const uri = objectOf(value);
    let sample = fresh.get(uri);
    if (!sample) fresh.set(uri, (sample = {}));
    sample[value.MetricId] = number;
    const time = secondsOf(value.Timestamp);
    if (time !== undefined) sample.time = time;
  }
  reports.set(report.Id ?? "", fresh);
  current.value = new Map([...reports.values()].flatMap((one) => [...one]));
}

function secondsOf(timestamp: string | undefined): number | undefined {
  const ms = Date.parse(timestamp ?? "");
  return Number.isNaN(ms) ? undefined : Math.round(ms / 1000);
}

export async function readCurrent(kind: Kind): Promise<void> {
  takeReport(await get<MetricReport>(`${ROOT}/TelemetryService/MetricReports/${kind}`));
}

export function iops(sample: Sample | undefined): number {
  return (sample?.ReadCommands ?? 0) + (sample?.WriteCommands ?? 0);
}

export function bytes(sample: Sample | undefined): number {
  return (sample?.ReadBytes ?? 0) + (sample?.WriteBytes ?? 0);
}

// ---- history

export interface Range {
  label: string;
  name: string;
  seconds: number;
  step: "1s" | "10s" | "60s";
}

export const RANGES: Range[] = [
  { label: "1 min", name: "one minute", seconds: 60, step: "1s" },
  { label: "5 min", name: "five minutes", seconds: 300, step: "1s" },
  { label: "30 min", name: "thirty minutes", seconds: 1800, step: "10s" },
  { label: "2 h", name: "two hours", seconds: 7200, step: "10s" },
  { label: "8 h", name: "eight hours", seconds: 28800, step: "60s" },
  { label: "24 h", name: "a day", seconds: 86400, step: "60s" },
];

export const STEP_SECONDS = { "1s": 1, "10s": 10, "60s": 60 } as const;

export interface History {
  /** Seconds since 1970, ascending. */
  times: number[];
  values: Record<Metric, (number | null)[]>;
}

export function emptyHistory(): History {
  const values = Object.fromEntries(METRICS.map((metric) => [metric, []])) as unknown as History["values"];
  return { times: [], values };
}

export async function readHistory(kind: Kind, id: string, range: Range): Promise<History> {
  const uri = `${ROOT}/TelemetryService/MetricReports/History-${kind}-${id}-${range.step}`;
  try {
    return historyOf(await get<MetricReport>(uri));
  } catch (error) {
    // What has done nothing yet has no history.
    if (error instanceof ServiceError && error.status === 404) return emptyHistory();
    throw error;
  }
}

export function historyOf(report: MetricReport): History {
  const rows = new Map<number, Sample>();
  for (const value of report.MetricValues ?? []) {
    const number = valued(value);
    const time = secondsOf(value.Timestamp);
    if (!isMetric(value.MetricId) || number === undefined || time === undefined) continue;
    let row = rows.get(time);
    if (!row) rows.set(time, (row = {}));
    row[value.MetricId] = number;
  }
  const history = emptyHistory();
  for (const time of [...rows.keys()].sort((a, b) => a - b)) {
    history.times.push(time);
    for (const metric of METRICS) history.values[metric].push(rows.get(time)?.[metric] ?? null);
  }
  return history;
}

/** What of a history is within the last seconds of `now`. */
export function windowed(history: History, now: number, seconds: number): History {
  const from = history.times.findIndex((time) => time >= now - seconds);
  if (from < 0) return emptyHistory();
  const values = Object.fromEntries(
    METRICS.map((metric) => [metric, history.values[metric].slice(from)]),
  ) as unknown as History["values"];
  return { times: history.times.slice(from), values };
}

/** Adds a sample at a time, and forgets what is older than `seconds`. */
export function appended(history: History, time: number, sample: Sample, seconds: number): History {
  const last = history.times.at(-1) ?? 0;
  if (time <= last) return history;
  const next = windowed(history, time, seconds);
  next.times.push(time);
  for (const metric of METRICS) next.values[metric].push(sample[metric] ?? null);
  return next;
}
