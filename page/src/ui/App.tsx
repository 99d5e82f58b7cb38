//! The frame of the page: what is above and beside each view, and which view it is.

import { effect } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { ChangeDialog } from "../actions/ChangeDialog";
import { KeyDialog } from "../actions/KeyDialog";
import { reachable } from "../api/client";
import { retryStream, streamState } from "../api/stream";
import { gate, logout, mayAdminister, user } from "../api/session";
import { ChartsView } from "../charts/ChartsView";
import { streamedReport, watchKinds } from "../charts/live";
import { absences, acknowledged } from "../model/alerts";
import { loaded, missing, problem, startStore, stopStore, tasks } from "../model/store";
import { BoxView } from "../picture/Picture";
import { href, route } from "../router";
import { AccountsView } from "../views/Accounts";
import { CallsView } from "../views/Calls";
import { CertificatesView } from "../views/Certificates";
import { ConfigurationView } from "../views/Configuration";
import { DrivesView } from "../views/Drives";
import { EventsView } from "../views/Events";
import { HostsView } from "../views/Hosts";
import { KeysView } from "../views/Keys";
import { Login } from "../views/Login";
import { NamespacesView } from "../views/Namespaces";
import { OverviewView } from "../views/Overview";
import { PortsView } from "../views/Ports";
import { RefusedView } from "../views/Refused";
import { SlowView } from "../views/Slow";
import { TasksView } from "../views/Tasks";
import { LiveRegion } from "./live";
import { Notices } from "./notices";
import { Segments } from "./Segments";
import { type Choice, choice, choose } from "./theme";

const VIEWS: [string, string, ComponentType][] = [
  ["overview", "Overview", OverviewView],
  ["box", "Box", BoxView],
  ["charts", "Charts", ChartsView],
  ["drives", "Drives", DrivesView],
  ["namespaces", "Namespaces", NamespacesView],
  ["hosts", "Hosts", HostsView],
  ["keys", "Keys", KeysView],
  ["ports", "Ports", PortsView],
  ["slow", "Slow", SlowView],
  ["refused", "Refused", RefusedView],
  ["events", "Events", EventsView],
  ["tasks", "Tasks", TasksView],
  ["configuration", "Configuration", ConfigurationView],
  ["accounts", "Accounts", AccountsView],
  ["certificates", "Certificates", CertificatesView],
  ["calls", "Calls", CallsView],
];

/** Views of what only they see or change. */
const ADMINISTRATORS = ["keys", "certificates"];

effect(() => {
  if (gate.value === "in") startStore(streamedReport);
  else stopStore();
});

export function App() {
  return (
    <>
      {gate.value === "in" ? <Frame /> : <Gate />}
      <LiveRegion />
    </>
  );
}

function Gate() {
  return (
    <>
      <header class="top">
        <span class="brand">ebof</span>
        <span class="spacer" />
        <SchemeChoice />
      </header>
      <main class="gate">
        <Login />
      </main>
    </>
  );
}

function Frame() {
  const [name = "overview"] = route.value;
  const [, title, View] = VIEWS.find(([id]) => id === name) ?? (VIEWS[0] as (typeof VIEWS)[0]);
  const main = useRef<HTMLElement>(null);
  const first = useRef(true);
  useEffect(() => watchKinds(["Target", "Functions", "Ports", "Drives"]), []);
  useLayoutEffect(() => {
    document.title = `${title} – ebof`;
    // Another view is told by its heading.
    if (!first.current) {
      main.current?.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
    first.current = false;
  }, [title]);
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        Skip to the content
      </a>
      <Top />
      <Navigation at={name} />
      <main ref={main} id="main" tabIndex={-1} aria-label={title}>
        <Troubles />
        {loaded.value ? <View /> : <p class="quiet loading">{problem.value ? "" : "Reading the box …"}</p>}
      </main>
      <ChangeDialog />
      <KeyDialog />
      <Notices />
    </>
  );
}

const STREAM = {
  off: ["bad", "no events"],
  connecting: ["warn", "connecting …"],
  open: ["good", "live"],
  waiting: ["warn", "reconnecting …"],
} as const;

function Top() {
  const [tone, text] = STREAM[streamState.value];
  const running = tasks.value.filter((task) => ["Running", "Starting", "Pending", "New", "Stopping"].includes(task.TaskState ?? ""));
  return (
    <header class="top">
      <a class="brand" href={href("overview")}>
        ebof
      </a>
      <span class={`state ${tone}`} data-test="stream">
        <span class="dot on" aria-hidden="true" />
        {text}
      </span>
      {running.length > 0 && (
        <a class="running" href={href("tasks")}>
          {running.length === 1 ? "1 task runs" : `${running.length} tasks run`}
        </a>
      )}
      <span class="spacer" />
      <SchemeChoice />
      <span class="who">
        {user.value?.name}
        <span class="quiet"> {user.value?.role}</span>
      </span>
      <button type="button" class="small" onClick={() => void logout()}>
        Log out
      </button>
    </header>
  );
}

function SchemeChoice() {
  return (
    <Segments
      label="colours"
      options={[
        ["auto", "Auto"],
        ["light", "Light"],
        ["dark", "Dark"],
      ]}
      value={choice.value}
      onChange={(value) => choose(value as Choice)}
    />
  );
}

function Navigation({ at }: { at: string }) {
  const nav = useRef<HTMLElement>(null);
  // Where it is one line, the current view may be out of sight.
  useLayoutEffect(() => {
    nav.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [at]);
  return (
    <nav ref={nav} aria-label="Views">
      <ul>
        {VIEWS.filter(([id]) => mayAdminister() || !ADMINISTRATORS.includes(id)).map(([id, title]) => (
          <li>
            <a href={href(id)} aria-current={id === at ? "page" : undefined}>
              {title}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}

/** What keeps the page from showing what there is now. */
function Troubles() {
  if (!reachable.value) {
    return (
      <div class="trouble" role="alert">
        The target does not answer. What is shown may be out of date; the page tries again by itself.{" "}
        <button type="button" class="small" onClick={retryStream}>
          Try now
        </button>
      </div>
    );
  }
  if (problem.value) {
    return (
      <div class="trouble" role="alert">
        {problem.value}
      </div>
    );
  }
  // The overview has them among what needs attention.
  const absent = absences(missing.value).filter((one) => !acknowledged.value.includes(one.key));
  const [first] = absent;
  if (first && (route.value[0] ?? "overview") !== "overview") {
    return (
      <div class="trouble" role="alert" data-test="missing">
        {first.object} {first.text.split(": ")[0]}. {absent.length > 1 && `And ${absent.length - 1} more. `}
        <a href={href("overview")}>Overview</a>
      </div>
    );
  }
  return null;
}
