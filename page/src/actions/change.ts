//! A change that the page asks for: its plan, its request, and its task.

import { signal } from "@preact/signals";
import { MANAGER } from "../api/addresses";
import { inPageWords } from "../api/advice";
import { type Method } from "../api/calls";
import { ServiceError, get, request, token } from "../api/client";
import type { Manager } from "./manager";
import type { Message, PlanAnswer, Task } from "../api/types";
import { follows, onEvent, refresh } from "../model/store";
import { announce } from "../ui/live";
import { notify } from "../ui/notices";

export interface Change {
  title: string;
  method: Method;
  target: string;
  body?: unknown;
  ifMatch?: string | undefined;
  /** What has to be typed before it is done, because it destroys data. */
  confirm?: string;
  /** What it destroys or what is to be known, said in the dialog. */
  warning?: string;
  /** Another action that plans it. */
  planned?: { target: string; body: unknown };
  /** Changes that the service has no plan for: accounts, sessions, certificates. */
  unplanned?: boolean;
  after?: (body: unknown) => void;
  /** What is still to happen after it was made; nothing if it has. */
  until?: () => string | undefined;
}

export interface Plan {
  changes: string[];
  disturbed: { host: string; port: string; why: string }[];
  /** How many more hosts notice. */
  leftOut: number;
  destroys: boolean;
  refused: { message: string; advice: string }[];
  /** The request is refused if it would do something else by then. */
  revision?: string | undefined;
}

export type Stage =
  | { at: "planning" }
  | { at: "planned"; plan: Plan | undefined; note?: string }
  | { at: "sending"; plan: Plan | undefined }
  | { at: "running"; task: Task; phases: string[] }
  | { at: "waiting"; text: string }
  | { at: "done"; task: Task | undefined; phases: string[] }
  | { at: "failed"; error: unknown; task: Task | undefined; phases: string[] };

export const pending = signal<{ change: Change; stage: Stage } | null>(null);

/** How often a task is asked for, and how long after an event. */
const POLL_MS = 1_000;
const EVENT_MS = 250;
/** A task whose monitor cannot be read for so long is not followed any more. */
const LOST_MS = 60_000;

let planTarget: string | undefined;

/** The action's address as the manager names it. */
async function planAddress(): Promise<string> {
  if (!planTarget) {
    const manager = await get<Manager>(MANAGER);
    planTarget = manager.Actions?.Oem?.["#EbofManager.PlanChanges"]?.target;
  }
  return planTarget ?? `${MANAGER}/Actions/Oem/EbofManager.PlanChanges`;
}

function show(change: Change, stage: Stage): void {
  if (pending.value?.change === change) pending.value = { change, stage };
}

/** Opens the dialog with the change's plan. */
export async function propose(change: Change): Promise<void> {
  pending.value = { change, stage: { at: "planning" } };
  if (change.unplanned) return show(change, { at: "planned", plan: undefined });
  try {
    const answer = await request<PlanAnswer>(
      "POST",
      change.planned?.target ?? (await planAddress()),
      change.planned?.body ?? { Method: change.method, Target: change.target, Body: change.body ?? {} },
      { quiet: true },
    );
    const revision = answer.body.PlanRevision ?? (change.planned ? undefined : answer.body.Revision);
    show(change, { at: "planned", plan: { ...planOf(answer.body), revision } });
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    if (error.status === 404 || error.status === 501 || error.status === 405) {
      show(change, { at: "planned", plan: undefined, note: "The service has no plan for this change." });
    } else show(change, { at: "failed", error, task: undefined, phases: [] });
  }
}

