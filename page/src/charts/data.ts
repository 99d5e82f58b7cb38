//! The histories that the charts show: read once, continued by the samples that arrive, read again
//! where a step is longer than a second.

import { effect } from "@preact/signals";
import { serviceNow } from "../api/client";
import {
  type History,
  type Kind,
  type Range,
  STEP_SECONDS,
  appended,
  current,
  emptyHistory,
  readHistory,
  windowed,
} from "../model/metrics";

export interface Source {
  label: string;
  kind: Kind;
  /** As in the names of the histories. */
  id: string;
  uri: string;
}

export interface Shown {
  histories: History[];
  now: number;
  problem: string;
}

/** Follows the histories of some objects until the returned function is called. */
export function follow(sources: Source[], range: Range, into: { value: Shown }): () => void {
  let stopped = false;
  const histories = sources.map(emptyHistory);
  const live = range.step === "1s";
  const show = (problem = into.value.problem) => {
    const now = serviceNow() / 1000;
    into.value = { histories: histories.map((one) => windowed(one, now, range.seconds)), now, problem };
  };
  const read = async () => {
    let problem = "";
    await Promise.all(
      sources.map(async (source, at) => {
        try {
          const fresh = await readHistory(source.kind, source.id, range);
          const known = histories[at];
          histories[at] = known && live ? joined(fresh, known) : fresh;
        } catch (error) {
          problem = error instanceof Error ? error.message : String(error);
        }
      }),
    );
    if (!stopped) show(problem);
  };
  void read();
  const timer = setInterval(() => {
    if (document.hidden) return;
    if (live) show();
    else void read();
  }, live ? 1000 : STEP_SECONDS[range.step] * 1000);
  const stop = effect(() => {
    const samples = current.value;
    if (!live) return;
    sources.forEach((source, at) => {
      const sample = samples.get(source.uri);
      const history = histories[at];
      const time = sample?.time ?? Math.floor(serviceNow() / 1000);
      if (sample && history) histories[at] = appended(history, time, sample, range.seconds);
    });
  });
  // A hidden page sees no samples: what it missed is read.
  const shown = () => {
    if (!document.hidden) void read();
  };
  document.addEventListener("visibilitychange", shown);
  return () => {
    stopped = true;
    clearInterval(timer);
    stop();
    document.removeEventListener("visibilitychange", shown);
  };
}

/** What was read, and what came after it. */
function joined(fresh: History, known: History): History {
  const last = fresh.times.at(-1) ?? 0;
  const from = known.times.findIndex((time) => time > last);
  if (from < 0) return fresh;
  const out = { times: [...fresh.times, ...known.times.slice(from)], values: { ...fresh.values } };
  for (const metric of Object.keys(out.values) as (keyof History["values"])[]) {
    out.values[metric] = [...fresh.values[metric], ...known.values[metric].slice(from)];
  }
  return out;
}

/** Several histories on the times that any of them has. */
export function aligned(histories: History[], pick: (history: History, at: number) => number | null): { times: number[]; values: (number | null)[][] } {
  const times = [...new Set(histories.flatMap((one) => one.times))].sort((a, b) => a - b);
  const values = histories.map((history) => {
    const index = new Map(history.times.map((time, at) => [time, at]));
    return times.map((time) => {
      const at = index.get(time);
      return at === undefined ? null : pick(history, at);
    });
  });
  return { times, values };
}

