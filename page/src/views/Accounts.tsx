//! The accounts, their roles and limits, and the sessions that are open.

import { useSignal } from "@preact/signals";
import { propose } from "../actions/change";
import { ACCOUNTS, SESSIONS } from "../api/addresses";
import { members } from "../api/client";
import { mayAdminister, user } from "../api/session";
import type { Resource } from "../api/types";
import { Badge, Button, Field, Select, Table, Time } from "../ui/parts";
import { useResource } from "./use";

interface Account extends Resource {
  UserName?: string;
  RoleId?: string;
  Enabled?: boolean;
  Locked?: boolean;
  PasswordChangeRequired?: boolean;
  Oem?: { Ebof?: Limits };
}

/** What an account sees that does not see everything. */
interface Limits {
  Limited?: boolean;
  Drives?: string[];
  SubsystemNQNs?: string[];
}

interface Session extends Resource {
  UserName?: string;
  CreatedTime?: string;
  ClientOriginIPAddress?: string;
}

const ROLES: [string, string][] = [
  ["ReadOnly", "ReadOnly: looks"],
  ["Operator", "Operator: changes the box"],
  ["Administrator", "Administrator: everything"],
];

export function AccountsView() {
  const { value, problem } = useResource("accounts", async () => {
    const [accounts, sessions] = await Promise.all([
      members<Account>(ACCOUNTS),
      members<Session>(SESSIONS),
    ]);
    return { accounts, sessions };
  });
  return (
    <>
      <div class="toolbar">
        <h1>Accounts</h1>
      </div>
      {problem && <p class="bad">{problem}</p>}
      <Table
        caption="Accounts"
        rows={value?.accounts ?? []}
        id={(one) => one["@odata.id"]}
        empty="No account can be seen."
        columns={[
          { title: "Account", cell: (one) => one.UserName },
          { title: "Role", by: (one) => one.RoleId, cell: (one) => <Role one={one} /> },
          { title: "Sees", by: seen, cell: (one) => seen(one) },
          { title: "State", cell: (one) => <AccountState one={one} /> },
          { title: "Actions", bare: true, cell: (one) => <AccountButtons one={one} /> },
        ]}
      />
      <div class="cards">
        <Password account={value?.accounts.find((one) => one.UserName === user.value?.name)} />
        {mayAdminister() && <Reset accounts={(value?.accounts ?? []).filter(mayEdit)} />}
        {mayAdminister() && <Limit accounts={(value?.accounts ?? []).filter((one) => mayEdit(one) && mayBeLimited(one.RoleId))} />}
        {mayAdminister() && <Create />}
      </div>
      <h2>Sessions</h2>
      <Table
        caption="Sessions"
        rows={value?.sessions ?? []}
        id={(one) => one["@odata.id"]}
        empty="No session can be seen."
        columns={[
          { title: "Session", by: (one) => one.Id, cell: (one) => <code>{one.Id}</code> },
          { title: "Account", cell: (one) => one.UserName },
          { title: "From", extra: true, cell: (one) => one.ClientOriginIPAddress ?? "–" },
          { title: "Since", extra: true, by: (one) => one.CreatedTime, cell: (one) => <Time at={one.CreatedTime} /> },
          { title: "Actions", bare: true, cell: (one) => <EndSession one={one} /> },
        ]}
      />
    </>
  );
}

function AccountState({ one }: { one: Account }) {
  if (one.Locked) return <Badge tone="bad">locked</Badge>;
  if (one.Enabled === false) return <Badge tone="warn">disabled</Badge>;
  if (one.PasswordChangeRequired) return <Badge tone="warn">needs a new password</Badge>;
  return <Badge tone="good">enabled</Badge>;
}

function seen(one: Account): string {
  const limits = one.Oem?.Ebof;
  if (!limits?.Limited) return "everything";
  const names = [...(limits.Drives ?? []), ...(limits.SubsystemNQNs ?? [])];
  return names.join(", ") || "nothing";
}

function mayBeLimited(role: string | undefined): boolean {
  return role !== "Administrator";
}

/** Names that are separated by commas or blanks. */
function names(text: string): string[] {
  return text.split(/[\s,]+/).filter((name) => name !== "");
}