function planOf(answer: PlanAnswer): Plan {
  const changes = answer.Changes ?? [];
  return {
    changes: changes.map((one) => inPageWords(typeof one === "string" ? one : (one.Text ?? ""))),
    disturbed: (answer.Disturbed ?? []).map((one) => ({ host: one.HostNQN ?? "", port: one.Port ?? "", why: one.Why ?? "" })),
    leftOut: answer.DisturbedLeftOut ?? 0,
    destroys: answer.DestroysData ?? false,
    refused: [
      ...(answer.Refused ?? []).map((one) => ({ message: one.Message ?? "", advice: one.Resolution ?? "" })),
      ...changes.flatMap((one) =>
        typeof one !== "string" && one.Obstacle ? [{ message: one.Obstacle, advice: "Start the target again." }] : [],
      ),
    ],
  };
}

/** Sends the request, and follows its task to the end. */
export async function carryOut(change: Change): Promise<void> {
  const stage = pending.value?.stage;
  const plan = stage && "plan" in stage ? stage.plan : undefined;
  show(change, { at: "sending", plan });
  try {
    const answer = await request<Task>(change.method, change.target, change.body, {
      ifMatch: change.ifMatch,
      plan: plan?.revision,
    });
    if (answer.status === 202 && answer.location) await follow(change, answer.location, answer.body);
    else {
      change.after?.(answer.body);
      await refresh();
      await waited(change);
      end(change, { at: "done", task: undefined, phases: [] });
    }
  } catch (error) {
    await failed(change, error, undefined, []);
  }
}

/** Waits for what a change is made for. */
async function waited(change: Change): Promise<void> {
  for (let text = change.until?.(); text && token.value; text = change.until?.()) {
    show(change, { at: "waiting", text });
    await Promise.race([pause(POLL_MS), nextEvent()]);
    await refresh();
  }
}

/** Says how a change has ended: in its dialog, and in a corner if that was closed. */
function end(change: Change, stage: Stage & { at: "done" | "failed" }): void {
  const text = `${change.title}: ${stage.at}.`;
  if (pending.value?.change === change) {
    pending.value = { change, stage };
    announce(text);
  } else if (stage.at === "done") notify({ text, good: true });
  else notify({ text: `${text} ${stage.error instanceof Error ? stage.error.message : ""}`.trim(), good: false });
}

const FAILED = new Set(["Exception", "Killed", "Cancelled", "Interrupted"]);
const ENDED = new Set([...FAILED, "Completed"]);

async function follow(change: Change, monitor: string, first: Task): Promise<void> {
  let task = first;
  follows(first.Id ?? "");
  const phases: string[] = [];
  let lostSince = 0;
  for (;;) {
    const phase = task.Oem?.Ebof?.Phase;
    if (phase && phases.at(-1) !== phase) phases.push(phase);
    if (ENDED.has(task.TaskState ?? "")) break;
    show(change, { at: "running", task, phases: [...phases] });
    await Promise.race([pause(POLL_MS), nextEvent()]);
    try {
      const answer = await request<Task>("GET", monitor);
      lostSince = 0;
      if (answer.body.TaskState) task = answer.body;
      else if (answer.status !== 202) task = { ...task, TaskState: "Completed", PercentComplete: 100 };
    } catch (error) {
      // The result of an operation that failed is its error.
      if (error instanceof ServiceError && error.status >= 400) return failed(change, error, task, phases);
      lostSince ||= Date.now();
      if (Date.now() - lostSince > LOST_MS) return failed(change, error, task, phases);
    }
  }
  if (FAILED.has(task.TaskState ?? "")) {
    return failed(change, new ServiceError(200, (task.Messages ?? []) as Message[], undefined, "The task failed."), task, phases);
  }
  change.after?.(task);
  const last = await get<Task>(first["@odata.id"]).catch(() => task);
  await refresh();
  end(change, { at: "done", task: last, phases });
}

/** What is shown may have been out of date: everything is read again, for the next attempt. */
async function failed(change: Change, error: unknown, task: Task | undefined, phases: string[]): Promise<void> {
  if (token.value) await refresh();
  end(change, { at: "failed", error, task, phases });
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** An event often tells that a task went on. */
function nextEvent(): Promise<void> {
  return new Promise((resolve) => {
    const stop = onEvent(() => {
      stop();
      setTimeout(resolve, EVENT_MS);
    });
  });
}
