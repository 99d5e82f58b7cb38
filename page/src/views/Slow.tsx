//! Slow commands: where the time of each went, and what to look at.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { LOGS } from "../api/addresses";
import { get, members } from "../api/client";
import type { LogEntry, Resource } from "../api/types";
import { bytes, exact, latency, shortNqn } from "../ui/format";
import { Button, Table, Time } from "../ui/parts";
import { Segments } from "../ui/Segments";
import { newestFirst } from "./log";
import { type Part, type SlowCommand, type Sum, PARTS, ended, partsOf, sums } from "./slowparts";
import { useResource } from "./use";

const LOG = `${LOGS}/SlowCommands`;
/** The most commands that are shown. */
const SHOWN_MAX = 100;
/** Slow commands are no events: the log is asked for them. */
const EVERY_MS = 5000;

interface SlowLog extends Resource {
  Oem?: { Ebof?: { ThresholdMicroseconds?: number | null; Total?: number } };
}

type SlowEntry = LogEntry & { Oem?: { Ebof?: SlowCommand } };

export function SlowView() {
  const order = useSignal("latest");
  const { value, problem, again } = useResource("slow", async () => {
    const [log, entries] = await Promise.all([get<SlowLog>(LOG), members<SlowEntry>(`${LOG}/Entries`, SHOWN_MAX)]);
    return { log, entries };
  });
  useEffect(() => {
    const timer = setInterval(() => document.hidden || again(), EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  const entries = newestFirst(value?.entries ?? []);
  const took = (entry: SlowEntry) => entry.Oem?.Ebof?.TotalMicroseconds ?? 0;
  const rows = order.value === "longest" ? entries.toSorted((a, b) => took(b) - took(a)) : entries;
  return (
    <>
      <div class="toolbar">
        <h1>Slow commands</h1>
        <div class="tools">
          <Segments
            label="order"
            options={[
              ["latest", "Latest"],
              ["longest", "Longest"],
            ]}
            value={order.value}
            onChange={(text) => (order.value = text)}
          />
          <Button class="small" onClick={again}>
            Read again
          </Button>
        </div>
      </div>
      {problem && <p class="bad">{problem}</p>}
      {value && <Threshold log={value.log} shown={rows.length} />}
      {rows.length > 0 && <Legend />}
      <Sums rows={sums(rows.map((entry) => ({ ...entry.Oem?.Ebof, advice: entry.Resolution ?? "" })))} />
      <Table
        caption="Slow commands"
        rows={rows}
        id={(entry) => entry.Id ?? ""}
        empty="No command was slow since the target was started."
        columns={[
          { title: "Command", cell: (entry) => <What command={entry.Oem?.Ebof} /> },
          { title: "Took", number: true, cell: (entry) => latency(took(entry)) },
          { title: "Where its time went", cell: (entry) => <Bar parts={partsOf(entry.Oem?.Ebof)} /> },
          { title: "Time", extra: true, cell: (entry) => <Time at={entry.Created} /> },
          { title: "Host", extra: true, cell: (entry) => <code title={entry.Oem?.Ebof?.HostNQN}>{shortNqn(entry.Oem?.Ebof?.HostNQN ?? "")}</code> },
        ]}
      />
    </>
  );
}

function Threshold({ log, shown }: { log: SlowLog; shown: number }) {
  const { ThresholdMicroseconds: threshold, Total: total = 0 } = log.Oem?.Ebof ?? {};
  if (threshold === null || threshold === undefined) {
    return <p class="quiet">No command is looked at: <code>slow_threshold</code> is 0 in the configuration.</p>;
  }
  const more = total > shown && shown > 0 ? `, of which the latest ${shown} are shown` : "";
  return (
    <p class="quiet">
      {exact(total)} {total === 1 ? "command has" : "commands have"} taken {latency(threshold)} or longer since the target was
      started{more}.
    </p>
  );
}

function What({ command }: { command: SlowCommand | undefined }) {
  if (!command) return <>–</>;
  const { Object: object, NSID: nsid, LBA: lba, DataBytes: data, CompletionStatus: status } = command;
  return (
    <>
      {command.Command} of {bytes(data)}, {object} namespace {nsid}
      <span class="quiet block">
        {lba === null || lba === undefined ? "" : `block ${exact(lba)}, `}
        {command.Port} queue {command.Queue}
      </span>
      {ended(status) && <span class="bad block">{status}</span>}
    </>
  );
}

/** A bar of the parts, and the same as text. */
function Bar({ parts }: { parts: Part[] }) {
  const total = parts.reduce((sum, one) => sum + one.us, 0) || 1;
  let at = 0;
  return (
    <span class="parts">
      <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
        {parts.map((one) => {
          const x = at;
          const width = (one.us / total) * 100;
          at += width;
          return <rect x={x} width={width} height="8" class={`part-${one.name}`} />;
        })}
      </svg>
      <span>{parts.map((one) => `${one.name} ${latency(one.us)}`).join(", ")}</span>
    </span>
  );
}

function Legend() {
  return (
    <ul class="legend" aria-label="parts of the time">
      {PARTS.map(({ name, meaning }) => (
        <li>
          <span class={`swatch part-${name}`} aria-hidden="true" />
          {name}: {meaning}
        </li>
      ))}
    </ul>
  );
}

/** What the shown commands of a function have in common. */
function Sums({ rows }: { rows: Sum[] }) {
  if (rows.length === 0) return null;
  return (
    <>
      <Table
        caption="Slow commands by function"
        rows={rows}
        id={(one) => one.object}
        empty=""
        columns={[
          { title: "Function", cell: (one) => one.object },
          { title: "Commands", number: true, cell: (one) => exact(one.count) },
          { title: "Mean", number: true, extra: true, cell: (one) => latency(one.totalUs / one.count) },
          { title: "Longest", number: true, cell: (one) => latency(one.longestUs) },
          { title: "Where their time went", cell: (one) => <Bar parts={one.parts} /> },
          { title: "What to do", extra: true, cell: (one) => one.advice },
        ]}
      />
      <h2>Each</h2>
    </>
  );
}
