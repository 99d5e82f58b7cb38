//! The whole box in figures, and what needs attention.

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { LOGS, MANAGER } from "../api/addresses";
import { members, serviceNow } from "../api/client";
import type { LogEntry } from "../api/types";
import { type Alert, absences, acknowledge, acknowledged, byUrgency, conditions, failures, recall, warnings } from "../model/alerts";
import { type Kind, bytes as bytesOf, current, iops } from "../model/metrics";
import { box, missing, tasks } from "../model/store";
import { href } from "../router";
import { bytes, count, latency, rate, readable, shortNqn } from "../ui/format";
import { Button, Health, Meter, Time } from "../ui/parts";
import { useResource } from "./use";

export function OverviewView() {
  const alerts = useAlerts();
  return (
    <>
      <div class="toolbar">
        <h1>Overview</h1>
      </div>
      <Attention alerts={alerts} />
      <Totals />
      <Busiest />
    </>
  );
}

function useAlerts(): Alert[] {
  const { value } = useResource(
    "alerts",
    async () => {
      const [events, refused] = await Promise.all([
        members<LogEntry>(`${LOGS}/Events/Entries`),
        members<LogEntry>(`${LOGS}/ConnectionsRefused/Entries`),
      ]);
      return { events, refused };
    },
    () => true,
  );
  const { drives, ports } = box.value;
  const now = serviceNow();
  return [
    ...conditions(drives, ports),
    ...absences(missing.value),
    ...failures(tasks.value),
    // What is still missing is told as it is now.
    ...warnings("event", (value?.events ?? []).filter((one) => !missing.value.includes(one.Message ?? "")), "events", now),
    ...warnings("refused", value?.refused ?? [], "refused", now),
  ].sort(byUrgency);
}

// ---- what needs attention

/** So many are shown at once. */
const SHOWN_MAX = 20;

function Attention({ alerts }: { alerts: Alert[] }) {
  const showsAll = useSignal(false);
  const known = new Set(acknowledged.value);
  const open = alerts.filter((one) => !known.has(one.key));
  const quiet = alerts.length - open.length;
  const shown = (showsAll.value ? alerts : open).slice(0, SHOWN_MAX);
  return (
    <section class="panel attention" aria-label="Needs attention" data-test="attention">
      <div class="heading">
        <h2>{open.length ? `Needs attention: ${open.length}` : "Nothing needs attention"}</h2>
        <span class="buttons">
          {quiet > 0 && (
            <Button class="small" aria-pressed={showsAll.value} onClick={() => (showsAll.value = !showsAll.value)}>
              {showsAll.value ? "Hide" : "Show"} {quiet} acknowledged
            </Button>
          )}
          {open.length > 1 && (
            <Button class="small" onClick={() => acknowledge(open)}>
              Acknowledge all
            </Button>
          )}
        </span>
      </div>
      {shown.length > 0 && (
        <ul class="alerts">
          {shown.map((one) => (
            <Line key={one.key} alert={one} quiet={known.has(one.key)} />
          ))}
        </ul>
      )}
      {open.length > SHOWN_MAX && !showsAll.value && <p class="quiet">{open.length - SHOWN_MAX} more.</p>}
    </section>
  );
}

function Line({ alert, quiet }: { alert: Alert; quiet: boolean }) {
  return (
    <li class={quiet ? "quiet" : ""} data-alert={alert.object}>
      <Health value={alert.severity} />
      <span class="wrap">
        {alert.object && <a href={href(...alert.view)}>{readable(alert.object)}</a>} {alert.text}
        {alert.advice && <span class="advice"> {alert.advice}</span>}
        {!alert.object && (
          <>
            {" "}
            <a href={href(...alert.view)}>More</a>
          </>
        )}
      </span>
      <span class="quiet">{alert.at ? <Time at={alert.at} /> : "now"}</span>
      <Button class="small" aria-label={`${quiet ? "Recall" : "Acknowledge"}: ${alert.text}`} onClick={() => (quiet ? recall(alert) : acknowledge([alert]))}>
        {quiet ? "Recall" : "Acknowledge"}
      </Button>
    </li>
  );
}

