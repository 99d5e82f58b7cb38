//! The tasks of the box, and how far they have come.

import { tasks } from "../model/store";
import { Badge, Table, Time } from "../ui/parts";
import type { Task } from "../api/types";

const TONES: Record<string, "good" | "warn" | "bad"> = { Completed: "good", Running: "warn", Exception: "bad", Cancelled: "bad" };

function note(task: Task): string {
  const last = task.Messages?.at(-1);
  return task.Oem?.Ebof?.Detail || last?.Message || task.Oem?.Ebof?.Phase || "";
}

export function TasksView() {
  const rows = tasks.value.toSorted((a, b) => Number(b.Id) - Number(a.Id));
  return (
    <>
      <div class="toolbar">
        <h1>Tasks</h1>
      </div>
      <Table
        caption="Tasks"
        rows={rows}
        id={(task) => task.Id ?? ""}
        empty="No task has run since the target was started."
        columns={[
          { title: "Task", number: true, cell: (task) => task.Id },
          { title: "What", cell: (task) => task.Name },
          { title: "State", by: (task) => task.TaskState, cell: (task) => <Badge {...tone(task)}>{task.TaskState}</Badge> },
          { title: "Done", number: true, by: (task) => task.PercentComplete, cell: (task) => (task.PercentComplete === undefined ? "–" : `${task.PercentComplete} %`) },
          { title: "Began", extra: true, by: (task) => task.StartTime, cell: (task) => <Time at={task.StartTime} /> },
          { title: "Ended", extra: true, by: (task) => task.EndTime, cell: (task) => <Time at={task.EndTime} /> },
          { title: "Note", extra: true, cell: note },
        ]}
      />
    </>
  );
}

function tone(task: Task): { tone?: "good" | "warn" | "bad" } {
  const value = TONES[task.TaskState ?? ""];
  return value ? { tone: value } : {};
}
