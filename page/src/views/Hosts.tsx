//! The hosts: those that may connect, and those that are connected.

import { box } from "../model/store";
import { href } from "../router";
import { time } from "../ui/format";
import { Badge, Table } from "../ui/parts";

export function HostsView() {
  const { hosts } = box.value;
  const rows = hosts.flatMap((host) =>
    host.connections.map((one, at) => ({ ...one, nqn: host.nqn, id: `${host.nqn} ${one.function} ${at}` })),
  );
  return (
    <>
      <div class="toolbar">
        <h1>Hosts</h1>
      </div>
      <Table
        caption="Hosts"
        rows={hosts}
        id={(host) => host.nqn}
        empty="No host is configured, and none is connected."
        columns={[
          { title: "Host", cell: (host) => <code>{host.nqn}</code> },
          {
            title: "State",
            cell: (host) =>
              host.connections.length ? <Badge tone="good">connected</Badge> : <Badge>not connected</Badge>,
          },
          { title: "Controllers", number: true, cell: (host) => host.connections.length },
          { title: "Charts", bare: true, cell: (host) => <a href={href("charts", "Hosts", host.nqn)} aria-label={`Charts of ${host.nqn}`}>Charts</a> },
        ]}
      />
      <h2>Connections</h2>
      <Table
        caption="Connections"
        rows={rows}
        id={(row) => row.id}
        empty="No host is connected."
        columns={[
          { title: "Function", cell: (row) => row.function },
          { title: "Host", cell: (row) => <code>{row.nqn}</code> },
          { title: "Port", cell: (row) => row.port },
          { title: "Address", extra: true, cell: (row) => <code>{row.address}</code> },
          { title: "I/O queues", number: true, extra: true, cell: (row) => row.queues },
          { title: "Since", cell: (row) => time(row.since) },
        ]}
      />
      <p class="quiet">
        A host that is missing here may have been <a href={href("refused")}>refused</a>.
      </p>
    </>
  );
}
