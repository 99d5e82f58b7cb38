//! Connections that were refused: why, and what to do.

import { LOGS } from "../api/addresses";
import { members } from "../api/client";
import type { LogEntry } from "../api/types";
import { Button, Table, Time } from "../ui/parts";
import { newestFirst } from "./log";
import { useResource } from "./use";

export function RefusedView() {
  const { value, problem, again } = useResource(
    "refused",
    () => members<LogEntry>(`${LOGS}/ConnectionsRefused/Entries`),
    () => true,
  );
  return (
    <>
      <div class="toolbar">
        <h1>Refused connections</h1>
        <div class="tools">
          <Button class="small" onClick={again}>
            Read again
          </Button>
        </div>
      </div>
      {problem && <p class="bad">{problem}</p>}
      <Table
        caption="Refused connections"
        rows={newestFirst(value ?? [])}
        id={(entry) => entry.Id ?? ""}
        empty="No connection was refused."
        columns={[
          { title: "Time", by: (entry) => entry.Created, cell: (entry) => <Time at={entry.Created} /> },
          { title: "What was refused, and why", cell: (entry) => entry.Message },
          { title: "What to do", cell: (entry) => entry.Resolution || "–" },
        ]}
      />
    </>
  );
}
