//! The hosts: those that may connect, what they may connect to, and those that are connected.

import { useSignal } from "@preact/signals";
import { allow, describeHost, forbid, forgetHost } from "../actions/hosts";
import { propose } from "../actions/change";
import { NVMEOF } from "../api/addresses";
import { ids, members } from "../api/client";
import { mayChange } from "../api/session";
import type { Connection } from "../api/types";
import { type DriveView, type HostView, hostsEndpointOf } from "../model/box";
import { box, drives } from "../model/store";
import { href } from "../router";
import { readable, shortNqn } from "../ui/format";
import { Badge, Button, Field, Select, Table, Time } from "../ui/parts";
import { useResource } from "./use";

/** What hosts may do: each is a connection of the fabric. */
interface Permission {
  resource: Connection;
  drive: DriveView | undefined;
  /** `undefined` is every host. */
  host: HostView | undefined;
}

export function HostsView() {
  const { hosts } = box.value;
  const { value, problem } = useResource(
    "permissions",
    () => members<Connection>(`${NVMEOF}/Connections`),
    () => true,
  );
  const permissions = (value ?? []).map((one) => permissionOf(one, drives.value, hosts));
  return (
    <>
      <div class="toolbar">
        <h1>Hosts</h1>
      </div>
      {problem && <p class="bad">{problem}</p>}
      <Hosts hosts={hosts} />
      <h2>Who may connect</h2>
      <Permissions rows={permissions} />
      {mayChange() && (
        <div class="cards">
          <Describe />
          <Allow hosts={hosts} />
        </div>
      )}
      <h2>Connections</h2>
      <Connections hosts={hosts} />
    </>
  );
}

function permissionOf(resource: Connection, all: DriveView[], hosts: HostView[]): Permission {
  const targets = ids(resource.Links?.TargetEndpoints);
  const initiators = ids(resource.Links?.InitiatorEndpoints);
  return {
    resource,
    drive: all.find((drive) => targets.includes(hostsEndpointOf(drive) ?? "")),
    host: resource.Oem?.Ebof?.AnyHost ? undefined : hosts.find((host) => host.uri && initiators.includes(host.uri)),
  };
}

function Hosts({ hosts }: { hosts: HostView[] }) {
  return (
    <Table
      caption="Hosts"
      rows={hosts}
      id={(host) => host.nqn}
      empty="No host is known, and none is connected."
      columns={[
        { title: "Host", by: (host) => host.nqn, cell: (host) => <code>{host.nqn}</code> },
        {
          title: "State",
          cell: (host) => (host.connections.length ? <Badge tone="good">connected</Badge> : <Badge>not connected</Badge>),
        },
        { title: "Controllers", number: true, extra: true, cell: (host) => host.connections.length },
        { title: "Actions", bare: true, cell: (host) => <HostButtons host={host} /> },
      ]}
    />
  );
}

function HostButtons({ host }: { host: HostView }) {
  const change = forgetHost(host);
  return (
    <span class="buttons">
      <a href={href("charts", "Hosts", host.nqn)} aria-label={`Charts of ${host.nqn}`}>
        Charts
      </a>
      {change && mayChange() && (
        <Button class="small danger" aria-label={change.title} onClick={() => void propose(change)}>
          Remove …
        </Button>
      )}
    </span>
  );
}

function Permissions({ rows }: { rows: Permission[] }) {
  const hostOf = ({ host, resource }: Permission) =>
    host ? <code>{host.nqn}</code> : resource.Oem?.Ebof?.AnyHost ? <Badge tone="warn">every host</Badge> : resource.Name;
  return (
    <Table
      caption="Who may connect"
      rows={rows}
      id={(one) => one.resource["@odata.id"]}
      empty="No host may connect."
      columns={[
        { title: "Subsystem", by: (one) => one.drive?.name, cell: (one) => readable(one.drive?.name ?? one.resource.Name ?? "") },
        { title: "Host", cell: hostOf },
        {
          title: "Reaches",
          extra: true,
          cell: (one) => ids(one.resource.VolumeInfo?.map((each) => each.Volume)).map((uri) => uri.split("/").at(-1)).join(", ") || "no namespace",
        },
        {
          title: "Actions",
          bare: true,
          cell: (one) =>
            mayChange() && (
              <Button
                class="small danger"
                aria-label={`Forbid ${one.host?.nqn ?? "every host"} at ${one.drive?.name ?? one.resource.Name}`}
                onClick={() => void propose(forbid(one.resource))}
              >
                Forbid …
              </Button>
            ),
        },
      ]}
    />
  );
}

function Describe() {
  const nqn = useSignal("");
  const submit = (event: Event) => {
    event.preventDefault();
    void propose(describeHost(nqn.value.trim(), () => (nqn.value = "")));
  };
  return (
    <form class="panel form" onSubmit={submit}>
      <h2>Add a host</h2>
      <Field
        label="NQN"
        name="nqn"
        value={nqn.value}
        hint="as the host names itself, for example in /etc/nvme/hostnqn"
        onInput={(value) => (nqn.value = value)}
      />
      <Button type="submit" disabled={!nqn.value.trim()}>
        Add …
      </Button>
    </form>
  );
}

const EVERY_HOST = "*";

function Allow({ hosts }: { hosts: HostView[] }) {
  const host = useSignal("");
  const drive = useSignal("");
  const known = hosts.filter((one) => one.uri);
  const targets = drives.value.filter((one) => hostsEndpointOf(one));
  const target = targets.find((one) => one.name === drive.value) ?? targets[0];
  const who = known.find((one) => one.nqn === host.value) ?? (host.value === EVERY_HOST ? undefined : known[0]);
  if (!target) return null;
  const submit = (event: Event) => {
    event.preventDefault();
    void propose(allow(who, target));
  };
  return (
    <form class="panel form" onSubmit={submit}>
      <h2>Allow a host to connect</h2>
      <Select
        label="Host"
        name="host"
        value={who?.nqn ?? EVERY_HOST}
        options={[...known.map((one): [string, string] => [one.nqn, one.nqn]), [EVERY_HOST, "every host"]]}
        onChange={(value) => (host.value = value)}
      />
      <Select
        label="To the subsystem of"
        name="drive"
        value={target.name}
        options={targets.map((one) => [one.name, readable(one.name)])}
        onChange={(value) => (drive.value = value)}
      />
      <Button type="submit">Allow …</Button>
    </form>
  );
}

function Connections({ hosts }: { hosts: HostView[] }) {
  const rows = hosts.flatMap((host) =>
    host.connections.map((one, at) => ({ ...one, nqn: host.nqn, id: `${host.nqn} ${one.function} ${at}` })),
  );
  return (
    <>
      <Table
        caption="Connections"
        rows={rows}
        id={(row) => row.id}
        empty="No host is connected."
        columns={[
          { title: "Function", by: (row) => row.function, cell: (row) => readable(row.function) },
          { title: "Host", by: (row) => row.nqn, cell: (row) => <code title={row.nqn}>{shortNqn(row.nqn)}</code> },
          { title: "Port", cell: (row) => row.port },
          { title: "Address", extra: true, by: (row) => row.address, cell: (row) => <code>{row.address}</code> },
          { title: "I/O queues", number: true, extra: true, cell: (row) => row.queues },
          { title: "Since", by: (row) => row.since, cell: (row) => <Time at={row.since} /> },
        ]}
      />
      <p class="quiet">
        A host that is missing here may have been <a href={href("refused")}>refused</a>.
      </p>
    </>
  );
}
