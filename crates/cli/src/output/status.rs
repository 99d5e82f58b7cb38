//! The view of a running target's status: ports, subsystems, drives and controllers.

use std::fmt::Write as _;

use ebof_manage::api::{
    Configuration, Confinement, ControllerStatus, DriveStatus, MeasureState, MeasureStatus, MissingObject, PathAccess,
    PortStatus, ProvingHost, Source, Status, SubsystemStatus,
};
use ebof_manage::config::Security;

use super::View;
use super::history::utc;
use super::json::Object;
use super::text::{safe, si, table};

/// The status of a target.
pub(crate) struct ShownStatus {
    pub(crate) status: Status,
    /// The configuration in force.
    pub(crate) configuration: Configuration,
}

impl View for ShownStatus {
    fn text(&self, _verbose: bool) -> String {
        let Self { status, configuration } = self;
        let Status { version, uptime_s, connections, connections_max, .. } = status;
        let mut text = format!(
            "ebof {}, serving for {}, {connections} of at most {connections_max} connections\n\n",
            safe(version),
            duration(*uptime_s)
        );
        text += &source_text(configuration);
        status.confinement.iter().for_each(|confinement| text += &confinement_text(confinement));
        if let Some(why) = &status.keys_unprotected {
            let _infallible = writeln!(text, "UNPROTECTED KEYS: {}\n", safe(why));
        }
        for MissingObject { kind, name, reason, .. } in &status.missing {
            let _infallible = writeln!(text, "MISSING {kind} {}: {}\n", safe(name), safe(reason));
        }
        text += &ports_text(status);
        status.subsystems.iter().for_each(|subsystem| text += &subsystem_text(subsystem));
        if !status.drives.is_empty() {
            let columns =
                [("DRIVE", 5), ("SIZE", 4), ("UNALLOCATED", 11), ("NAMESPACES", 10), ("HEALTH", 6), ("BACKING", 7)];
            let rows: Vec<_> = status.drives.iter().map(drive_row).collect();
            let _infallible = write!(text, "\n{}", table(&columns, &rows));
        }
        if !status.controllers.is_empty() {
            let columns = [
                ("HOST", 4),
                ("SUBSYSTEM", 9),
                ("CNTLID", 6),
                ("PORT", 4),
                ("FROM", 4),
                ("I/O QUEUES", 10),
                ("COMMANDS", 8),
            ];
            let rows: Vec<_> = status.controllers.iter().map(controller_row).collect();
            let _infallible = write!(text, "\n{}", table(&columns, &rows));
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let Configuration { revision, source, generation, .. } = &self.configuration;
        Object::document("target-status", 1)
            .with("status", serde_json::to_value(&self.status).unwrap_or_default())
            .with("revision", revision.as_str())
            .with("source", serde_json::to_value(source).unwrap_or_default())
            .with("generation", *generation)
    }
}

/// What the process has given up, and what it was to give up and has not.
fn confinement_text(confinement: &Confinement) -> String {
    let in_force = confinement.measures.iter().filter(|it| matches!(it.state, MeasureState::On | MeasureState::Partly));
    let names: Vec<&str> = in_force.map(|it| it.measure.name()).collect();
    let mut text = match names.as_slice() {
        [] => "given up: nothing\n".to_owned(),
        names => format!("given up: {}\n", names.join(", ")),
    };
    for MeasureStatus { measure, problem, .. } in confinement.failures() {
        let _infallible = writeln!(text, "NOT AS ASKED {measure}: {}", safe(problem.as_deref().unwrap_or_default()));
    }
    let written = confinement.paths.iter().filter(|right| right.access == PathAccess::Write);
    let written: Vec<_> = written.map(|right| safe(&right.path)).collect();
    if !written.is_empty() {
        let _infallible = writeln!(text, "may write: {}", written.join(", "));
    }
    text + "\n"
}

/// What the target goes by, and whether that is what is in force.
fn source_text(configuration: &Configuration) -> String {
    let mut text = match &configuration.source {
        Source::Arguments => "configuration: arguments of the command line".to_owned(),
        Source::State { path } => format!("configuration: the state directory {}", safe(path)),
        Source::File { path, differs, problem } => {
            let differs = match (differs, problem) {
                (Some(true), _) => ", which says something else than what is in force",
                (None, Some(_)) => ", which cannot be used any more",
                // Who sees a part of the target only is not told.
                (Some(false), _) | (None, None) => "",
            };
            format!("configuration: {}{differs}", safe(path))
        }
    };
    if let Some(generation) = configuration.generation {
        let _infallible = write!(text, "; stored as generation {generation}");
    }
    text + "\n\n"
}

fn ports_text(status: &Status) -> String {
    // Most targets have no states: then there is no column for them.
    let has_states = status.ports.iter().any(|port| !port.ana.is_empty());
    let states = |port: &PortStatus| {
        let all = port.ana.iter().map(|(group, state)| format!("{group} {}", state.name())).collect::<Vec<_>>();
        has_states.then(|| if all.is_empty() { "-".to_owned() } else { all.join(", ") })
    };
    let row = |port: &PortStatus| {
        let listens = match &port.socket {
            Some(socket) => format!("{}:{}", port.transport, safe(socket)),
            None => format!("{}://{}", port.transport, port.address),
        };
        let [connections, accepted, refused] = [u64::from(port.connections), port.accepted, port.refused];
        let counts = [connections, accepted, refused].map(|count| count.to_string());
        [safe(&port.name), listens].into_iter().chain(counts).chain(states(port)).collect()
    };
    let dashes = if has_states { 4 } else { 3 };
    let disabled = |name: &String| {
        [safe(name), "disabled".to_owned()].into_iter().chain(std::iter::repeat_n("-".to_owned(), dashes))
    };
    let rows = status.ports.iter().map(row).chain(status.disabled_ports.iter().map(|name| disabled(name).collect()));
    let mut columns = vec![("PORT", 4), ("LISTENS ON", 10), ("CONNECTIONS", 11), ("ACCEPTED", 8), ("REFUSED", 7)];
    columns.extend(has_states.then_some(("ANA GROUPS", 10)));
    table(&columns, &rows.collect::<Vec<_>>())
}

fn subsystem_text(subsystem: &SubsystemStatus) -> String {
    let SubsystemStatus { nqn, enabled, allow_any_host, allowed_hosts, security, ports, namespaces, .. } = subsystem;
    let hosts = match (allow_any_host, allowed_hosts.as_slice()) {
        (true, _) => "any host".to_owned(),
        (false, []) => "no host".to_owned(),
        (false, hosts) => hosts.iter().map(|host| safe(host)).collect::<Vec<_>>().join(", "),
    };
    let ports = ports.iter().map(|port| safe(port)).collect::<Vec<_>>().join(", ");
    let ports = if ports.is_empty() { "no port".to_owned() } else { ports };
    let disabled = if *enabled { "" } else { "disabled, " };
    let security = security.name();
    let mut text = format!("\nsubsystem {}: {disabled}for {hosts} (security: {security}), at {ports}\n", safe(nqn));
    if namespaces.is_empty() {
        return text;
    }
    let columns = [
        ("NSID", 4),
        ("SIZE", 4),
        ("BLOCK", 5),
        ("READ", 4),
        ("WRITTEN", 7),
        ("COMMANDS", 8),
        ("ERRORS", 6),
        ("DRIVE", 5),
    ];
    let rows = namespaces.iter().map(|namespace| {
        let io = &namespace.io;
        // Its device is not open.
        let is_known = namespace.block_size_bytes > 0;
        let remark = match (*enabled && namespace.enabled, namespace.write_protect) {
            (false, _) => " (disabled)",
            (true, true) => " (write protected)",
            (true, false) => "",
        };
        vec![
            namespace.nsid.to_string(),
            if is_known { si(namespace.size_bytes.into()) } else { "-".to_owned() },
            if is_known { namespace.block_size_bytes.to_string() } else { "-".to_owned() },
            si(io.read_bytes.into()),
            si(io.write_bytes.into()),
            (io.read_commands + io.write_commands + io.other_commands).to_string(),
            io.errors.to_string(),
            safe(&namespace.drive) + remark,
        ]
    });
    for line in table(&columns, &rows.collect::<Vec<_>>()).lines() {
        let _infallible = writeln!(text, "  {line}");
    }
    text
}

fn drive_row(drive: &DriveStatus) -> Vec<String> {
    let health = &drive.health;
    let state = match health.critical_warning {
        0 => format!("{} % used", health.percentage_used),
        warning => format!("CRITICAL WARNING {warning:#x}"),
    };
    let state = match &drive.ana_limit {
        Some(limit) => format!("{state}, {}", safe(limit)),
        None => state,
    };
    vec![
        safe(&drive.name),
        si(drive.capacity_bytes.into()),
        si(drive.unallocated_bytes.into()),
        format!("{} of {}", drive.namespaces, drive.namespaces_max),
        state,
        safe(&drive.backing),
    ]
}

fn controller_row(controller: &ControllerStatus) -> Vec<String> {
    let ControllerStatus { host_nqn, subsystem_nqn, cntlid, port, peer, queues, .. } = controller;
    let commands: u64 = queues.iter().map(|queue| queue.commands).sum();
    let io_queues = queues.iter().filter(|queue| queue.id != 0).count();
    vec![
        safe(host_nqn),
        if controller.discovery { "discovery".to_owned() } else { safe(subsystem_nqn) },
        cntlid.to_string(),
        safe(port),
        peer.to_string(),
        io_queues.to_string(),
        commands.to_string(),
    ]
}

/// The hosts of a target: who has proven what, by what, and since when.
pub(crate) struct ShownHosts(pub(crate) Status);

impl View for ShownHosts {
    fn text(&self, _verbose: bool) -> String {
        let columns =
            [("HOST", 4), ("PROVEN BY", 9), ("SINCE", 5), ("FROM", 4), ("SUBSYSTEM", 9), ("CNTLID", 6), ("PORT", 4)];
        let proven = self.0.controllers.iter().map(host_row);
        let rows: Vec<_> = proven.chain(self.0.proving.iter().map(proving_row)).collect();
        if rows.is_empty() { "no host is connected\n".to_owned() } else { table(&columns, &rows) }
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document("target-hosts", 1)
            .with("controllers", serde_json::to_value(&self.0.controllers).unwrap_or_default())
            .with("proving", serde_json::to_value(&self.0.proving).unwrap_or_default())
    }
}

/// Of a host that has no controller yet.
fn proving_row(host: &ProvingHost) -> Vec<String> {
    vec![
        safe(&host.host_nqn),
        "nothing yet: proving".to_owned(),
        utc(host.connected_since_unix_ms),
        host.peer.to_string(),
        safe(&host.subsystem_nqn),
        String::new(),
        safe(&host.port),
    ]
}

fn host_row(controller: &ControllerStatus) -> Vec<String> {
    let ControllerStatus { host_nqn, proof, connected_since_unix_ms, peer, cntlid, port, .. } = controller;
    let proof = match proof {
        Security::Anyone => "nothing: a claim",
        Security::Authenticated => "authentication",
        Security::Tls => "TLS",
        Security::AuthenticatedTls => "authentication, TLS",
    };
    vec![
        safe(host_nqn),
        proof.to_owned(),
        utc(*connected_since_unix_ms),
        peer.to_string(),
        if controller.discovery { "discovery".to_owned() } else { safe(&controller.subsystem_nqn) },
        cntlid.to_string(),
        safe(port),
    ]
}

/// The two largest units: `3 d 4 h`, `59 s`.
fn duration(seconds: u64) -> String {
    let units = [(seconds / 86400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "min"), (seconds % 60, "s")];
    let first = units.iter().position(|(count, _)| *count > 0).unwrap_or(units.len() - 1);
    let shown = units.iter().skip(first).take(2).map(|(count, unit)| format!("{count} {unit}"));
    shown.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use ebof_manage::api::Revision;

    use super::*;

    #[test]
    fn the_status_is_shown_as_tables() {
        let json = include_str!("../../testdata/status.json");
        let status: Status = serde_json::from_str(json).unwrap();
        let file = Source::File { path: "/etc/ebof/ebof.toml".to_owned(), differs: Some(true), problem: None };
        let configuration = Configuration {
            schema: 1,
            revision: Revision::named("75eaf908"),
            source: file,
            generation: Some(7),
            toml: String::new(),
        };
        let shown = ShownStatus { status, configuration };
        insta::assert_snapshot!(shown.text(false));
        assert!(shown.json(false).to_text().unwrap().contains("\"schema\": \"ebof/target-status/1\""));
        let mut hosts = ShownHosts(shown.status);
        hosts.0.controllers[0].proof = Security::AuthenticatedTls;
        insta::assert_snapshot!(hosts.text(false));
        assert!(hosts.json(false).to_text().unwrap().contains("\"proof\": \"authenticated+tls\""));
        let ControllerStatus { host_nqn, subsystem_nqn, port, peer, connected_since_unix_ms, .. } =
            hosts.0.controllers[0].clone();
        hosts.0.controllers.clear();
        assert_eq!(hosts.text(false), "no host is connected\n");
        hosts.0.proving = vec![ProvingHost { host_nqn, subsystem_nqn, port, peer, connected_since_unix_ms }];
        assert!(hosts.text(false).contains("nothing yet: proving"), "{}", hosts.text(false));
    }

    #[test]
    fn who_sees_a_part_of_the_target_is_not_told_that_its_file_is_of_no_use() {
        let file = |differs, problem: Option<&str>| Configuration {
            schema: 1,
            revision: Revision::named("75eaf908"),
            source: Source::File { path: "/e".to_owned(), differs, problem: problem.map(str::to_owned) },
            generation: None,
            toml: String::new(),
        };
        let limited = file(None, Some("line 3")).limited_to(&ebof_manage::Config::default()).unwrap();
        assert_eq!(source_text(&limited), "configuration: /e\n\n");
        assert!(source_text(&file(None, Some("line 3"))).contains("cannot be used any more"));
    }

    #[test]
    fn durations_have_two_units() {
        let texts = [0, 59, 60, 3600, 86_399, 90_000, 8_640_000].map(duration);
        assert_eq!(texts, ["0 s", "59 s", "1 min 0 s", "1 h 0 min", "23 h 59 min", "1 d 1 h", "100 d 0 h"]);
    }
}
