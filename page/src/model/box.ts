//! What there is in the box as the page shows it, read from Redfish resources. Knows no signals and
//! no elements.

import { CHASSIS, NVMEOF, ROOT } from "../api/addresses";
import { ServiceError, ids, members } from "../api/client";
import type { ConnectedHost, Controller, Drive, Endpoint, Port, Storage, Volume, Zone } from "../api/types";

export interface DriveView {
  /** `d3`, or the NQN of a subsystem that is no drive's. */
  name: string;
  storage: string;
  uri: string | undefined;
  nqn: string;
  isDrive: boolean;
  health: string;
  resource: Drive | undefined;
  /** The action that resets its primary controller. */
  reset: string | undefined;
  functions: FunctionView[];
  namespaces: NamespaceView[];
  /** Why it could not be read. */
  problem: string | undefined;
}

export interface FunctionView {
  /** `d3/vf2`. */
  name: string;
  short: string;
  uri: string;
  drive: string;
  /** A primary controller, or that of a plain subsystem: it stays at its ports. */
  fixed: boolean;
  online: boolean;
  port: string | undefined;
  nqn: string;
  weight: number | undefined;
  iopsLimit: number | null | undefined;
  bytesLimit: number | null | undefined;
  minimumIops: number | null | undefined;
  queues: number | undefined;
  interrupts: number | undefined;
  namespaces: string[];
  hosts: ConnectedHost[];
  busy: boolean;
  etag: string | undefined;
  attach: string | undefined;
  detach: string | undefined;
}

export interface NamespaceView {
  /** `d3/ns4`. */
  name: string;
  short: string;
  uri: string;
  drive: string;
  bytes: number;
  blockBytes: number;
  shared: boolean;
  protected: boolean;
  uuid: string;
  /** URIs of the functions that it is attached to. */
  functions: string[];
  hosts: string[];
  etag: string | undefined;
  resource: Volume;
}

export interface PortView {
  name: string;
  id: string;
  uri: string;
  /** The zone that is PATCHed to give functions to it. */
  zone: string | undefined;
  zoneEtag: string | undefined;
  endpoints: string[];
  direct: boolean;
  listen: string;
  resource: Port | undefined;
}

export interface HostView {
  nqn: string;
  uri: string | undefined;
  connections: { function: string; port: string; address: string; queues: number; since: string | undefined }[];
}

export interface Box {
  drives: DriveView[];
  ports: PortView[];
  hosts: HostView[];
}

export const emptyBox: Box = { drives: [], ports: [], hosts: [] };

const FABRICS = ["NVMeoF", "PCIe"] as const;
/** Requests that run beside each other: browsers have six connections, and the stream needs one. */
const PARALLEL = 4;

export async function readDrive(storage: Storage, drive: Drive | undefined): Promise<DriveView> {
  const name = drive?.Name ?? storage.Name ?? storage.Id ?? "";
  const view: DriveView = {
    name,
    storage: storage["@odata.id"],
    uri: drive?.["@odata.id"],
    nqn: storage.Identifiers?.find((one) => one.DurableNameFormat === "NQN")?.DurableName ?? "",
    isDrive: drive !== undefined,
    health: drive?.Status?.Health ?? storage.Status?.Health ?? "",
    resource: drive,
    reset: storage.Actions?.Oem?.["#EbofStorage.ResetDrive"]?.target,
    functions: [],
    namespaces: [],
    problem: undefined,
  };
  try {
    const [controllers, volumes] = await Promise.all([
      members<Controller>(`${view.storage}/Controllers`),
      members<Volume>(`${view.storage}/Volumes`),
    ]);
    view.functions = controllers.map((one) => functionView(name, one)).sort(byNumber);
    view.namespaces = volumes.map((one) => namespaceView(name, one)).sort(byNumber);
  } catch (error) {
    // Without an answer nothing is known of it: what was known stays.
    if (error instanceof ServiceError && error.status === 0) throw error;
    view.problem = error instanceof Error ? error.message : String(error);
  }
  return view;
}

/** `vf2` comes before `vf10`, and `pf` first. */
export function byNumber(a: { name: string }, b: { name: string }): number {
  return a.name.localeCompare(b.name, "en", { numeric: true });
}

function functionView(drive: string, one: Controller): FunctionView {
  const oem = one.Oem?.Ebof ?? {};
  const short = one.Id ?? "";
  // A primary controller is called like its drive.
  const name = oem.Object?.includes("/vf") ? oem.Object : `${drive}/${short}`;
  return {
    name,
    short,
    uri: one["@odata.id"],
    drive,
    fixed: !short.startsWith("vf"),
    online: oem.State ? oem.State === "Online" : one.Status?.State === "Enabled",
    port: oem.Port ?? undefined,
    nqn: oem.NQN ?? "",
    weight: oem.Weight,
    iopsLimit: oem.IOPSLimit,
    bytesLimit: oem.BytesPerSecondLimit,
    minimumIops: oem.MinimumIOPS,
    queues: oem.QueuePairs,
    interrupts: oem.InterruptVectors,
    namespaces: ids(one.Links?.AttachedVolumes),
    hosts: oem.Hosts ?? [],
    busy: Boolean(oem.Task),
    etag: one["@odata.etag"],
    attach: one.Actions?.["#StorageController.AttachNamespaces"]?.target,
    detach: one.Actions?.["#StorageController.DetachNamespaces"]?.target,
  };
}