// ---- figures

function Totals() {
  const { drives, ports, hosts } = box.value;
  const real = drives.filter((drive) => drive.isDrive);
  const functions = drives.flatMap((drive) => drive.functions).filter((one) => !one.fixed);
  const namespaces = drives.flatMap((drive) => drive.namespaces);
  const sum = (values: (number | undefined)[]) => values.reduce<number>((all, one) => all + (one ?? 0), 0);
  const capacity = sum(real.map((drive) => drive.resource?.CapacityBytes));
  const free = sum(real.map((drive) => drive.resource?.Oem?.Ebof?.UnallocatedBytes));
  const connected = hosts.filter((host) => host.connections.length);
  const running = tasks.value.filter((task) => ["Running", "Starting", "Pending", "New", "Stopping"].includes(task.TaskState ?? ""));
  const now = current.value.get(MANAGER);
  return (
    <div class="figures">
      <Figure title="Operations per second" value={count(iops(now))} view={["charts", "Target"]} />
      <Figure title="Bandwidth" value={rate(bytesOf(now))} view={["charts", "Target"]} />
      <Figure title="Latency, 99 %" value={latency(now?.LatencyP99)} view={["charts", "Target"]} />
      <Figure title="Capacity of drives" value={bytes(capacity)} view={["drives"]}>
        {capacity > 0 && <Meter value={((capacity - free) / capacity) * 100} label={`${bytes(capacity - free)} allocated`} />}
      </Figure>
      <Figure title="Drives" value={String(real.length)} view={["drives"]}>
        {drives.length > real.length && `and ${drives.length - real.length} plain subsystem${drives.length - real.length === 1 ? "" : "s"}`}
      </Figure>
      <Figure title="Functions" value={String(functions.length)} view={["box"]}>
        {functions.length > 0 && `${functions.filter((one) => one.port).length} at ports, ${functions.filter((one) => one.hosts.length).length} used`}
      </Figure>
      <Figure title="Namespaces" value={String(namespaces.length)} view={["namespaces"]}>
        {namespaces.length > 0 && `${bytes(sum(namespaces.map((one) => one.bytes)))} in all`}
      </Figure>
      <Figure title="Hosts connected" value={String(connected.length)} view={["hosts"]}>
        {hosts.length > connected.length && `of ${hosts.length} known`}
      </Figure>
      <Figure title="Ports" value={String(ports.length)} view={["ports"]}>
        {ports.some((port) => port.direct) && `${ports.filter((port) => port.direct).length} direct`}
      </Figure>
      <Figure title="Tasks running" value={String(running.length)} view={["tasks"]} />
    </div>
  );
}

function Figure({ title, value, view, children }: { title: string; value: string; view: string[]; children?: ComponentChildren }) {
  return (
    <a class="panel figure" href={href(...view)}>
      <span class="quiet">{title}</span>
      <strong>{value}</strong>
      <small class="quiet">{children || " "}</small>
    </a>
  );
}

/** So many of the busiest are listed. */
const BUSY_MAX = 8;

function Busiest() {
  const { drives } = box.value;
  const rows = drives
    .flatMap((drive) => drive.functions)
    .map((one) => ({ one, sample: current.value.get(one.uri) }))
    .filter(({ sample }) => iops(sample) > 0)
    .sort((a, b) => bytesOf(b.sample) + 4096 * iops(b.sample) - bytesOf(a.sample) - 4096 * iops(a.sample))
    .slice(0, BUSY_MAX);
  const kind: Kind = "Functions";
  if (!rows.length) return null;
  return (
    <section class="panel" aria-label="Busiest">
      <h2>Busiest</h2>
      <ul class="busiest">
        {rows.map(({ one, sample }) => (
          <li key={one.uri}>
            <a href={href("charts", kind, one.name)}>{readable(one.name)}</a>
            <span>{count(iops(sample))} IOPS</span>
            <span>{rate(bytesOf(sample))}</span>
            <span>{latency(sample?.LatencyP99)}</span>
            <span class="quiet">{one.hosts.map((host) => shortNqn(host.NQN ?? "")).join(", ")}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
