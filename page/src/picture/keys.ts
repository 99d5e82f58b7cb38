//! The picture by keyboard: arrows go from node to node, Enter picks up and puts down.

import { type Layout, type Node, keyOf } from "./layout";
import { cancelPick, drop, isTarget, pick, picked, selected, setExpanded, targetOf } from "./state";

function middle(node: Node): number {
  return node.y + node.height / 2;
}

function nearest(nodes: Node[], y: number): Node | undefined {
  return nodes.toSorted((a, b) => Math.abs(middle(a) - y) - Math.abs(middle(b) - y))[0];
}

/** Within a column up and down, to the nearest node of the next column left and right. */
export function neighbour(layout: Layout, from: Node, key: string): Node | undefined {
  const column = (at: number) => layout.nodes.filter((node) => node.column === at).toSorted((a, b) => a.y - b.y);
  if (picked.value) {
    const targets = layout.nodes.filter(isTarget).toSorted((a, b) => a.y - b.y);
    const at = targets.findIndex((node) => node.key === from.key);
    if (key === "ArrowDown") return targets[Math.min(at + 1, targets.length - 1)];
    if (key === "ArrowUp") return targets[Math.max(at - 1, 0)];
    return undefined;
  }
  const own = column(from.column);
  const at = own.findIndex((node) => node.key === from.key);
  switch (key) {
    case "ArrowDown":
      return own[at + 1];
    case "ArrowUp":
      return own[at - 1];
    case "Home":
      return own[0];
    case "End":
      return own.at(-1);
    case "ArrowLeft":
    case "ArrowRight": {
      const step = key === "ArrowLeft" ? -1 : 1;
      for (let next = from.column + step; next >= 0 && next < 5; next += step) {
        const found = nearest(column(next), middle(from));
        if (found) return found;
      }
      return undefined;
    }
    default:
      return undefined;
  }
}

export function focusNode(key: string): void {
  document.querySelector<HTMLElement>(`[data-node="${CSS.escape(key)}"]`)?.focus();
}

/** The node that gets the focus as soon as it is drawn. */
let wanted: string | undefined;

/** To be called when the picture was drawn, before another key arrives. */
export function focusWanted(): void {
  if (wanted === undefined) return;
  focusNode(wanted);
  wanted = undefined;
}

/** What is picked up looks for its target from here: near it, at its own drive if that has some. */
export function focusTarget(layout: Layout): void {
  const from = layout.nodes.find((node) => node.key === picked.value);
  if (!from) return;
  const targets = layout.nodes.filter(isTarget);
  const near = targets.filter((one) => one.function?.drive === from.namespace?.drive && one.function);
  const first = nearest(near.length ? near : targets, middle(from));
  if (first) focusNode(first.key);
}

export function onKey(event: KeyboardEvent, layout: Layout, node: Node): void {
  const next = neighbour(layout, node, event.key);
  if (next) {
    event.preventDefault();
    if (!picked.value) selected.value = next.key;
    focusNode(next.key);
    return;
  }
  if (event.key === "Escape" && picked.value) {
    event.preventDefault();
    const back = picked.value;
    cancelPick();
    focusNode(back);
  } else if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    enter(node);
  }
}

/** A node that stands for several gives way to them, and the focus goes to the first. */
export function expand(node: Node): void {
  if (!node.drive) return;
  const [kind, list] =
    node.kind === "functions" ? (["function", node.drive.functions] as const) : (["namespace", node.drive.namespaces] as const);
  wanted = list[0] && keyOf(kind, list[0].name);
  setExpanded(node.drive.name, true);
}

function enter(node: Node): void {
  if (picked.value) {
    if (isTarget(node)) drop(picked.value, node.key);
    return;
  }
  selected.value = node.key;
  if (node.kind === "functions" || node.kind === "namespaces") expand(node);
  else if (targetOf(node.key)) pick(node.key);
  else document.querySelector<HTMLElement>(".details")?.focus();
}
