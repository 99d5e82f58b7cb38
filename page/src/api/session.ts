//! Logging in and out, and what follows when the service ends a session or demands a new password.

import { signal } from "@preact/signals";
import { ACCOUNTS, SESSIONS } from "./addresses";
import { ServiceError, get, onRefused, request, setToken, token } from "./client";
import type { Message, Resource } from "./types";

interface SessionDocument extends Resource {
  UserName?: string;
  Roles?: string[];
  "@Message.ExtendedInfo"?: Message[];
}

export interface User {
  name: string;
  role: string;
  /** The session's URI. */
  session: string;
  /** The account's URI. */
  account: string;
}

export type Gate = "login" | "password" | "in";

function stored(): User | null {
  try {
    return JSON.parse(sessionStorage.getItem("ebof-user") ?? "null") as User | null;
  } catch {
    return null;
  }
}

export const user = signal<User | null>(stored());
export const gate = signal<Gate>(token.value && user.value ? "in" : "login");
/** Why the login form is there again. */
export const notice = signal("");

function remember(value: User | null): void {
  user.value = value;
  if (value) sessionStorage.setItem("ebof-user", JSON.stringify(value));
  else sessionStorage.removeItem("ebof-user");
}

export async function login(name: string, password: string): Promise<void> {
  setToken(null);
  const answer = await request<SessionDocument>("POST", SESSIONS, { UserName: name, Password: password });
  if (!answer.token) throw new ServiceError(answer.status, [], undefined, "The service answered without a token.");
  const demand = answer.body["@Message.ExtendedInfo"]?.find((m) => m.MessageId?.endsWith(".PasswordChangeRequired"));
  setToken(answer.token);
  notice.value = "";
  remember({
    name: answer.body.UserName ?? name,
    role: answer.body.Roles?.[0] ?? "",
    session: answer.body["@odata.id"] ?? answer.location ?? "",
    account: demand?.MessageArgs?.[0] ?? `${ACCOUNTS}/${encodeURIComponent(name)}`,
  });
  if (demand) gate.value = "password";
  else await enter();
}

/** The role is the account's where the session does not tell it. */
async function enter(): Promise<void> {
  const current = user.value;
  if (current && !current.role) {
    const account = await get<Resource & { RoleId?: string }>(current.account).catch(() => undefined);
    remember({ ...current, role: account?.RoleId ?? "" });
  }
  gate.value = "in";
}

export async function changePassword(password: string): Promise<void> {
  const current = user.value;
  if (!current) return;
  await request("PATCH", current.account, { Password: password });
  if (token.value === null) return;
  await enter();
}

export async function logout(): Promise<void> {
  const session = user.value?.session;
  if (session) await request("DELETE", session).catch(() => undefined);
  leave("You have logged out.");
}

export function leave(why: string): void {
  setToken(null);
  remember(null);
  notice.value = why;
  gate.value = "login";
}

export function mayChange(): boolean {
  return user.value?.role !== "ReadOnly";
}

export function mayAdminister(): boolean {
  return user.value?.role === "Administrator" || user.value?.role === "";
}

onRefused.session = () => {
  if (gate.value !== "login") leave("The session has ended: it was not used for too long, or the target was restarted. Log in again.");
};
onRefused.password = (error) => {
  const account = error.messages.flatMap((m) => m.MessageArgs ?? []).find((text) => text.startsWith("/"));
  if (account && user.value) remember({ ...user.value, account });
  if (gate.value === "in") gate.value = "password";
};
