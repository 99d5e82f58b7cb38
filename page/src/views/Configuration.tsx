//! The configuration in force: where it comes from, whether that differs, its text, and another one.

import { useSignal } from "@preact/signals";
import { propose } from "../actions/change";
import { ROOT, get } from "../api/client";
import { mayAdminister } from "../api/session";
import type { Resource } from "../api/types";
import { Badge, Button, Facts } from "../ui/parts";
import { useResource } from "./use";

interface Configuration extends Resource {
  Revision?: string;
  Source?: string;
  File?: string | null;
  Differs?: boolean | null;
  Problem?: string | null;
  TOML?: string;
}

export function ConfigurationView() {
  const { value, problem, again } = useResource(
    "configuration",
    () => get<Configuration>(`${ROOT}/Managers/ebof/Oem/Ebof/Configuration`),
    () => true,
  );
  const text = value?.TOML ?? "";
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
              ["Source", value.File ? <code>{value.File}</code> : (value.Source ?? "–")],
              ["Compared with it", <Differs value={value.Differs} />],
              ["Revision", <code>{value.Revision ?? "–"}</code>],
            ]}
          />
          {value.Problem && <p class="bad">{value.Problem}</p>}
          <h2>In force</h2>
          <pre tabIndex={0} aria-label="configuration in force">{text}</pre>
          {mayAdminister() && <Another key={value.Revision ?? ""} now={value} />}
        </>
      )}
    </>
  );
}

/** Another text, which starts from the one in force. */
function Another({ now }: { now: Configuration }) {
  const text = useSignal(now.TOML ?? "");
  const plan = now.Actions?.["#EbofConfiguration.Plan"]?.target;
  const apply = now.Actions?.["#EbofConfiguration.Apply"]?.target;
  if (!plan || !apply) return null;
  const submit = (event: Event) => {
    event.preventDefault();
    void propose({
      title: "Apply another configuration",
      method: "POST",
      target: apply,
      body: { TOML: text.value, Revision: now.Revision },
      planned: { target: plan, body: { TOML: text.value } },
    });
  };
  return (
    <details class="another">
      <summary>Apply another one</summary>
      <form onSubmit={submit}>
        <p class="field">
          <label for="configuration">As TOML. Relative paths begin at the directory of the target.</label>
          <textarea
            id="configuration"
            rows={20}
            spellcheck={false}
            value={text.value}
            onInput={(event) => (text.value = event.currentTarget.value)}
          />
        </p>
        <Button type="submit" disabled={text.value === now.TOML}>
          Apply …
        </Button>
      </form>
    </details>
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
