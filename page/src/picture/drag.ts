//! Dragging with pointer events, which mice, pens and fingers have in common.

import { dragged, drop, isTarget, selected, targetOf } from "./state";
import type { Node } from "./layout";

/** So many pixels make a click a drag. */
const SLOP = 5;
/** Near the edges of the window, the page scrolls. */
const EDGE = 48;

function nodeAt(x: number, y: number, nodes: Node[]): Node | undefined {
  const element = document.elementFromPoint(x, y)?.closest<HTMLElement>("[data-node]");
  const key = element?.dataset.node;
  return nodes.find((node) => node.key === key);
}

export function beginDrag(event: PointerEvent, node: Node, nodes: Node[]): void {
  if (event.button !== 0 || !targetOf(node.key)) return;
  // A finger scrolls, unless it is on the handle.
  const onHandle = (event.target as Element).closest("[data-handle]") !== null;
  if (event.pointerType === "touch" && !onHandle) return;
  const { pointerId, clientX, clientY } = event;
  const stop = new AbortController();
  const options = { signal: stop.signal };
  let active = false;
  const end = () => {
    stop.abort();
    dragged.value = null;
    document.documentElement.classList.remove("dragging");
  };
  addEventListener(
    "pointermove",
    (move) => {
      if (move.pointerId !== pointerId) return;
      if (!active && Math.hypot(move.clientX - clientX, move.clientY - clientY) < SLOP) return;
      if (!active) {
        active = true;
        selected.value = node.key;
        document.documentElement.classList.add("dragging");
        dragged.value = { key: node.key, x: move.clientX, y: move.clientY, over: null };
      }
      move.preventDefault();
      const over = nodeAt(move.clientX, move.clientY, nodes);
      dragged.value = { key: node.key, x: move.clientX, y: move.clientY, over: over && isTarget(over) ? over.key : null };
      if (move.clientY < EDGE) scrollBy(0, -12);
      else if (move.clientY > innerHeight - EDGE) scrollBy(0, 12);
    },
    options,
  );
  addEventListener(
    "pointerup",
    (up) => {
      if (up.pointerId !== pointerId) return;
      const over = dragged.value?.over;
      // A click follows: it would select what is below.
      if (active) addEventListener("click", (click) => click.stopPropagation(), { capture: true, once: true });
      setTimeout(end);
      if (active && over) drop(node.key, over);
    },
    options,
  );
  addEventListener("pointercancel", end, options);
  addEventListener("keydown", (key) => key.key === "Escape" && end(), options);
}
