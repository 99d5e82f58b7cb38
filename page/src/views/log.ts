//! The order of log entries.

import type { LogEntry } from "../api/types";

export function newestFirst<T extends LogEntry>(entries: T[]): T[] {
  return entries.toSorted((a, b) => (b.Created ?? "").localeCompare(a.Created ?? "") || Number(b.Id) - Number(a.Id));
}
