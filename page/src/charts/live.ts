//! Asks for the current rates each second, of those kinds of objects that something shows, unless the
//! event stream brings them.

import { type Kind, readCurrent, takeReport } from "../model/metrics";
import type { MetricReport } from "../api/types";

const EVERY_MS = 1000;
/** While the service does not answer, it is asked less often. */
const PAUSE_MS = 5000;

const watched = new Map<Kind, number>();
let timer: ReturnType<typeof setTimeout> | undefined;
/** When the event stream last brought a report. */
let streamed = 0;

export function watchKinds(kinds: Kind[]): () => void {
  for (const kind of kinds) watched.set(kind, (watched.get(kind) ?? 0) + 1);
  timer ??= setTimeout(tick);
  return () => {
    for (const kind of kinds) {
      const left = (watched.get(kind) ?? 1) - 1;
      if (left) watched.set(kind, left);
      else watched.delete(kind);
    }
  };
}

async function tick(): Promise<void> {
  let wait = EVERY_MS;
  const began = Date.now();
  if (!document.hidden && began - streamed > 3 * EVERY_MS) {
    try {
      await Promise.all([...watched.keys()].map(readCurrent));
    } catch {
      wait = PAUSE_MS;
    }
  }
  timer = watched.size ? setTimeout(() => void tick(), Math.max(100, wait - (Date.now() - began))) : undefined;
}

export function streamedReport(report: MetricReport): void {
  streamed = Date.now();
  takeReport(report);
}
