//! The logs of a drive: self-tests, errors, and its own events.

import type { DriveLogs as Logs } from "../api/types";
import { exact } from "../ui/format";
import { Badge, Table, Time } from "../ui/parts";

export function DriveLogs({ logs }: { logs: Logs | undefined }) {
  if (!logs) return null;
  return (
    <>
      <h2>Self-tests</h2>
      <Table
        caption="Self-tests"
        rows={logs.SelfTests ?? []}
        id={(one) => `${one.PowerOnHours} ${one.Kind} ${one.Message}`}
        empty="No self-test has been run."
        columns={[
          { title: "Kind", cell: (one) => one.Kind ?? "–" },
          { title: "Result", by: (one) => (one.Passed ? "passed" : "not passed"), cell: (one) => <Badge tone={one.Passed ? "good" : "warn"}>{one.Passed ? "passed" : "not passed"}</Badge> },
          { title: "Meaning", cell: (one) => one.Message },
          { title: "At power-on hour", number: true, by: (one) => one.PowerOnHours, cell: (one) => exact(one.PowerOnHours) },
        ]}
      />
      <h2>Errors</h2>
      <Table
        caption="Errors"
        rows={logs.Errors ?? []}
        id={(one) => String(one.Number)}
        empty="The drive has logged no error."
        columns={[
          { title: "Number", number: true, by: (one) => one.Number, cell: (one) => exact(one.Number) },
          { title: "Error", cell: (one) => one.Message },
          { title: "Namespace", number: true, cell: (one) => one.NamespaceId ?? "–" },
          { title: "Block", number: true, extra: true, by: (one) => one.LBA ?? undefined, cell: (one) => exact(one.LBA ?? undefined) },
        ]}
      />
      <h2>The drive's own events</h2>
      <Table
        caption="The drive's own events"
        rows={logs.Events ?? []}
        id={(one) => `${one.Timestamp} ${one.EventType} ${one.Message}`}
        empty="The drive has logged no event."
        columns={[
          { title: "Time", by: (one) => one.Timestamp, cell: (one) => <Time at={one.Timestamp} /> },
          { title: "Event", cell: (one) => one.Message },
        ]}
      />
    </>
  );
}
