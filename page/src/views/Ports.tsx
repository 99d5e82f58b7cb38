//! The ports, and which functions they have.

import { functions, ports } from "../model/store";
import { href } from "../router";
import { count, rate } from "../ui/format";
import { bytes, current, iops } from "../model/metrics";
import { Badge, Health, Table } from "../ui/parts";

export function PortsView() {
  const of = (name: string) => functions.value.filter((one) => one.port === name).map((one) => one.name);
  return (
    <>
      <div class="toolbar">
        <h1>Ports</h1>
      </div>
      <Table
        caption="Ports"
        rows={ports.value}
        id={(port) => port.name}
        empty="The target has no ports."
        columns={[
          { title: "Port", cell: (port) => port.name },
          { title: "Kind", by: (port) => (port.direct ? "direct" : "fabric"), cell: (port) => <Badge>{port.direct ? "direct" : "fabric"}</Badge> },
          { title: "Health", by: (port) => port.resource?.Status?.Health ?? "", cell: (port) => <Health value={port.resource?.Status?.Health} /> },
          { title: "Listens at", extra: true, cell: (port) => <code>{port.listen || "–"}</code> },
          { title: "Functions", cell: (port) => of(port.name).join(", ") || "none" },
          { title: "IOPS", number: true, by: (port) => iops(current.value.get(port.uri)), cell: (port) => count(iops(current.value.get(port.uri))) },
          { title: "Bandwidth", number: true, extra: true, by: (port) => bytes(current.value.get(port.uri)), cell: (port) => rate(bytes(current.value.get(port.uri))) },
          {
            title: "Charts",
            bare: true,
            cell: (port) => <a href={href("charts", "Ports", port.name)} aria-label={`Charts of ${port.name}`}>Charts</a>,
          },
        ]}
      />
    </>
  );
}
