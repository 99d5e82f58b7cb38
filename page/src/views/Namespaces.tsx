//! The namespaces: all of them, and what creates, formats, erases and deletes them.

import { useSignal } from "@preact/signals";
import { Attachments } from "../actions/Attachments";
import { type Change, propose } from "../actions/change";
import { mayChange } from "../api/session";
import type { DriveView, NamespaceView } from "../model/box";
import { drives, functionAt, namespaces } from "../model/store";
import { href, route } from "../router";
import { bytes, parseBytes, readable } from "../ui/format";
import { Badge, Button, Facts, Field, Select, Table } from "../ui/parts";

export function NamespacesView() {
  const [, ...rest] = route.value;
  const name = rest.join("/");
  const one = namespaces.value.find((each) => each.name === name);
  if (name) return one ? <One one={one} /> : <Gone name={name} />;
  return (
    <>
      <div class="toolbar">
        <h1>Namespaces</h1>
      </div>
      <Table
        caption="Namespaces"
        rows={namespaces.value}
        id={(each) => each.name}
        empty="There is no namespace yet."
        columns={[
          { title: "Namespace", by: (each) => each.name, cell: (each) => <a href={href("namespaces", each.name)} title={each.name}>{readable(each.name)}</a> },
          { title: "Size", number: true, by: (each) => each.bytes, cell: (each) => bytes(each.bytes) },
          { title: "Block", number: true, by: (each) => each.blockBytes, cell: (each) => `${each.blockBytes} B` },
          { title: "Attached to", by: attachedTo, cell: (each) => <Attached one={each} /> },
          { title: "Shared", extra: true, cell: (each) => (each.shared ? "yes" : "no") },
          { title: "UUID", extra: true, by: (each) => each.uuid, cell: (each) => <code class="whole-word">{each.uuid}</code> },
        ]}
      />
      {mayChange() && <Create />}
    </>
  );
}

/** The sizes of blocks that a drive can format, without metadata. */
function blocksOf(drive: DriveView | undefined): number[] {
  const formats = drive?.resource?.Oem?.Ebof?.Formats ?? [];
  const sizes = formats.filter((one) => !one.MetadataBytes).map((one) => one.BlockSizeBytes ?? 0);
  return sizes.length ? [...new Set(sizes)] : [512, 4096];
}

function attachedTo(one: NamespaceView): string {
  const names = one.functions.map((uri) => readable(functionAt(uri)?.name ?? uri));
  return [...names, ...one.hosts.map((host) => (host === "*" ? "every host" : readable(host)))].join(", ");
}

function Attached({ one }: { one: NamespaceView }) {
  return <>{attachedTo(one) || "–"}</>;
}

function Gone({ name }: { name: string }) {
  return (
    <p class="empty">
      There is no namespace {name}. <a href={href("namespaces")}>All namespaces</a>
    </p>
  );
}

function Create() {
  const drive = useSignal("");
  const size = useSignal("");
  const block = useSignal("4096");
  const shared = useSignal("no");
  const list = drives.value.filter((one) => one.isDrive);
  const chosen = list.find((one) => one.name === drive.value) ?? list[0];
  const parsed = parseBytes(size.value);
  const free = chosen?.resource?.Oem?.Ebof?.UnallocatedBytes;
  if (!chosen) return null;
  const submit = (event: Event) => {
    event.preventDefault();
    if (parsed === undefined) return;
    void propose({
      title: `Create a namespace of ${bytes(parsed)} on ${chosen.name}`,
      method: "POST",
      target: `${chosen.storage}/Volumes`,
      body: {
        CapacityBytes: parsed,
        BlockSizeBytes: Number(block.value),
        NVMeNamespaceProperties: { IsShareable: shared.value === "yes" },
      },
      after: () => (size.value = ""),
    });
  };
  return (
    <form class="panel form" onSubmit={submit}>
      <h2>Create a namespace</h2>
      <div class="row">
        <Select label="Drive" value={chosen.name} options={list.map((one) => [one.name, one.name])} onChange={(value) => (drive.value = value)} />
        <Field
          label="Size"
          value={size.value}
          name="size"
          invalid={size.value !== "" && parsed === undefined}
          hint={free === undefined ? "100G, 2T, 512Mi" : `100G, 2T, 512Mi; ${bytes(free)} are free`}
          onInput={(value) => (size.value = value)}
        />
        <Select
          label="Block"
          value={block.value}
          options={blocksOf(chosen).map((bytes) => [String(bytes), `${bytes} B`])}
          onChange={(value) => (block.value = value)}
        />
        <Select
          label="Attached to"
          value={shared.value}
          options={[
            ["no", "one at a time"],
            ["yes", "several"],
          ]}
          onChange={(value) => (shared.value = value)}
        />
        <Button type="submit" class="primary" disabled={parsed === undefined}>
          Create …
        </Button>
      </div>
    </form>
  );
}

