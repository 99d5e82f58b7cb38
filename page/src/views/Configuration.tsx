//! The configuration in force: where it comes from, whether that differs, and its text.

import { ROOT, get } from "../api/client";
import type { Resource } from "../api/types";
import type { Manager } from "../actions/manager";
import { Badge, Button, Facts } from "../ui/parts";
import { useResource } from "./use";

interface Configuration extends Resource {
  Revision?: string;
  Source?: string | { Kind?: string; Path?: string; Differs?: boolean | null; Problem?: string | null };
  Path?: string;
  Differs?: boolean | null;
  Problem?: string | null;
  TOML?: string;
  Toml?: string;
}

async function read(): Promise<Configuration> {
  const manager = await get<Manager>(`${ROOT}/Managers/ebof`);
  const uri = manager.Oem?.Ebof?.Configuration?.["@odata.id"] ?? `${ROOT}/Managers/ebof/Oem/Ebof/Configuration`;
  return get<Configuration>(uri);
}

function sourceOf(one: Configuration) {
  return typeof one.Source === "object" ? one.Source : { Kind: one.Source, Path: one.Path, Differs: one.Differs, Problem: one.Problem };
}

export function ConfigurationView() {
  const { value, problem, again } = useResource("configuration", read, () => true);
  const source = value && sourceOf(value);
  const text = value?.TOML ?? value?.Toml ?? "";
  return (
    <>
      <div class="toolbar">
        <h1>Configuration</h1>
        <div class="tools">
          <Button class="small" onClick={again}>
            Read again
          </Button>
          <Button class="small" disabled={!text} onClick={() => save(text)}>
            Export
          </Button>
        </div>
      </div>
      {problem && <p class="bad">{problem}</p>}
      {value && (
        <>
          <Facts
            rows={[
              ["Source", source?.Path ? <code>{source.Path}</code> : (source?.Kind ?? "–")],
              ["Compared with it", <Differs value={source?.Differs} />],
              ["Revision", <code>{value.Revision ?? "–"}</code>],
            ]}
          />
          {source?.Problem && <p class="bad">{source.Problem}</p>}
          <h2>In force</h2>
          <pre tabIndex={0} aria-label="configuration in force">{text}</pre>
        </>
      )}
    </>
  );
}

function Differs({ value }: { value: boolean | null | undefined }) {
  if (value === true) return <Badge tone="warn">differs</Badge>;
  if (value === false) return <Badge tone="good">the same</Badge>;
  return <>–</>;
}

function save(text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/toml" }));
  link.download = "ebof.toml";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href));
}
