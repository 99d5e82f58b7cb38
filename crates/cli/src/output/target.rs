//! The views of a running target: who has what, and the tasks that change it.

use std::fmt::Write as _;

use ebof_manage::enclosure::{DriveObject, FunctionObject, HostObject, Inventory, ShareObject, Task, TaskState};

use super::View;
use super::json::Object;
use super::text::{safe, si, si_and_binary, table, temperature};

/// What there is, and who has it.
pub(crate) struct ShownInventory(pub(crate) Inventory);

/// A task.
pub(crate) struct ShownTask(pub(crate) Task);

/// Tasks.
pub(crate) struct ShownTasks(pub(crate) Vec<Task>);

impl View for ShownInventory {
    fn text(&self, verbose: bool) -> String {
        let Self(inventory) = self;
        let mut text = String::new();
        for drive in &inventory.drives {
            text += &drive_text(drive, verbose);
        }
        for subsystem in &inventory.subsystems {
            let namespaces = counted(subsystem.namespaces as usize, "namespace");
            let _infallible =
                writeln!(text, "subsystem {}: {namespaces}, at {}\n", subsystem.nqn, listed(&subsystem.ports));
        }
        text += &ports_text(inventory);
        let hosts = hosts(inventory);
        if !hosts.is_empty() {
            let columns = [("HOST", 4), ("HAS", 3), ("CNTLID", 6), ("QUEUES", 6), ("PORT", 4), ("FROM", 4)];
            text += "\n";
            text += &table(&columns, &hosts);
        }
        text += &sensors_text(inventory);
        for contradiction in &inventory.contradictions {
            let _infallible = writeln!(text, "\nwarning: {}", safe(contradiction));
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let inventory = serde_json::to_value(&self.0).unwrap_or_default();
        Object::document("target-show", 1).with("inventory", inventory)
    }
}

fn drive_text(drive: &DriveObject, verbose: bool) -> String {
    let mut text = format!("drive {}: {}", drive.name, si_and_binary(drive.capacity_bytes.into()));
    let _infallible = write!(text, ", {} unallocated", si(drive.unallocated_bytes.into()));
    if let Some(kelvin) = drive.temperature_kelvin {
        let _infallible = write!(text, ", {}", temperature(kelvin));
    }
    if drive.critical_warning != 0 {
        let _infallible = write!(text, ", CRITICAL WARNING {:#x}", drive.critical_warning);
    }
    if let Some(percent) = drive.sanitize_percent {
        let _infallible = write!(text, ", BEING SANITIZED ({percent} %)");
    }
    if let Some(percent) = drive.self_test_percent {
        let _infallible = write!(text, ", testing itself ({percent} %)");
    }
    if drive.added {
        text += ", added until the next start or reload";
    }
    if let Some(task) = drive.task {
        let _infallible = write!(text, ", being changed by task {task}");
    }
    let _infallible = writeln!(text, ": {}", safe(&drive.backing));
    if verbose {
        let _infallible = writeln!(text, "  {} at {}", drive.nqn, listed(&drive.ports));
    }
    if let Some(all) = &drive.resources {
        let _infallible = writeln!(
            text,
            "  resources: {} of {} queues and {} of {} interrupts are assigned",
            all.queues_assigned, all.queues_total, all.interrupts_assigned, all.interrupts_total
        );
    }
    if !drive.functions.is_empty() {
        let columns = [
            ("FUNCTION", 8),
            ("STATE", 7),
            ("PORT", 4),
            ("QUEUES", 6),
            ("INTERRUPTS", 10),
            ("WEIGHT", 6),
            ("LIMITS", 6),
            ("NAMESPACES", 10),
            ("HOSTS", 5),
        ];
        text += &indented(&table(&columns, &drive.functions.iter().map(function_row).collect::<Vec<_>>()));
    }
    if !drive.namespaces.is_empty() {
        let columns = [("NAMESPACE", 9), ("SIZE", 4), ("BLOCK", 5), ("FUNCTIONS", 9), ("HOSTS", 5)];
        let rows = drive.namespaces.iter().map(|namespace| {
            let functions: Vec<String> =
                namespace.functions.iter().map(|function| format!("vf{}", function.number)).collect();
            let protected = if namespace.write_protected { " protected" } else { "" };
            let erased = namespace.format_percent.map(|percent| format!(" being erased ({percent} %)"));
            vec![
                format!(
                    "ns{}{}{protected}{}",
                    namespace.name.nsid,
                    if namespace.shared { " shared" } else { "" },
                    erased.unwrap_or_default()
                ),
                si(namespace.size_bytes.into()),
                namespace.block_size_bytes.to_string(),
                listed(&functions),
                listed(&namespace.hosts),
            ]
        });
        text += &indented(&table(&columns, &rows.collect::<Vec<_>>()));
    }
    text + "\n"
}

fn function_row(function: &FunctionObject) -> Vec<String> {
    let state = match (function.task, function.online) {
        (Some(task), _) => format!("task {task}"),
        (None, true) => "online".to_owned(),
        (None, false) => "offline".to_owned(),
    };
    let ports = Vec::from_iter(function.ports.iter().map(|port| safe(port))).join(", ");
    let port = match ports.as_str() {
        "" => "-".to_owned(),
        _ if !function.port_exists => format!("{ports} (gone)"),
        _ => ports,
    };
    let namespaces: Vec<String> = function.namespaces.iter().map(|name| format!("ns{}", name.nsid)).collect();
    vec![
        format!("vf{}", function.name.number),
        state,
        port,
        function.queues.to_string(),
        function.interrupts.to_string(),
        function.share.weight.to_string(),
        limits(&function.share),
        listed(&namespaces),
        function.hosts.len().to_string(),
    ]
}

/// `50000 IOPS, 1.00 GB/s, at least 1000 IOPS`
fn limits(share: &ShareObject) -> String {
    let iops = share.iops.map(|iops| format!("{iops} IOPS"));
    let bytes = share.bytes_per_second.map(|bytes| format!("{}/s", si(bytes.into())));
    let least = share.minimum_iops.map(|iops| format!("at least {iops} IOPS"));
    listed(&iops.into_iter().chain(bytes).chain(least).collect::<Vec<_>>())
}

fn ports_text(inventory: &Inventory) -> String {
    let rows: Vec<Vec<String>> = inventory
        .ports
        .iter()
        .map(|port| {
            let functions: Vec<String> = port.functions.iter().map(ToString::to_string).collect();
            let listen = safe(&port.listen);
            vec![safe(&port.name), listen, listed(&functions), port.connections.to_string()]
        })
        .collect();
    table(&[("PORT", 4), ("LISTENS ON", 10), ("FUNCTIONS", 9), ("CONNECTIONS", 11)], &rows)
}

/// Who has what, by controllers.
fn hosts(inventory: &Inventory) -> Vec<Vec<String>> {
    let row = |what: &str, host: &HostObject| {
        vec![
            safe(&host.nqn),
            what.to_owned(),
            host.cntlid.to_string(),
            host.io_queues.to_string(),
            safe(&host.port),
            safe(&host.peer),
        ]
    };
    let mut rows = Vec::new();
    for drive in &inventory.drives {
        rows.extend(drive.hosts.iter().map(|host| row(&drive.name, host)));
        for function in &drive.functions {
            rows.extend(function.hosts.iter().map(|host| row(&function.name.to_string(), host)));
        }
    }
    for subsystem in &inventory.subsystems {
        rows.extend(subsystem.hosts.iter().map(|host| row(&subsystem.nqn, host)));
    }
    rows
}

fn sensors_text(inventory: &Inventory) -> String {
    let sensors = &inventory.sensors;
    let temperatures = sensors.temperatures.iter().map(|sensor| {
        let tenths = sensor.millidegrees_celsius / 100;
        format!("{} {}.{} °C", safe(&sensor.name), tenths / 10, (tenths % 10).abs())
    });
    let fans = sensors.fans.iter().map(|fan| format!("{} {} rpm", safe(&fan.name), fan.rpm));
    let all: Vec<String> = temperatures.chain(fans).collect();
    if all.is_empty() { String::new() } else { format!("\nsensors: {}\n", all.join(", ")) }
}

impl View for ShownTask {
    fn text(&self, _verbose: bool) -> String {
        let Self(task) = self;
        match task.state {
            TaskState::Running => {
                let id = task.id;
                format!(
                    "task {id}: {}: {} ({} %); `ebof target tasks {id} --wait` waits for its end\n",
                    safe(&task.what),
                    task.phase,
                    task.percent
                )
            }
            TaskState::Done => {
                let remark = task.remark.as_ref().map(|remark| format!("{}\n", safe(remark))).unwrap_or_default();
                let made: String = task.made.iter().map(|name| format!("{}\n", safe(name))).collect();
                format!("{}: done in {} ms\n{made}{remark}", safe(&task.what), task.elapsed_ms)
            }
            TaskState::Failed => format!("{}: failed after {} ms\n", safe(&task.what), task.elapsed_ms),
        }
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document("target-task", 1).with("task", serde_json::to_value(&self.0).unwrap_or_default())
    }
}

impl View for ShownTasks {
    fn text(&self, _verbose: bool) -> String {
        let rows: Vec<Vec<String>> = self.0.iter().map(task_row).collect();
        table(&[("TASK", 4), ("STATE", 7), ("PHASE", 5), ("DONE", 4), ("TIME", 4), ("WHAT", 4)], &rows)
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document("target-tasks", 1).with("tasks", serde_json::to_value(&self.0).unwrap_or_default())
    }
}

fn task_row(task: &Task) -> Vec<String> {
    let state = match task.state {
        TaskState::Running => "running",
        TaskState::Done => "done",
        TaskState::Failed => "failed",
    };
    let (phase, why) = match &task.error {
        Some(error) => (error.phase, format!(": {}", safe(&error.message))),
        None => (task.phase, String::new()),
    };
    vec![
        task.id.to_string(),
        state.to_owned(),
        phase.to_string(),
        format!("{} %", task.percent),
        format!("{} ms", task.elapsed_ms),
        safe(&task.what) + &why,
    ]
}

fn listed<T: AsRef<str>>(items: &[T]) -> String {
    if items.is_empty() {
        return "-".to_owned();
    }
    items.iter().map(|item| safe(item.as_ref())).collect::<Vec<_>>().join(", ")
}

fn counted(count: usize, name: &str) -> String {
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}
