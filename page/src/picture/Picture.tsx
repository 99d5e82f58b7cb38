//! The picture of the box: hosts, ports, functions, namespaces and drives, and the lines between.

import { useComputed, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { box, loaded } from "../model/store";
import { bytes, current, iops } from "../model/metrics";
import { Details } from "./Details";
import { COLUMNS, type Edge, type Layout, curve, layOut, related } from "./layout";
import { NodeView } from "./NodeView";
import { focusTarget, focusWanted } from "./keys";
import { dragged, filter, isExpanded, moving, nameOf, onlyConnected, picked, selected, setAllExpanded, shownBox, shownDrives, targetOf } from "./state";

export function BoxView() {
  const element = useRef<HTMLDivElement>(null);
  const width = useSignal(0);
  useEffect(() => {
    const target = element.current;
    if (!target) return undefined;
    const observer = new ResizeObserver(([entry]) => (width.value = Math.floor(entry?.contentRect.width ?? 0)));
    observer.observe(target);
    return () => observer.disconnect();
  }, []);
  const layout = useComputed(() => layOut(shownBox.value, shownDrives.value, isExpanded, width.value || 300));
  return (
    <>
      <div class="toolbar">
        <h1>Box</h1>
        <Tools />
      </div>
      <div class="box-view">
        <section class="picture" aria-label="Picture of the box" aria-describedby="picture-help">
          <p id="picture-help" class="quiet hint">
            Drag a namespace onto a function, or a function onto a port. By keyboard: arrows, Enter to pick up, arrows,
            Enter to put down.
          </p>
          <div ref={element} class="canvas-frame">
            <Canvas layout={layout.value} />
          </div>
        </section>
        <Details />
      </div>
      <Ghost />
    </>
  );
}

function Tools() {
  const many = box.value.drives.length > 1;
  return (
    <div class="tools">
      <label class="unseen" for="box-filter">
        filter
      </label>
      <input
        id="box-filter"
        type="search"
        placeholder="filter: d3, fabric0, tenant …"
        value={filter.value}
        onInput={(event) => (filter.value = event.currentTarget.value)}
      />
      <button
        type="button"
        class="small"
        aria-pressed={onlyConnected.value}
        onClick={() => (onlyConnected.value = !onlyConnected.value)}
      >
        Only connected
      </button>
      {many && (
        <>
          <button type="button" class="small" onClick={() => setAllExpanded(true)}>
            Expand all
          </button>
          <button type="button" class="small" onClick={() => setAllExpanded(false)}>
            Collapse all
          </button>
        </>
      )}
    </div>
  );
}

function Canvas({ layout }: { layout: Layout }) {
  const width = layout.columnWidth * 5 + layout.gap * 4;
  const marked = selected.value ? related(layout, selected.value) : new Set<string>();
  const firstKey = layout.nodes.find((node) => node.kind === "function" || node.kind === "functions")?.key;
  const known = layout.nodes.some((node) => node.key === selected.value);
  const sorted = layout.nodes.toSorted((a, b) => a.column - b.column || a.y - b.y);
  // Not after the next frame: another key may arrive before.
  useLayoutEffect(() => focusTarget(layout), [picked.value]);
  useLayoutEffect(focusWanted);
  return (
    <>
      <div class="column-heads" aria-hidden="true">
        {COLUMNS.map((title) => (
          <span key={title} style={{ width: `${layout.columnWidth}px` }}>
            {layout.compact ? title.replace("Namespaces", "Namesp.").replace("Functions", "Funct.") : title}
          </span>
        ))}
      </div>
      <div class={`canvas ${layout.compact ? "compact" : ""}`} style={{ height: `${layout.height}px`, width: `${width}px`, "--row": `${layout.row - 2}px` }}>
        <svg width={width} height={layout.height} aria-hidden="true">
          {layout.edges.map((edge) => (
            <Line key={edge.key} edge={edge} marked={marked.has(edge.key)} />
          ))}
        </svg>
        {sorted.map((node) => (
          <NodeView
            key={node.key}
            node={node}
            layout={layout}
            first={node.key === selected.value || (!known && node.key === firstKey)}
          />
        ))}
      </div>
      {loaded.value && shownDrives.value.length === 0 && (
        <p class="empty">{filter.value ? "Nothing matches the filter." : onlyConnected.value ? "No host is connected." : "The box has no drives."}</p>
      )}
    </>
  );
}

/** A line is wider the more passes through it. */
function Line({ edge, marked }: { edge: Edge; marked: boolean }) {
  const sample = edge.uri ? current.value.get(edge.uri) : undefined;
  const busy = iops(sample) > 0;
  const width = busy ? 1.5 + Math.min(4, Math.log10(1 + bytes(sample) / 1e6)) : 1.5;
  return (
    <path
      d={curve(edge)}
      class={`line ${edge.live ? "live" : ""} ${marked ? "marked" : ""} ${busy ? "busy" : ""}`}
      stroke-width={marked ? width + 1 : width}
    />
  );
}

function Ghost() {
  const now = dragged.value;
  if (!now || !moving.value) return null;
  const target = targetOf(now.key);
  return (
    <div class="ghost" style={{ left: `${now.x + 12}px`, top: `${now.y + 10}px` }} aria-hidden="true">
      <strong>{nameOf(now.key)}</strong> {now.over ? `→ ${nameOf(now.over)}` : `onto a ${target}`}
    </div>
  );
}
