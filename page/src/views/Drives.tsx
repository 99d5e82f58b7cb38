//! The drives: a table of all, and one with health, logs, firmware and what can be done with it.

import { mayAdminister } from "../api/session";
import type { DriveView } from "../model/box";
import { drives } from "../model/store";
import { href, route } from "../router";
import { bytes, readable } from "../ui/format";
import { Facts, Health, Meter, Table } from "../ui/parts";
import { AddDrive } from "./AddDrive";
import { DriveActions } from "./DriveActions";
import { DriveLogs } from "./DriveLogs";
import { Firmware } from "./Firmware";
import { type Smart, readSmart } from "./smart";
import { useResource } from "./use";

export function DrivesView() {
  const [, name] = route.value;
  const drive = drives.value.find((one) => one.name === name);
  if (name !== undefined) return drive ? <One key={drive.storage} drive={drive} /> : <p class="empty">There is no drive {name}.</p>;
  return <All />;
}

function used(drive: DriveView): number | undefined {
  const all = drive.resource?.CapacityBytes;
  const free = drive.resource?.Oem?.Ebof?.UnallocatedBytes;
  if (all === undefined) return undefined;
  return free === undefined ? drive.namespaces.reduce((sum, one) => sum + one.bytes, 0) : all - free;
}

function Usage({ drive }: { drive: DriveView }) {
  const all = drive.resource?.CapacityBytes ?? 0;
  const taken = used(drive);
  if (!all || taken === undefined) return <>–</>;
  return <Meter value={(taken / all) * 100} label={`${bytes(taken)} of ${bytes(all)}`} />;
}

function All() {
  const list = drives.value;
  const key = list.map((one) => one.uri).join();
  const { value: smart } = useResource(key, async () => new Map(await readSmart(list)), (origin) => origin.includes("/Drives/"));
  const of = (drive: DriveView): Smart | undefined => smart?.get(drive.uri ?? "");
  return (
    <>
      <div class="toolbar">
        <h1>Drives</h1>
      </div>
      <Table
        caption="Drives"
        rows={list}
        id={(drive) => drive.name}
        empty="The box has no drives."
        columns={[
          { title: "Drive", by: (drive) => drive.name, cell: (drive) => <a href={href("drives", drive.name)} title={drive.nqn}>{readable(drive.name)}</a> },
          { title: "Health", by: (drive) => drive.health, cell: (drive) => <Health value={drive.health} /> },
          { title: "Allocated", by: (drive) => (drive.resource?.CapacityBytes ?? 0) - (drive.resource?.Oem?.Ebof?.UnallocatedBytes ?? 0), cell: (drive) => <Usage drive={drive} /> },
          { title: "Wear", number: true, by: (drive) => of(drive)?.used ?? wear(drive), cell: (drive) => percent(of(drive)?.used ?? wear(drive)) },
          { title: "Temp.", number: true, by: (drive) => of(drive)?.celsius, cell: (drive) => celsius(of(drive)?.celsius) },
          { title: "Functions", number: true, extra: true, cell: (drive) => drive.functions.length },
          { title: "Namespaces", number: true, extra: true, cell: (drive) => drive.namespaces.length },
          { title: "Serial", extra: true, by: (drive) => drive.resource?.SerialNumber, cell: (drive) => <code class="whole-word">{drive.resource?.SerialNumber ?? "–"}</code> },
          { title: "Firmware", extra: true, cell: (drive) => drive.resource?.FirmwareVersion ?? "–" },
        ]}
      />
      {mayAdminister() && <AddDrive />}
    </>
  );
}

function wear(drive: DriveView): number | undefined {
  const left = drive.resource?.PredictedMediaLifeLeftPercent;
  return left === undefined || left === null ? undefined : 100 - left;
}

function percent(value: number | undefined): string {
  return value === undefined ? "–" : `${value} %`;
}

function celsius(value: number | undefined): string {
  return value === undefined ? "–" : `${value} °C`;
}

function One({ drive }: { drive: DriveView }) {
  const { value: smart, problem } = useResource(
    drive.uri ?? "",
    async () => (await readSmart([drive]))[0]?.[1],
    (origin) => origin.includes(`/Drives/`),
  );
  return (
    <>
      <div class="toolbar">
        <h1>
          {drive.isDrive ? "Drive" : "Subsystem"} {readable(drive.name)} <Health value={drive.health} />
        </h1>
        <div class="tools">
          {drive.isDrive && <a href={href("charts", "Drives", drive.name)}>Charts</a>}
          <a href={href("drives")}>All drives</a>
        </div>
      </div>
      {problem && <p class="bad">{problem}</p>}
      {drive.resource?.Status?.Conditions?.map((one) => (
        <p class="warning">
          {one.Message} {one.Resolution}
        </p>
      ))}
      {drive.isDrive ? <Parts drive={drive} smart={smart} /> : <Plain drive={drive} />}
    </>
  );
}

/** A plain subsystem has neither health nor firmware. */
function Plain({ drive }: { drive: DriveView }) {
  const hosts = drive.functions.flatMap((one) => one.hosts);
  return (
    <div class="cards">
      <section class="panel">
        <h2>Subsystem</h2>
        <Facts
          rows={[
            ["NQN", <code>{drive.nqn}</code>],
            ["Namespaces", !drive.namespaces.length ? "none" : drive.namespaces.map((one) => <a class="block" href={href("namespaces", one.name)}>{`${one.short}, ${bytes(one.bytes)}`}</a>)],
            ["Hosts", !hosts.length ? "none" : hosts.map((host) => <code class="block">{host.NQN}</code>)],
          ]}
        />
      </section>
    </div>
  );
}

function Parts({ drive, smart }: { drive: DriveView; smart: Smart | undefined }) {
  return (
    <>
      <div class="cards">
        <section class="panel">
          <h2>Drive</h2>
          <Facts
            rows={[
              ["Subsystem", <code>{drive.nqn || "–"}</code>],
              ["Allocated", <Usage drive={drive} />],
              ["Model", drive.resource?.Model],
              ["Serial number", <code>{drive.resource?.SerialNumber ?? "–"}</code>],
              ["Backing", drive.resource?.Oem?.Ebof?.Backing ? <code>{drive.resource.Oem.Ebof.Backing}</code> : undefined],
              ["Added", drive.resource?.Oem?.Ebof?.IsAdded ? "while the target runs: not in its file" : "by the configuration"],
              ["Functions", drive.functions.length],
              ["Namespaces", <a href={href("namespaces")}>{drive.namespaces.length}</a>],
            ]}
          />
        </section>
        <section class="panel">
          <h2>Health</h2>
          {drive.resource?.Operations?.map((one) => (
            <p class="warning">
              {one.Operation}: {one.PercentageComplete} %
            </p>
          ))}
          {smart?.warnings.map((text) => <p class="bad">{text}</p>)}
          <Facts rows={smart?.rows ?? [["Metrics", "–"]]} />
        </section>
        <Firmware drive={drive} />
        <DriveActions drive={drive} />
      </div>
      <div class="logs">
        <DriveLogs logs={smart?.logs} />
      </div>
    </>
  );
}
