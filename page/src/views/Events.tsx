//! The events of the box: those in its log, and those that arrive.

import { useSignal } from "@preact/signals";
import { LOGS } from "../api/addresses";
import { members } from "../api/client";
import type { LogEntry } from "../api/types";
import { Health, Table, Time } from "../ui/parts";
import { Segments } from "../ui/Segments";
import { newestFirst } from "./log";
import { useResource } from "./use";

/** Which events are shown. */
const KINDS: [string, string][] = [
  ["steps", "All"],
  ["events", "Without steps of tasks"],
  ["warnings", "Warnings"],
];

function isOf(kind: string, entry: LogEntry): boolean {
  if (kind === "warnings") return entry.Severity !== "OK";
  return kind === "steps" || !entry.MessageId?.endsWith(".TaskProgress");
}

function What({ entry }: { entry: LogEntry }) {
  const object = entry.Oem?.Ebof?.Object;
  return (
    <span class="wrap">
      {object && <strong>{object}</strong>} {entry.Message}
    </span>
  );
}

export function EventsView() {
  const words = useSignal("");
  const kind = useSignal("events");
  const { value, problem } = useResource(
    "events",
    () => members<LogEntry>(`${LOGS}/Events/Entries`),
    () => true,
  );
  const wanted = words.value.trim().toLowerCase();
  const rows = newestFirst(value ?? []).filter(
    (entry) => isOf(kind.value, entry) && `${entry.Oem?.Ebof?.Object} ${entry.Message} ${entry.MessageId}`.toLowerCase().includes(wanted),
  );
  return (
    <>
      <div class="toolbar">
        <h1>Events</h1>
        <div class="tools">
          <Segments label="kind" options={KINDS} value={kind.value} onChange={(text) => (kind.value = text)} />
          <label class="unseen" for="events-filter">
            filter
          </label>
          <input
            id="events-filter"
            type="search"
            placeholder="filter"
            value={words.value}
            onInput={(event) => (words.value = event.currentTarget.value)}
          />
        </div>
      </div>
      {problem && <p class="bad">{problem}</p>}
      <Table
        caption="Events"
        searched
        rows={rows}
        id={(entry) => entry.Id ?? ""}
        empty={value?.length ? "Nothing matches the filter." : "There is no event."}
        columns={[
          { title: "Time", by: (entry) => entry.Created, cell: (entry) => <Time at={entry.Created} /> },
          { title: "Severity", by: (entry) => entry.Severity ?? undefined, cell: (entry) => <Health value={entry.Severity} /> },
          { title: "Event", by: (entry) => entry.Message, cell: (entry) => <What entry={entry} /> },
          { title: "By", extra: true, by: (entry) => entry.Oem?.Ebof?.Who ?? undefined, cell: (entry) => <span class="wrap">{entry.Oem?.Ebof?.Who ?? "–"}</span> },
          { title: "Message", extra: true, by: (entry) => entry.MessageId?.split(".").at(-1), cell: (entry) => <code class="whole-word">{entry.MessageId?.split(".").at(-1)}</code> },
        ]}
      />
    </>
  );
}
