//! The dialog of a change: the plan before, the call, the task's progress after.

import { useSignal } from "@preact/signals";
import { user } from "../api/session";
import { Dialog } from "../ui/dialog";
import { Button, CallText, Failure, Field } from "../ui/parts";
import { type Change, type Plan, type Stage, carryOut, pending } from "./change";

export function ChangeDialog() {
  const now = pending.value;
  if (!now) return null;
  const { change, stage } = now;
  const close = () => (pending.value = null);
  return (
    <Dialog title={change.title} onClose={close} key={change.title + change.target}>
      <Progress stage={stage} change={change} />
      <details class="call-details" open>
        <summary>The call</summary>
        <CallText call={{ method: change.method, uri: change.target, body: change.body, ifMatch: change.ifMatch }} />
      </details>
      <Buttons change={change} stage={stage} close={close} />
    </Dialog>
  );
}

function Progress({ stage, change }: { stage: Stage; change: Change }) {
  switch (stage.at) {
    case "planning":
      return <p class="quiet">Asking for the plan …</p>;
    case "planned":
      return (
        <>
          {stage.plan?.destroys && !change.warning && <p class="warning">Data are destroyed.</p>}
          {change.warning && <p class="warning">{change.warning}</p>}
          {stage.note && <p class="quiet">{stage.note}</p>}
          {stage.plan && <PlanText plan={stage.plan} />}
        </>
      );
    case "sending":
      return <p class="quiet">Sent …</p>;
    case "waiting":
      return <p role="status">{stage.text}</p>;
    case "running":
      return <TaskText percent={stage.task.PercentComplete ?? 0} phases={stage.phases} detail={stage.task.Oem?.Ebof?.Detail} />;
    case "done":
      return (
        <>
          {stage.task && <TaskText percent={100} phases={stage.phases} />}
          <p class="good" data-test="done">
            Done.
          </p>
          {stage.task?.Oem?.Ebof?.Remark && <p>{stage.task.Oem.Ebof.Remark}</p>}
        </>
      );
    case "failed":
      return (
        <>
          {stage.task && <TaskText percent={stage.task.PercentComplete ?? 0} phases={stage.phases} />}
          <p class="bad">
            <strong>Not done.</strong>
          </p>
          <Failure error={stage.error} />
        </>
      );
  }
}

function PlanText({ plan }: { plan: Plan }) {
  return (
    <div class="plan" data-test="plan">
      {plan.refused.length > 0 && (
        <div class="failure" role="alert">
          <p>
            <strong>Not possible.</strong>
          </p>
          {plan.refused.map((one) => (
            <p>
              {one.message}
              {one.advice && <span class="advice"> {one.advice}</span>}
            </p>
          ))}
        </div>
      )}
      {plan.changes.length > 0 && (
        <>
          <h3>Changes</h3>
          <ul>
            {plan.changes.map((text) => (
              <li>{text}</li>
            ))}
          </ul>
        </>
      )}
      {plan.changes.length === 0 && plan.refused.length === 0 && <p>Nothing would change.</p>}
      {plan.refused.length === 0 && (
        <>
          <h3>Hosts that notice</h3>
          {plan.disturbed.length === 0 && <p class="quiet">none</p>}
          <ul>
            {plan.disturbed.map((one) => (
              <li>
                <code>{one.host}</code> at port {one.port}: {one.why}
              </li>
            ))}
            {plan.leftOut > 0 && <li>and {plan.leftOut} more</li>}
          </ul>
        </>
      )}
    </div>
  );
}

function TaskText({ percent, phases, detail }: { percent: number; phases: string[]; detail?: string | null | undefined }) {
  return (
    <div class="task" data-test="task">
      <progress max={100} value={percent} aria-label="progress of the task" />
      <span class="number">{percent} %</span>
      {phases.length > 0 && <p class="phases">{phases.join(" → ")}</p>}
      {detail && <p class="quiet">{detail}</p>}
    </div>
  );
}

function Buttons({ change, stage, close }: { change: Change; stage: Stage; close: () => void }) {
  const typed = useSignal("");
  if (stage.at === "done" || stage.at === "failed") {
    return (
      <footer>
        <Button class="primary" onClick={close}>
          Close
        </Button>
      </footer>
    );
  }
  if (stage.at === "running" || stage.at === "sending" || stage.at === "waiting") {
    return (
      <footer>
        <Button onClick={close}>Continue in the background</Button>
      </footer>
    );
  }
  const plan = stage.at === "planned" ? stage.plan : undefined;
  const refused = (plan?.refused.length ?? 0) > 0;
  const reader = user.value?.role === "ReadOnly";
  const blocked = stage.at !== "planned" || refused || (change.confirm !== undefined && typed.value !== change.confirm);
  const submit = (event: Event) => {
    event.preventDefault();
    if (!blocked && !reader) void carryOut(change);
  };
  return (
    <form onSubmit={submit}>
      {change.confirm !== undefined && !refused && (
        <Field
          label={`Type ${change.confirm} to confirm`}
          value={typed.value}
          onInput={(value) => (typed.value = value)}
          name="confirm"
        />
      )}
      {reader && <p class="quiet">The role ReadOnly may look, and not change anything.</p>}
      <footer>
        <Button onClick={close}>{refused ? "Close" : "Cancel"}</Button>
        {!refused && (
          <Button type="submit" class={change.confirm ? "danger" : "primary"} disabled={blocked || reader} data-test="apply">
            Apply
          </Button>
        )}
      </footer>
    </form>
  );
}
