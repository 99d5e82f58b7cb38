//! The configuration in force: where it comes from, whether that differs, its text, and another one.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type Change, propose } from "../actions/change";
import { CONFIGURATION } from "../api/addresses";
import { get } from "../api/client";
import { mayAdminister } from "../api/session";
import type { Resource } from "../api/types";
import { Badge, Button, Facts, Table, Time } from "../ui/parts";
import { useResource } from "./use";

interface Configuration extends Resource {
  Revision?: string;
  Source?: string;
  File?: string | null;
  Differs?: boolean | null;
  Problem?: string | null;
  TOML?: string;
  /** What is or was in force, the latest first. */
  Generations?: Generation[];
}

interface Generation {
  Generation?: string;
  Revision?: string;
  Created?: string;
  Cause?: string;
  Changes?: string[];
  ChangesLeftOut?: number;
}

export function ConfigurationView() {
  const { value, problem, again } = useResource(
    "configuration",
    () => get<Configuration>(CONFIGURATION),
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
          {mayAdminister() && <Another now={value} />}
          <h2>Stored</h2>
          <Before now={value} />
        </>
      )}
    </>
  );
}

/** A change to another configuration: the service plans it by an action of its own. */
function replacement(title: string, now: Configuration, desired: object): Change | undefined {
  const plan = now.Actions?.["#EbofConfiguration.Plan"]?.target;
  const apply = now.Actions?.["#EbofConfiguration.Apply"]?.target;
  if (!plan || !apply) return undefined;
  return {
    title,
    method: "POST",
    target: apply,
    body: { ...desired, Revision: now.Revision },
    planned: { target: plan, body: desired },
  };
}

/** What was in force before, and can be again. */
function Before({ now }: { now: Configuration }) {
  const button = (one: Generation, at: number) => {
    if (at === 0) return <Badge tone="good">in force</Badge>;
    const change = replacement(`Roll back to generation ${one.Generation}`, now, { Generation: one.Generation });
    if (!change || !mayAdminister()) return null;
    return (
      <Button class="small" aria-label={change.title} onClick={() => void propose(change)}>
        Roll back …
      </Button>
    );
  };
  const rows = now.Generations ?? [];
  return (
    <Table
      caption="Stored configurations"
      rows={rows}
      id={(one) => one.Generation ?? ""}
      empty="None is stored: the target has no state directory."
      columns={[
        { title: "No.", number: true, cell: (one) => one.Generation },
        { title: "Since", by: (one) => one.Created, cell: (one) => <Time at={one.Created} /> },
        { title: "By", extra: true, cell: (one) => one.Cause },
        { title: "Changes", cell: (one) => <Changes one={one} /> },
        { title: "Actions", bare: true, cell: (one) => button(one, rows.indexOf(one)) },
      ]}
    />
  );
}

/** So many changes of a generation are shown unless all are asked for. */
const CHANGES_SHOWN = 3;

function Changes({ one }: { one: Generation }) {
  const all = one.Changes ?? [];
  const first = all.slice(0, CHANGES_SHOWN);
  const rest = all.slice(CHANGES_SHOWN);
  const leftOut = one.ChangesLeftOut ?? 0;
  if (!all.length) return <>–</>;
  return (
    <>
      <ul class="plain wrap">
        {first.map((text) => (
          <li>{text}</li>
        ))}
      </ul>
      {rest.length > 0 && (
        <details>
          <summary class="quiet">and {rest.length + leftOut} more</summary>
          <ul class="plain wrap">
            {rest.map((text) => (
              <li>{text}</li>
            ))}
            {leftOut > 0 && <li>and {leftOut} more</li>}
          </ul>
        </details>
      )}
    </>
  );
}

/** Another text, which starts from the one in force. */
function Another({ now }: { now: Configuration }) {
  const base = useSignal(now);
  const text = useSignal(now.TOML ?? "");
  const edited = text.value !== base.value.TOML;
  const outdated = base.value.Revision !== now.Revision;
  const beginAnew = () => {
    base.value = now;
    text.value = now.TOML ?? "";
  };
  // What is typed is not lost because somebody else was faster.
  useEffect(() => {
    if (!edited) beginAnew();
  }, [now.Revision, edited]);
  const change = replacement("Apply another configuration", base.value, { TOML: text.value });
  if (!change) return null;
  // The one that is in force then is the next one to start from.
  change.after = () => (base.value = { ...base.value, TOML: text.value });
  const submit = (event: Event) => {
    event.preventDefault();
    void propose(change);
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
        {outdated && edited && (
          <p class="warning">
            Another configuration was put in force meanwhile.{" "}
            <Button class="small" onClick={beginAnew}>
              Begin anew with it
            </Button>
          </p>
        )}
        <Button type="submit" disabled={!edited}>
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