/** What is sent of limits: none where nothing is named. */
function limitsOf(drives: string, subsystems: string): Limits {
  const named = { Drives: names(drives), SubsystemNQNs: names(subsystems) };
  const limited = named.Drives.length > 0 || named.SubsystemNQNs.length > 0;
  return limited ? { Limited: true, ...named } : { Limited: false };
}

/** A change of an account or a session: the service plans none of them. */
function proposed(title: string, one: Resource, body?: object, after?: () => void): void {
  void propose({
    title,
    method: body ? "PATCH" : "DELETE",
    target: one["@odata.id"],
    ...(body ? { body } : {}),
    ifMatch: one["@odata.etag"],
    unplanned: true,
    ...(after ? { after } : {}),
  });
}

function mayEdit(one: Account): boolean {
  return mayAdminister() && one.UserName !== user.value?.name;
}

function Role({ one }: { one: Account }) {
  if (!mayEdit(one)) return <>{one.RoleId}</>;
  return (
    <select
      aria-label={`Role of ${one.UserName}`}
      value={one.RoleId ?? ""}
      onChange={({ currentTarget }) => {
        const role = currentTarget.value;
        // It shows what is, until it is changed.
        currentTarget.value = one.RoleId ?? "";
        proposed(`${one.UserName} becomes ${role}`, one, { RoleId: role });
      }}
    >
      {ROLES.map(([role]) => (
        <option value={role}>{role}</option>
      ))}
    </select>
  );
}

function AccountButtons({ one }: { one: Account }) {
  if (!mayEdit(one)) return null;
  const able = one.Enabled === false ? "Enable" : "Disable";
  return (
    <span class="buttons">
      {one.Locked && (
        <Button
          class="small"
          aria-label={`Unlock ${one.UserName}`}
          onClick={() => proposed(`Unlock account ${one.UserName}`, one, { Locked: false })}
        >
          Unlock …
        </Button>
      )}
      <Button
        class="small"
        aria-label={`${able} ${one.UserName}`}
        onClick={() => proposed(`${able} account ${one.UserName}`, one, { Enabled: one.Enabled === false })}
      >
        {able} …
      </Button>
      <Button class="small danger" aria-label={`Delete ${one.UserName}`} onClick={() => proposed(`Delete account ${one.UserName}`, one)}>
        Delete …
      </Button>
    </span>
  );
}

function EndSession({ one }: { one: Session }) {
  if (one["@odata.id"] === user.value?.session) return <Badge>this one</Badge>;
  return (
    <Button
      class="small"
      aria-label={`End session ${one.Id}`}
      onClick={() => proposed(`End session ${one.Id} of ${one.UserName}`, one)}
    >
      End …
    </Button>
  );
}

function Password({ account }: { account: Account | undefined }) {
  const password = useSignal("");
  const again = useSignal("");
  if (!account) return null;
  const differs = again.value !== "" && password.value !== again.value;
  const submit = (event: Event) => {
    event.preventDefault();
    if (differs || !password.value || !again.value) return;
    const done = () => {
      password.value = "";
      again.value = "";
    };
    proposed("Change your password", account, { Password: password.value }, done);
  };
  return (
    <form class="panel form" onSubmit={submit}>
      <h2>Your password</h2>
      <Field label="New password" type="password" autocomplete="new-password" value={password.value} onInput={(value) => (password.value = value)} />
      <Field
        label="The same again"
        type="password"
        autocomplete="new-password"
        value={again.value}
        invalid={differs}
        {...(differs ? { hint: "The two differ." } : {})}
        onInput={(value) => (again.value = value)}
      />
      <Button type="submit" disabled={differs || !password.value || !again.value}>
        Change …
      </Button>
    </form>
  );
}

