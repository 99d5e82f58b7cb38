//! One node of the picture.

import type { ComponentChildren } from "preact";
import { bytes as capacity, count, plural, readable, shortNqn, shortest } from "../ui/format";
import { Health } from "../ui/parts";
import { current, iops } from "../model/metrics";
import { beginDrag } from "./drag";
import { expand, onKey } from "./keys";
import type { Layout, Node } from "./layout";
import { cancelPick, dragged, drop, isExpanded, isFound, isTarget, moving, picked, selected, setExpanded, targetOf } from "./state";

export function NodeView({ node, layout, first }: { node: Node; layout: Layout; first: boolean }) {
  const isSelected = selected.value === node.key;
  const target = isTarget(node);
  const draggable = targetOf(node.key) !== undefined;
  const classes = [
    "node",
    node.kind,
    isSelected ? "selected" : "",
    picked.value === node.key || dragged.value?.key === node.key ? "picked" : "",
    target ? "target" : moving.value && moving.value !== node.key ? "aside" : "",
    dragged.value?.over === node.key ? "over" : "",
    draggable ? "draggable" : "",
    isFound(node) ? "found" : "",
  ];
  const click = () => {
    if (picked.value && target) return drop(picked.value, node.key);
    if (picked.value) cancelPick();
    selected.value = node.key;
    if (node.kind === "functions" || node.kind === "namespaces") expand(node);
  };
  return (
    <button
      type="button"
      class={classes.join(" ")}
      style={{ left: `${node.x}px`, top: `${node.y}px`, width: `${node.width}px`, height: `${node.height}px` }}
      data-node={node.key}
      data-focus={node.key}
      tabIndex={isSelected || (first && !selected.value) ? 0 : -1}
      aria-pressed={isSelected}
      title={node.host?.nqn ?? (node.kind === "drive" ? node.drive?.nqn : undefined)}
      onClick={click}
      onKeyDown={(event) => onKey(event, layout, node)}
      onPointerDown={(event) => beginDrag(event, node, layout.nodes)}
      onFocus={() => {
        if (!picked.value) selected.value = node.key;
      }}
    >
      <span class="unseen">{labelOf(node)}</span>
      <span class="node-shown" aria-hidden="true">
        <Content node={node} compact={layout.compact} roomy={layout.roomy} />
      </span>
      {draggable && (
        <span class="handle" data-handle aria-hidden="true">
          ⠿
        </span>
      )}
    </button>
  );
}

/** What a screen reader says, and a test looks for. */
export function labelOf(node: Node): string {
  if (node.host) return `host ${node.host.nqn}, ${plural(node.host.connections.length, "connection")}`;
  if (node.port) return `port ${node.port.name}, ${node.port.direct ? "direct" : "fabric"}`;
  if (node.function) {
    const one = node.function;
    const where = one.port ? `at port ${one.port}` : "at no port";
    return `function ${one.name}, ${one.online ? "online" : "offline"}, ${where}, ${plural(one.namespaces.length, "namespace")}`;
  }
  if (node.namespace) return `namespace ${node.namespace.name}, ${capacity(node.namespace.bytes)}`;
  if (node.kind === "functions") return `${plural(node.drive?.functions.length ?? 0, "function")} of ${node.drive?.name}: expand`;
  if (node.kind === "namespaces") return `${plural(node.drive?.namespaces.length ?? 0, "namespace")} of ${node.drive?.name}: expand`;
  return `drive ${node.drive?.name}, ${node.drive?.health || "health unknown"}`;
}

function Line({ name, children, mark }: { name: ComponentChildren; children?: ComponentChildren; mark?: ComponentChildren }) {
  return (
    <>
      <span class="node-name">
        {mark}
        {name}
      </span>
      {children && <span class="node-more">{children}</span>}
    </>
  );
}

function Content({ node, compact, roomy }: { node: Node; compact: boolean; roomy: boolean }) {
  if (node.host) {
    const { nqn, connections } = node.host;
    return (
      <Line name={compact ? shortNqn(nqn).replace(/^.*\.\./, "") : shortNqn(nqn)} mark={<Dot on={connections.length > 0} />}>
        {!compact && connections.length > 1 ? `${connections.length}×` : null}
      </Line>
    );
  }
  if (node.port) {
    return <Line name={node.port.name}>{compact ? null : <Rate uri={node.port.uri} other={roomy && node.port.direct ? "direct" : ""} unit={roomy} />}</Line>;
  }
  if (node.function) {
    return (
      <Line name={roomy ? readable(node.function.name) : node.function.short} mark={<Dot on={node.function.online} />}>
        {compact ? null : <Rate uri={node.function.uri} other={node.function.busy ? "busy" : ""} unit={roomy} />}
      </Line>
    );
  }
  if (node.namespace) {
    return <Line name={roomy ? readable(node.namespace.name) : node.namespace.short}>{compact ? null : capacity(node.namespace.bytes)}</Line>;
  }
  if (node.kind === "functions") return <Line name={compact ? `${node.drive?.functions.length} f` : plural(node.drive?.functions.length ?? 0, "function")}>{atPorts(node, !roomy)}</Line>;
  if (node.kind === "namespaces") return <Line name={roomy ? plural(node.drive?.namespaces.length ?? 0, "namespace") : `${node.drive?.namespaces.length} ns`} />;
  return <DriveContent node={node} compact={compact} roomy={roomy} />;
}

function atPorts(node: Node, compact: boolean): string | null {
  const used = node.drive?.functions.filter((one) => one.port).length ?? 0;
  return compact || !used ? null : `${used} at ports`;
}

function DriveContent({ node, compact, roomy }: { node: Node; compact: boolean; roomy: boolean }) {
  const drive = node.drive;
  if (!drive) return null;
  const tall = node.height > 90 && !compact;
  const capacityBytes = drive.resource?.CapacityBytes;
  return (
    <>
      <span class="drive-line">
        <Health value={drive.health} quiet />
        <span class="node-name">{shortest(drive.name)}</span>
        {roomy && capacityBytes !== undefined && <span class="node-more">{capacity(capacityBytes)}</span>}
      </span>
      {tall && (
        <span class="drive-line sub">
          <Rate uri={drive.uri ?? ""} other="" unit />
        </span>
      )}
      {tall && !roomy && capacityBytes !== undefined && <span class="drive-line sub">{capacity(capacityBytes)}</span>}
      {tall && drive.resource?.Oem?.Ebof?.UnallocatedBytes !== undefined && (
        <span class="drive-line sub">{capacity(drive.resource.Oem.Ebof.UnallocatedBytes)} free</span>
      )}
    </>
  );
}

function Dot({ on }: { on: boolean }) {
  return <span class={on ? "dot on" : "dot"} aria-hidden="true" />;
}

/** Commands a second now. Its own component, so that only it is drawn each second. */
function Rate({ uri, other, unit }: { uri: string; other: string; unit: boolean }) {
  const value = iops(current.value.get(uri));
  return <>{value > 0 ? `${count(value)}${unit ? " IOPS" : ""}` : other}</>;
}

export function ExpandButton({ drive }: { drive: string }) {
  const open = isExpanded(drive);
  return (
    <button type="button" class="small" aria-expanded={open} onClick={() => setExpanded(drive, !open)}>
      {open ? "Collapse" : "Expand"}
    </button>
  );
}
