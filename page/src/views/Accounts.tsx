//! The accounts, their roles, and the sessions that are open.

import { useSignal } from "@preact/signals";
import { propose } from "../actions/change";
import { ROOT, members } from "../api/client";
import { mayAdminister, user } from "../api/session";
import type { Resource } from "../api/types";
import { time } from "../ui/format";
import { Badge, Button, Field, Select, Table } from "../ui/parts";
import { useResource } from "./use";

interface Account extends Resource {
  UserName?: string;
  RoleId?: string;
  Enabled?: boolean;
  Locked?: boolean;
  PasswordChangeRequired?: boolean;
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
  const { value, problem, again } = useResource("accounts", async () => {
    const [accounts, sessions] = await Promise.all([
      members<Account>(`${ROOT}/AccountService/Accounts`),
      members<Session>(`${ROOT}/SessionService/Sessions`),
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
          { title: "Role", cell: (one) => one.RoleId },
          { title: "State", cell: (one) => <AccountState one={one} /> },
          { title: "Actions", bare: true, cell: (one) => <AccountButtons one={one} done={again} /> },
        ]}
      />
      <div class="cards">
        <Password account={value?.accounts.find((one) => one.UserName === user.value?.name)} />
        {mayAdminister() && <Create done={again} />}
      </div>
      <h2>Sessions</h2>
      <Table
        caption="Sessions"
        rows={value?.sessions ?? []}
        id={(one) => one["@odata.id"]}
        empty="No session can be seen."
        columns={[
          { title: "Session", cell: (one) => <code>{one.Id}</code> },
          { title: "Account", cell: (one) => one.UserName },
          { title: "From", extra: true, cell: (one) => one.ClientOriginIPAddress ?? "–" },
          { title: "Since", extra: true, cell: (one) => time(one.CreatedTime) },
          { title: "Actions", bare: true, cell: (one) => <EndSession one={one} done={again} /> },
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

function AccountButtons({ one, done }: { one: Account; done: () => void }) {
  if (!mayAdminister() || one.UserName === user.value?.name) return null;
  return (
    <span class="buttons">
      <Button
        class="small"
        aria-label={`${one.Enabled === false ? "Enable" : "Disable"} ${one.UserName}`}
        onClick={() =>
          void propose({
            title: `${one.Enabled === false ? "Enable" : "Disable"} account ${one.UserName}`,
            method: "PATCH",
            target: one["@odata.id"],
            body: { Enabled: one.Enabled === false },
            ifMatch: one["@odata.etag"],
            unplanned: true,
            after: done,
          })
        }
      >
        {one.Enabled === false ? "Enable …" : "Disable …"}
      </Button>{" "}
      <Button
        class="small danger"
        aria-label={`Delete ${one.UserName}`}
        onClick={() =>
          void propose({
            title: `Delete account ${one.UserName}`,
            method: "DELETE",
            target: one["@odata.id"],
            unplanned: true,
            after: done,
          })
        }
      >
        Delete …
      </Button>
    </span>
  );
}

function EndSession({ one, done }: { one: Session; done: () => void }) {
  if (one["@odata.id"] === user.value?.session) return <Badge>this one</Badge>;
  return (
    <Button
      class="small"
      aria-label={`End session ${one.Id}`}
      onClick={() =>
        void propose({
          title: `End session ${one.Id} of ${one.UserName}`,
          method: "DELETE",
          target: one["@odata.id"],
          unplanned: true,
          after: done,
        })
      }
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
    void propose({
      title: "Change your password",
      method: "PATCH",
      target: account["@odata.id"],
      body: { Password: password.value },
      ifMatch: account["@odata.etag"],
      unplanned: true,
      after: () => {
        password.value = "";
        again.value = "";
      },
    });
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

function Create({ done }: { done: () => void }) {
  const name = useSignal("");
  const password = useSignal("");
  const role = useSignal("ReadOnly");
  const submit = (event: Event) => {
    event.preventDefault();
    void propose({
      title: `Create account ${name.value}`,
      method: "POST",
      target: `${ROOT}/AccountService/Accounts`,
      body: { UserName: name.value, Password: password.value, RoleId: role.value },
      unplanned: true,
      after: () => {
        name.value = "";
        password.value = "";
        done();
      },
    });
  };
  return (
    <form class="panel form" onSubmit={submit}>
      <h2>New account</h2>
      <Field label="User name" value={name.value} onInput={(value) => (name.value = value)} />
      <Field label="Password" type="password" autocomplete="new-password" value={password.value} onInput={(value) => (password.value = value)} />
      <Select label="Role" value={role.value} options={ROLES} onChange={(value) => (role.value = value)} />
      <Button type="submit" class="primary" disabled={!name.value || !password.value}>
        Create …
      </Button>
    </form>
  );
}
