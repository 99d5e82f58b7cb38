//! The picture by keyboard: arrows go from node to node, Enter picks up and puts down.

import type { Layout, Node } from "./layout";
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
    enter(layout, node);
  }
}

function enter(layout: Layout, node: Node): void {
  if (picked.value) {
    if (isTarget(node)) drop(picked.value, node.key);
    return;
  }
  selected.value = node.key;
  if (node.kind === "functions" || node.kind === "namespaces") {
    if (node.drive) setExpanded(node.drive.name, true);
  } else if (targetOf(node.key)) {
    pick(node.key);
    const targets = layout.nodes.filter(isTarget);
    const near = targets.filter((one) => one.function?.drive === node.namespace?.drive && one.function);
    const first = nearest(near.length ? near : targets, middle(node));
    // What was collapsed is drawn first.
    setTimeout(() => first && focusNode(first.key));
  } else document.querySelector<HTMLElement>(".details")?.focus();
}