function One({ one }: { one: NamespaceView }) {
  const format = one.resource.Actions?.Oem?.["#EbofVolume.Format"]?.target;
  const remove: Change = {
    title: `Delete namespace ${one.name}`,
    method: "DELETE",
    target: one.uri,
    ifMatch: one.etag,
    confirm: one.name,
    warning: `All data of ${one.name} are lost.`,
  };
  return (
    <>
      <div class="toolbar">
        <h1>
          Namespace {readable(one.name)} {one.protected && <Badge tone="warn">write protected</Badge>}
        </h1>
        <div class="tools">
          <a href={href("namespaces")}>All namespaces</a>
        </div>
      </div>
      <div class="cards">
        <section class="panel">
          <h2>Namespace</h2>
          <Facts
            rows={[
              ["Drive", <a href={href("drives", one.drive)}>{readable(one.drive)}</a>],
              ["Size", bytes(one.bytes)],
              ["Block", `${one.blockBytes} B`],
              ["UUID", <code>{one.uuid || "–"}</code>],
              ["Shared", one.shared ? "yes" : "no"],
            ]}
          />
        </section>
        <section class="panel">
          <Attachments one={one} name={readable} />
        </section>
        {mayChange() && (
          <section class="panel">
            <h2>Change</h2>
            <p class="buttons">
              <Button
                onClick={() =>
                  void propose({
                    title: `${one.protected ? "Allow writes to" : "Write protect"} ${one.name}`,
                    method: "PATCH",
                    target: one.uri,
                    body: { Oem: { Ebof: { WriteProtected: !one.protected } } },
                    ifMatch: one.etag,
                  })
                }
              >
                {one.protected ? "Allow writes …" : "Write protect …"}
              </Button>
            </p>
            <h3>Destroy data</h3>
            {format && <Format one={one} target={format} />}
            <p class="buttons">
              <Button class="danger" onClick={() => void propose(remove)}>
                Delete …
              </Button>
            </p>
            <p class="quiet">
              Sanitizing erases the whole drive: <a href={href("drives", one.drive)}>drive {readable(one.drive)}</a>.
            </p>
          </section>
        )}
      </div>
    </>
  );
}

const ERASURES: [string, string][] = [
  ["None", "deallocated"],
  ["UserData", "erased"],
  ["Cryptographic", "lost with their key"],
];

function Format({ one, target }: { one: NamespaceView; target: string }) {
  const block = useSignal(String(one.blockBytes));
  const erase = useSignal("UserData");
  const drive = drives.value.find((each) => each.name === one.drive);
  const sizes = [...new Set([one.blockBytes, ...blocksOf(drive)])];
  const submit = (event: Event) => {
    event.preventDefault();
    void propose({
      title: `Format namespace ${one.name}`,
      method: "POST",
      target,
      body: { BlockSizeBytes: Number(block.value), Erase: erase.value },
      confirm: one.name,
      warning: `All data of ${one.name} are lost.`,
    });
  };
  return (
    <form class="choose" onSubmit={submit}>
      <Select label="Block" name="block" value={block.value} options={sizes.map((size) => [String(size), `${size} B`])} onChange={(value) => (block.value = value)} />
      <Select name="erase" label="Data are" value={erase.value} options={ERASURES} onChange={(value) => (erase.value = value)} />
      <Button type="submit" class="danger">
        Format …
      </Button>
    </form>
  );
}
