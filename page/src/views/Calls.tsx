//! The requests that this page made: whatever it does can be scripted.

import { type Call, calls } from "../api/calls";
import { time } from "../ui/format";
import { Badge, CallText } from "../ui/parts";

export function CallsView() {
  const rows = calls.value.toReversed();
  return (
    <>
      <div class="toolbar">
        <h1>Calls</h1>
      </div>
      <p class="quiet">
        The requests that changed something since this page was opened, newest first. <code>$TOKEN</code> is the
        X-Auth-Token of a session; passwords are left out.
      </p>
      {rows.length === 0 && <p class="empty">Nothing was changed from here yet.</p>}
      <ol class="calls" reversed>
        {rows.map((call) => (
          <li key={call.id}>
            <p>
              <span class="number">{time(call.began)}</span> <State call={call} />{" "}
              {call.status !== 0 && <span class="quiet">{call.tookMs} ms</span>}
            </p>
            <CallText call={call} />
          </li>
        ))}
      </ol>
    </>
  );
}

function State({ call }: { call: Call }) {
  if (call.status === 0) return <Badge tone="warn">running</Badge>;
  if (call.status < 0) return <Badge tone="bad">no answer</Badge>;
  return <Badge tone={call.status < 400 ? "good" : "bad"}>{call.status}</Badge>;
}
