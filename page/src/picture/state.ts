//! What is selected, picked up, dragged and expanded in the picture.

import { computed, signal } from "@preact/signals";
import { attach, giveToPort } from "../actions/box";
import { propose } from "../actions/change";
import type { Box, DriveView } from "../model/box";
import { box, drives, functions, namespaces, ports } from "../model/store";
import { announce } from "../ui/live";
import { type Kind, type Node, keyOf, matches } from "./layout";

/** Boxes with so many drives are shown expanded. */
const EXPANDED_DRIVES_MAX = 4;

export const selected = signal<string | null>(null);
/** What waits for its target: a function for a port, a namespace for a function. */
export const picked = signal<string | null>(null);
export const dragged = signal<{ key: string; x: number; y: number; over: string | null } | null>(null);
export const filter = signal("");
const toggled = signal<ReadonlyMap<string, boolean>>(new Map());

/** Only functions that a host has, and their namespaces. */
export const onlyConnected = signal(false);

export const shownDrives = computed<DriveView[]>(() => {
  const words = filter.value.trim();
  const found = words ? drives.value.filter((drive) => matches(drive, words)) : drives.value;
  return onlyConnected.value ? found.map(connectedPart).filter((drive) => drive.functions.length) : found;
});

/** The hosts and ports beside them: while something is looked for, hosts that have it or are called
 * so; all ports, which are targets, unless only what is connected is shown. */
export const shownBox = computed<Box>(() => {
  const words = filter.value.trim();
  const all = box.value;
  if (!words && !onlyConnected.value) return all;
  const shown = new Set(shownDrives.value.flatMap((drive) => drive.functions).map((one) => one.name));
  const hosts = all.hosts.filter(
    (host) => host.connections.some((one) => shown.has(one.function)) || (!onlyConnected.value && named(host.nqn, words)),
  );
  const used = new Set(hosts.flatMap((host) => host.connections).map((one) => one.port));
  return { ...all, hosts, ports: onlyConnected.value ? all.ports.filter((port) => used.has(port.name)) : all.ports };
});

function named(name: string, words: string): boolean {
  return words.toLowerCase().split(/\s+/).every((word) => name.toLowerCase().includes(word));
}

function connectedPart(drive: DriveView): DriveView {
  const functions = drive.functions.filter((one) => one.hosts.length);
  const uris = functions.map((one) => one.uri);
  return { ...drive, functions, namespaces: drive.namespaces.filter((one) => one.functions.some((uri) => uris.includes(uri))) };
}

/** Whether a node is one of those that are looked for, and not only beside one. */
export function isFound(node: Node): boolean {
  const words = filter.value.trim().toLowerCase();
  if (!words) return false;
  const { host, port, drive, function: one } = node;
  const text = `${nameOf(node.key)} ${host?.nqn ?? ""} ${port?.listen ?? ""} ${drive?.nqn ?? ""} ${one?.nqn ?? ""}`.toLowerCase();
  return words.split(/\s+/).some((word) => text.includes(word));
}

export function isExpanded(drive: string): boolean {
  const choice = toggled.value.get(drive);
  if (choice !== undefined) return choice;
  return shownDrives.value.length <= EXPANDED_DRIVES_MAX;
}

export function setExpanded(drive: string, open: boolean): void {
  toggled.value = new Map(toggled.value).set(drive, open);
}

export function setAllExpanded(open: boolean): void {
  toggled.value = new Map(drives.value.map((drive) => [drive.name, open]));
}

/** What can be put on what. */
const TARGETS: Partial<Record<Kind, Kind>> = { namespace: "function", function: "port" };

/** What a node can be put on; `undefined` for what stays where it is. */
export function targetOf(key: string): Kind | undefined {
  const name = nameOf(key);
  const fixed = kindOf(key) === "function" && functions.value.find((one) => one.name === name)?.fixed;
  return fixed ? undefined : TARGETS[kindOf(key)];
}

export function kindOf(key: string): Kind {
  return key.slice(0, key.indexOf(":")) as Kind;
}

export function nameOf(key: string): string {
  return key.slice(key.indexOf(":") + 1);
}

/** What is moved now, by keyboard or by pointer. */
export const moving = computed(() => picked.value ?? dragged.value?.key ?? null);

export function isTarget(node: Node): boolean {
  return moving.value !== null && targetOf(moving.value) === node.kind;
}

export function pick(key: string): void {
  const target = targetOf(key);
  if (!target) return;
  picked.value = key;
  if (target === "function") {
    const drive = namespaces.value.find((one) => one.name === nameOf(key))?.drive;
    if (drive) setExpanded(drive, true);
  }
  announce(`${nameOf(key)} is picked up. Choose a ${target} with the arrow keys; Enter puts it there, Escape cancels.`);
}

export function cancelPick(): void {
  if (!picked.value) return;
  announce(`${nameOf(picked.value)} stays where it is.`);
  picked.value = null;
}

/** Puts one node on another: what comes of it is the service's answer. */
export function drop(key: string, targetKey: string): void {
  picked.value = null;
  dragged.value = null;
  const name = nameOf(key);
  if (kindOf(key) === "function") {
    const one = functions.value.find((each) => each.name === name);
    const port = ports.value.find((each) => each.name === nameOf(targetKey));
    if (one && port) void propose(giveToPort(one, port));
  } else {
    const one = functions.value.find((each) => each.name === nameOf(targetKey));
    const namespace = namespaces.value.find((each) => each.name === name);
    if (one && namespace) void propose(attach(namespace, one));
  }
}

/** Selects what another view names. */
export function selectByName(kind: Kind, name: string): void {
  selected.value = keyOf(kind, name);
}
