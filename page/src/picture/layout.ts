//! Where the nodes and lines of the picture are. Pure: a box, a width and what is expanded come in,
//! coordinates come out.

import type { Box, DriveView, FunctionView, HostView, NamespaceView, PortView } from "../model/box";
import { endpointOf } from "../model/box";

export const COLUMNS = ["Hosts", "Ports", "Functions", "Namespaces", "Drives"] as const;

export type Kind = "host" | "port" | "function" | "functions" | "namespace" | "namespaces" | "drive";

export interface Node {
  key: string;
  kind: Kind;
  column: number;
  x: number;
  y: number;
  width: number;
  height: number;
  host?: HostView;
  port?: PortView;
  function?: FunctionView;
  namespace?: NamespaceView;
  drive?: DriveView;
}

export interface Edge {
  key: string;
  from: Node;
  to: Node;
  /** The function whose traffic passes here. */
  uri: string | undefined;
  live: boolean;
}

export interface Layout {
  nodes: Node[];
  edges: Edge[];
  height: number;
  columnWidth: number;
  gap: number;
  /** Narrow columns: short names only. */
  compact: boolean;
  /** Room for whole names beside numbers. */
  roomy: boolean;
  /** How high a row is. */
  row: number;
}

const ROW = 30;
/** Boxes with more drives have lower rows while nothing is expanded. */
const DENSE_FROM = 12;
const DENSE_ROW = 26;
const ROW_GAP = 4;
const BLOCK_GAP = 14;
const SPREAD_MAX = 90;
const COLUMN_MAX = 290;
const COMPACT_BELOW = 560;
const ROOMY_FROM = 168;

export function keyOf(kind: Kind, name: string): string {
  return `${kind}:${name}`;
}

/** Whether a name, or what belongs to it, is looked for. */
export function matches(drive: DriveView, words: string): boolean {
  const text = [
    drive.name,
    drive.nqn,
    ...drive.functions.flatMap((one) => [one.name, one.port ?? "", ...one.hosts.map((host) => host.NQN ?? "")]),
    ...drive.namespaces.map((one) => one.name),
  ];
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.some((each) => each.toLowerCase().includes(word)));
}

export function layOut(box: Box, drives: DriveView[], expanded: (drive: string) => boolean, width: number): Layout {
  const compact = width < COMPACT_BELOW;
  const gap = compact ? 14 : Math.max(30, Math.min(110, width * 0.05), (width - 5 * COLUMN_MAX) / 4);
  const columnWidth = Math.floor((width - 4 * gap) / 5);
  const row = drives.length > DENSE_FROM && !drives.some((drive) => expanded(drive.name)) ? DENSE_ROW : ROW;
  const place = new Placer(columnWidth, gap, row);
  let y = 0;
  let gapBelow = 0;
  for (const drive of drives) {
    const open = expanded(drive.name);
    // Sixteen drives that are collapsed are on one screen.
    gapBelow = open ? BLOCK_GAP : ROW_GAP;
    y = place.block(drive, open, y) + gapBelow;
  }
  const height = Math.max(0, y - gapBelow);
  const portNodes = box.ports.map((port) => place.make("port", 1, port.name, { port }));
  const hostNodes = box.hosts.map((host) => place.make("host", 0, host.nqn, { host }));
  place.linkFunctions(drives, portNodes);
  spread(portNodes, height);
  place.linkHosts(hostNodes, portNodes);
  spread(hostNodes, height);
  const bottom = Math.max(0, ...place.nodes.map((node) => node.y + node.height));
  return { nodes: place.nodes, edges: place.edges, height: bottom, columnWidth, gap, compact, roomy: columnWidth >= ROOMY_FROM, row };
}

class Placer {
  readonly nodes: Node[] = [];
  readonly edges: Edge[] = [];
  /** The node that shows a function or namespace, by its URI: a summary where a drive is collapsed. */
  readonly #shown = new Map<string, Node>();

  constructor(
    readonly columnWidth: number,
    readonly gap: number,
    readonly row: number,
  ) {}

  make(kind: Kind, column: number, name: string, what: Partial<Node>, y = 0, height = this.row): Node {
    const x = column * (this.columnWidth + this.gap);
    const node: Node = { key: keyOf(kind, name), kind, column, x, y, width: this.columnWidth, height, ...what };
    this.nodes.push(node);
    return node;
  }

