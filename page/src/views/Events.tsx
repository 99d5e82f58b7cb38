//! The events of the box: those in its log, and those that arrive.

import { useSignal } from "@preact/signals";
import { ROOT, members } from "../api/client";
import type { LogEntry } from "../api/types";
import { time } from "../ui/format";
import { Health, Table } from "../ui/parts";
import { newestFirst } from "./log";
import { useResource } from "./use";

export function EventsView() {
  const words = useSignal("");
  const { value, problem } = useResource(
    "events",
    () => members<LogEntry>(`${ROOT}/Managers/ebof/LogServices/Events/Entries`),
    () => true,
  );
  const wanted = words.value.trim().toLowerCase();
  const rows = newestFirst(value ?? []).filter((entry) =>
    `${entry.Message} ${entry.MessageId} ${entry.Severity}`.toLowerCase().includes(wanted),
  );
  return (
    <>
      <div class="toolbar">
        <h1>Events</h1>
        <div class="tools">
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
        rows={rows}
        id={(entry) => entry.Id ?? ""}
        empty={wanted ? "Nothing matches the filter." : "There is no event."}
        columns={[
          { title: "Time", cell: (entry) => time(entry.Created) },
          { title: "Severity", cell: (entry) => <Health value={entry.Severity} /> },
          { title: "Event", cell: (entry) => entry.Message },
          { title: "Message", extra: true, cell: (entry) => <code>{entry.MessageId?.split(".").at(-1)}</code> },
        ]}
      />
    </>
  );
}