function namespaceView(drive: string, one: Volume): NamespaceView {
  const name = one.Oem?.Ebof?.Object ?? one.Name ?? one.Id ?? "";
  return {
    name,
    short: one.Id ?? name,
    uri: one["@odata.id"],
    drive,
    bytes: one.CapacityBytes ?? 0,
    blockBytes: one.BlockSizeBytes ?? 0,
    shared: one.NVMeNamespaceProperties?.IsShareable ?? false,
    protected: one.Oem?.Ebof?.WriteProtected ?? false,
    uuid: one.Identifiers?.find((each) => each.DurableNameFormat === "UUID")?.DurableName ?? "",
    functions: ids(one.Links?.Controllers),
    hosts: one.Oem?.Ebof?.AttachedHosts ?? [],
    etag: one["@odata.etag"],
    resource: one,
  };
}

/** Runs `work` for each item, a few at a time, in order. */
export async function inTurns<I, O>(items: I[], work: (item: I) => Promise<O>): Promise<O[]> {
  const out: O[] = new Array(items.length);
  let next = 0;
  const lane = async () => {
    while (next < items.length) {
      const at = next++;
      out[at] = await work(items[at] as I);
    }
  };
  await Promise.all(Array.from({ length: Math.min(PARALLEL, items.length) }, lane));
  return out;
}

export async function readDrives(only?: (storage: string) => boolean): Promise<DriveView[]> {
  const [storages, drives] = await Promise.all([
    members<Storage>(`${ROOT}/Storage`),
    members<Drive>(`${CHASSIS}/Drives`),
  ]);
  const wanted = only ? storages.filter((one) => only(one["@odata.id"])) : storages;
  const views = await inTurns(wanted, (storage) => {
    const links = ids(storage.Drives);
    const drive = drives.find((one) => links.includes(one["@odata.id"]) || one.Id === storage.Id);
    return readDrive(storage, drive);
  });
  return views.sort((a, b) => Number(b.isDrive) - Number(a.isDrive) || byNumber(a, b));
}

export async function readPorts(): Promise<PortView[]> {
  const [ports, ...zones] = await Promise.all([
    members<Port>(`${CHASSIS}/NetworkAdapters/fabric/Ports`),
    ...FABRICS.map((fabric) => members<Zone>(`${ROOT}/Fabrics/${fabric}/Zones`)),
  ]);
  const views = new Map<string, PortView>();
  for (const port of ports) views.set(port.Id ?? "", portView(port));
  zones.forEach((list, at) => {
    for (const zone of list) addZone(views, zone, FABRICS[at] === "PCIe");
  });
  return [...views.values()].sort((a, b) => Number(a.direct) - Number(b.direct) || byNumber(a, b));
}

function portView(port: Port): PortView {
  const oem = port.Oem?.Ebof ?? {};
  return {
    name: oem.Object ?? port.Name ?? port.Id ?? "",
    id: port.Id ?? "",
    uri: port["@odata.id"],
    zone: undefined,
    zoneEtag: undefined,
    endpoints: [],
    direct: oem.Listen?.startsWith("vfio-user:") ?? false,
    listen: oem.Listen ?? "",
    resource: port,
  };
}

function addZone(views: Map<string, PortView>, zone: Zone, direct: boolean): void {
  const id = zone.Id ?? "";
  const view = views.get(id) ?? {
    // A direct port is no port of the adapter; metrics name it like one.
    ...portView({ "@odata.id": `${CHASSIS}/NetworkAdapters/fabric/Ports/${id}`, Id: id, Name: zone.Oem?.Ebof?.Object ?? zone.Name ?? id }),
    resource: undefined,
  };
  views.set(id, {
    ...view,
    direct: direct || view.direct,
    zone: zone["@odata.id"],
    zoneEtag: zone["@odata.etag"],
    endpoints: ids(zone.Links?.Endpoints),
  });
}

export async function readHostEndpoints(): Promise<Endpoint[]> {
  const all = await members<Endpoint>(`${NVMEOF}/Endpoints`);
  return all.filter(
    (one) => one.Id?.startsWith("host-") || one.ConnectedEntities?.some((entity) => entity.EntityRole === "Initiator"),
  );
}

/** Hosts are those that are configured, and those that are connected. */
export function hostViews(drives: DriveView[], endpoints: Endpoint[]): HostView[] {
  const views = new Map<string, HostView>();
  const view = (nqn: string) => {
    let one = views.get(nqn);
    if (!one) views.set(nqn, (one = { nqn, uri: undefined, connections: [] }));
    return one;
  };
  for (const endpoint of endpoints) {
    const nqn = endpoint.Identifiers?.find((one) => one.DurableNameFormat === "NQN")?.DurableName;
    if (nqn) view(nqn).uri = endpoint["@odata.id"];
  }
  for (const each of drives.flatMap((drive) => drive.functions)) {
    for (const host of each.hosts) {
      view(host.NQN ?? "?").connections.push({
        function: each.name,
        port: host.Port ?? each.port ?? "",
        address: host.Address ?? "",
        queues: host.IOQueues ?? 0,
        since: host.ConnectedSince,
      });
    }
  }
  return [...views.values()].sort((a, b) => a.nqn.localeCompare(b.nqn));
}

/** The endpoint of a function in the fabric of a port. */
export function endpointOf(one: FunctionView, port: PortView): string {
  return endpointIn(port.zone?.includes("/Fabrics/PCIe/") ? "PCIe" : "NVMeoF", one);
}

/** The endpoint that hosts of a drive's own subsystem connect to. */
export function hostsEndpointOf(drive: DriveView): string | undefined {
  const one = drive.functions.find((each) => each.fixed);
  return one && endpointIn("NVMeoF", one);
}

function endpointIn(fabric: (typeof FABRICS)[number], one: FunctionView): string {
  const drive = one.uri.split("/").at(-3) ?? one.drive;
  const id = one.uri.split("/").at(-1) ?? one.short;
  return `${ROOT}/Fabrics/${fabric}/Endpoints/${drive}-${id}`;
}