  link(from: Node, to: Node, uri: string | undefined, live: boolean): void {
    const key = `${from.key}>${to.key}`;
    const known = this.edges.find((edge) => edge.key === key);
    if (known) known.live ||= live;
    else this.edges.push({ key, from, to, uri, live });
  }

  /** A drive with its functions and namespaces; returns where it ends. */
  block(drive: DriveView, open: boolean, top: number): number {
    const functions = open ? drive.functions : [];
    const namespaces = open ? drive.namespaces : [];
    const rows = Math.max(1, functions.length, namespaces.length);
    const step = this.row + ROW_GAP;
    const height = rows * step - ROW_GAP;
    const at = (index: number, of: number) => top + ((rows - of) * step) / 2 + index * step;
    functions.forEach((one, index) => {
      const node = this.make("function", 2, one.name, { function: one }, at(index, functions.length));
      this.#shown.set(one.uri, node);
    });
    if (!open) this.#summaries(drive, top);
    namespaces.forEach((one, index) => {
      const node = this.make("namespace", 3, one.name, { namespace: one }, at(index, namespaces.length));
      this.#shown.set(one.uri, node);
    });
    const node = this.make("drive", 4, drive.name, { drive }, top, height);
    this.#within(drive, node);
    return top + height;
  }

  #summaries(drive: DriveView, top: number): void {
    if (drive.functions.length) {
      const node = this.make("functions", 2, drive.name, { drive }, top);
      for (const one of drive.functions) this.#shown.set(one.uri, node);
    }
    if (drive.namespaces.length) {
      const node = this.make("namespaces", 3, drive.name, { drive }, top);
      for (const one of drive.namespaces) this.#shown.set(one.uri, node);
    }
  }

  #within(drive: DriveView, driveNode: Node): void {
    for (const namespace of drive.namespaces) {
      const to = this.#shown.get(namespace.uri);
      if (!to) continue;
      this.link(to, driveNode, undefined, false);
      for (const uri of namespace.functions) {
        const from = this.#shown.get(uri);
        const one = drive.functions.find((each) => each.uri === uri);
        if (from) this.link(from, to, uri, (one?.hosts.length ?? 0) > 0);
      }
    }
  }

  linkFunctions(drives: DriveView[], ports: Node[]): void {
    for (const one of drives.flatMap((drive) => drive.functions)) {
      const to = this.#shown.get(one.uri);
      for (const node of ports) {
        const port = node.port;
        if (!to || !port) continue;
        const given = one.port === port.name || port.endpoints.includes(endpointOf(one, port));
        if (given) this.link(node, to, one.uri, one.hosts.length > 0);
      }
    }
  }

  linkHosts(hosts: Node[], ports: Node[]): void {
    for (const node of hosts) {
      for (const connection of node.host?.connections ?? []) {
        const port = ports.find((each) => each.port?.name === connection.port);
        if (port) this.link(node, port, undefined, true);
      }
    }
  }
}

/** Spreads the nodes of a column over a height, in their order: they stay when functions move. */
function spread(nodes: Node[], height: number): void {
  const own = nodes.reduce((sum, node) => sum + node.height, 0);
  const gap = Math.max(ROW_GAP, Math.min(SPREAD_MAX, (height - own) / (nodes.length + 1)));
  const taken = own + (nodes.length - 1) * gap;
  let y = Math.max(0, (height - taken) / 2);
  for (const node of nodes) {
    node.y = y;
    y += node.height + gap;
  }
}

/** A line with horizontal ends. */
export function curve(edge: Edge): string {
  const x1 = edge.from.x + edge.from.width;
  const y1 = edge.from.y + edge.from.height / 2;
  const x2 = edge.to.x;
  const y2 = edge.to.kind === "drive" ? clamp(y1, edge.to) : edge.to.y + edge.to.height / 2;
  const bend = (x2 - x1) / 2;
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}

/** Lines end at a drive where they come from, as far as it is tall. */
function clamp(y: number, node: Node): number {
  return Math.max(node.y + 10, Math.min(node.y + node.height - 10, y));
}

/** The edges that lead to a node from either side. */
export function related(layout: Layout, key: string): Set<string> {
  const out = new Set<string>();
  const walk = (at: string, forward: boolean) => {
    for (const edge of layout.edges) {
      const [near, far] = forward ? [edge.from, edge.to] : [edge.to, edge.from];
      if (near.key === at && !out.has(edge.key)) {
        out.add(edge.key);
        walk(far.key, forward);
      }
    }
  };
  walk(key, true);
  walk(key, false);
  return out;
}