/** An administrator gives another account a password, which its user has to change. */
function Reset({ accounts }: { accounts: Account[] }) {
  const name = useSignal("");
  const password = useSignal("");
  const chosen = accounts.find((one) => one.UserName === name.value) ?? accounts[0];
  if (!chosen) return null;
  const submit = (event: Event) => {
    event.preventDefault();
    const body = { Password: password.value, PasswordChangeRequired: true };
    proposed(`Reset the password of ${chosen.UserName}`, chosen, body, () => (password.value = ""));
  };
  return (
    <form class="panel form" onSubmit={submit}>
      <h2>Password of another account</h2>
      <Select
        label="Account"
        name="reset-account"
        value={chosen.UserName ?? ""}
        options={accounts.map((one) => [one.UserName ?? "", one.UserName ?? ""])}
        onChange={(value) => (name.value = value)}
      />
      <Field
        label="First password"
        name="reset-password"
        type="password"
        autocomplete="new-password"
        hint="Its user has to choose another one at the next login."
        value={password.value}
        onInput={(value) => (password.value = value)}
      />
      <Button type="submit" disabled={!password.value}>
        Reset …
      </Button>
    </form>
  );
}

/** An administrator limits another account to drives and subsystems, or lets it see everything. */
function Limit({ accounts }: { accounts: Account[] }) {
  const name = useSignal("");
  const drives = useSignal<string | undefined>(undefined);
  const subsystems = useSignal<string | undefined>(undefined);
  const chosen = accounts.find((one) => one.UserName === name.value) ?? accounts[0];
  if (!chosen) return null;
  const now = chosen.Oem?.Ebof;
  const ownDrives = drives.value ?? (now?.Drives ?? []).join(" ");
  const ownSubsystems = subsystems.value ?? (now?.SubsystemNQNs ?? []).join(" ");
  const reset = () => {
    drives.value = undefined;
    subsystems.value = undefined;
  };
  const submit = (event: Event) => {
    event.preventDefault();
    const body = { Oem: { Ebof: limitsOf(ownDrives, ownSubsystems) } };
    proposed(`Change what ${chosen.UserName} sees`, chosen, body, reset);
  };
  return (
    <form class="panel form" onSubmit={submit}>
      <h2>What an account sees</h2>
      <Select
        label="Account"
        name="limit-account"
        value={chosen.UserName ?? ""}
        options={accounts.map((one) => [one.UserName ?? "", one.UserName ?? ""])}
        onChange={(value) => {
          name.value = value;
          reset();
        }}
      />
      <Field label="Only these drives" name="limit-drives" value={ownDrives} onInput={(value) => (drives.value = value)} />
      <Field
        label="Only these subsystems (NQN)"
        name="limit-subsystems"
        hint="Names with blanks between them. Without any, the account sees everything."
        value={ownSubsystems}
        onInput={(value) => (subsystems.value = value)}
      />
      <Button type="submit">Limit …</Button>
    </form>
  );
}

function Create() {
  const name = useSignal("");
  const password = useSignal("");
  const role = useSignal("ReadOnly");
  const drives = useSignal("");
  const subsystems = useSignal("");
  const submit = (event: Event) => {
    event.preventDefault();
    const limits = mayBeLimited(role.value) ? { Oem: { Ebof: limitsOf(drives.value, subsystems.value) } } : {};
    void propose({
      title: `Create account ${name.value}`,
      method: "POST",
      target: ACCOUNTS,
      body: { UserName: name.value, Password: password.value, RoleId: role.value, ...limits },
      unplanned: true,
      after: () => {
        name.value = "";
        password.value = "";
        drives.value = "";
        subsystems.value = "";
      },
    });
  };
  return (
    <form class="panel form" onSubmit={submit}>
      <h2>New account</h2>
      <Field label="User name" name="username" value={name.value} onInput={(value) => (name.value = value)} />
      <Field label="Password" type="password" autocomplete="new-password" value={password.value} onInput={(value) => (password.value = value)} />
      <Select label="Role" name="role" value={role.value} options={ROLES} onChange={(value) => (role.value = value)} />
      {mayBeLimited(role.value) && (
        <>
          <Field label="Only these drives" name="drives" value={drives.value} onInput={(value) => (drives.value = value)} />
          <Field
            label="Only these subsystems (NQN)"
            name="subsystems"
            hint="Names with blanks between them. Without any, the account sees everything."
            value={subsystems.value}
            onInput={(value) => (subsystems.value = value)}
          />
        </>
      )}
      <Button type="submit" class="primary" disabled={!name.value || !password.value}>
        Create …
      </Button>
    </form>
  );
}
