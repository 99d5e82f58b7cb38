//! Views of RDMA devices, and of what was measured between two machines.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use ebof_bench::rdma::{Latencies, Measured, Served};
use ebof_verbs::DeviceInfo;
use ebof_verbs::diagnosis::Obstacle;
use ebof_verbs::sysfs::{SysDevice, SysGid, SysPort};

use super::View;
use super::json::{Json, Object};

/// The devices of this machine.
#[derive(Debug)]
pub(crate) struct DevicesView {
    /// As the kernel shows them.
    pub(crate) systems: Vec<SysDevice>,
    /// As rdma-core does, where it can open them.
    pub(crate) devices: Vec<DeviceInfo>,
    pub(crate) obstacles: Vec<Obstacle>,
}

impl DevicesView {
    fn info(&self, name: &str) -> Option<&DeviceInfo> {
        self.devices.iter().find(|device| device.attributes.name == name)
    }
}

/// Active and largest MTU of a port.
fn mtu(info: Option<&DeviceInfo>, number: u8) -> Option<(u32, u32)> {
    let port = info?.ports.iter().find(|port| port.number == number)?;
    Some((port.active_mtu, port.max_mtu))
}

/// An IPv4 address in a GID as such.
fn address(gid: Ipv6Addr) -> IpAddr {
    gid.to_ipv4_mapped().map_or(IpAddr::V6(gid), IpAddr::V4)
}

impl View for DevicesView {
    fn text(&self, _verbose: bool) -> String {
        let mut text = String::new();
        for SysDevice { name, ports, .. } in &self.systems {
            let info = self.info(name);
            let _infallible = match info {
                Some(info) if info.firmware.is_empty() => writeln!(text, "{name}: {}", info.attributes.protocol),
                Some(info) => writeln!(text, "{name}: {}, firmware {}", info.attributes.protocol, info.firmware),
                None => writeln!(text, "{name}"),
            };
            for port in ports {
                port_text(port, mtu(info, port.number), &mut text);
            }
        }
        for obstacle in &self.obstacles {
            let _infallible = writeln!(text, "{obstacle}\n  {}", obstacle.advice());
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let devices: Vec<_> = self.systems.iter().map(|system| device_json(system, self.info(&system.name))).collect();
        let obstacle = |obstacle: &Obstacle| {
            Object::new()
                .with("kind", obstacle.kind())
                .with("message", obstacle.to_string())
                .with("advice", obstacle.advice())
        };
        let obstacles: Vec<_> = self.obstacles.iter().map(obstacle).collect();
        Object::document("rdma-check", 1).with("devices", devices).with("obstacles", obstacles)
    }
}

fn port_text(port: &SysPort, mtu: Option<(u32, u32)>, text: &mut String) {
    let SysPort { number, state, physical_state, link_layer, rate, interfaces, gids } = port;
    let _infallible = write!(text, "  port {number}: {state}, link {physical_state}, {link_layer}, {rate}");
    if let Some((active, max)) = mtu {
        let _infallible = write!(text, ", MTU {active} of {max}");
    }
    if !interfaces.is_empty() {
        let _infallible = write!(text, ", on {}", interfaces.join(" and "));
    }
    text.push('\n');
    for SysGid { index, gid, kind, interface } in gids {
        let _infallible = write!(text, "    GID {index}: {}", address(*gid));
        if !kind.is_empty() {
            let _infallible = write!(text, ", {kind}");
        }
        if let Some(interface) = interface {
            let _infallible = write!(text, ", {interface}");
        }
        text.push('\n');
    }
}

fn device_json(system: &SysDevice, info: Option<&DeviceInfo>) -> Object {
    let text = |text: Option<String>| text.map_or(Json::Null, Json::from);
    let gid = |gid: &SysGid| {
        Object::new()
            .with("index", gid.index)
            .with("gid", gid.gid.to_string())
            .with("address", address(gid.gid).to_string())
            .with("type", gid.kind.as_str())
            .with("interface", text(gid.interface.clone()))
    };
    let port = |port: &SysPort| {
        let mtu = mtu(info, port.number);
        let number = |number: Option<u32>| number.map_or(Json::Null, Json::from);
        Object::new()
            .with("port", u32::from(port.number))
            .with("state", port.state.as_str())
            .with("physical_state", port.physical_state.as_str())
            .with("link_layer", port.link_layer.as_str())
            .with("rate", port.rate.as_str())
            .with("active_mtu", number(mtu.map(|(active, _)| active)))
            .with("max_mtu", number(mtu.map(|(_, max)| max)))
            .with("interfaces", port.interfaces.clone())
            .with("gids", port.gids.iter().map(gid).collect::<Vec<_>>())
    };
    Object::new()
        .with("name", system.name.as_str())
        .with("protocol", text(info.map(|info| info.attributes.protocol.to_string())))
        .with("firmware", text(info.map(|info| info.firmware.clone())))
        .with("ports", system.ports.iter().map(port).collect::<Vec<_>>())
}

/// What a client has measured.
#[derive(Debug)]
pub(crate) struct ClientView {
    pub(crate) address: SocketAddr,
    /// The address that it connects from.
    pub(crate) local: Option<IpAddr>,
    /// Empty where only the way was looked at.
    pub(crate) measured: Vec<Measured>,
}

impl View for ClientView {
    fn text(&self, _verbose: bool) -> String {
        let from = self.local.map(|local| format!(" from {local}")).unwrap_or_default();
        if self.measured.is_empty() {
            return format!("nothing prevents RDMA connections{from} to {}\n", self.address.ip());
        }
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        table.set_header([
            "operation",
            "bytes",
            "count",
            "MiB/s",
            "Mpps",
            "bytes",
            "min us",
            "median us",
            "99 % us",
            "max us",
        ]);
        for measured in &self.measured {
            let Latencies { min, median, p99, max, .. } = measured.latency;
            let mut row = vec![
                measured.operation.name().to_owned(),
                measured.bytes.to_string(),
                measured.count.to_string(),
                format!("{:.2}", mebibytes(measured)),
                format!("{:.6}", measured.rate() / 1e6),
                measured.latency_bytes.to_string(),
            ];
            row.extend([min, median, p99, max].map(|time| format!("{:.2}", micros(time))));
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!("RDMA{from} to {}\n{table}\n", self.address)
    }

    fn json(&self, _verbose: bool) -> Object {
        let measured = |measured: &Measured| {
            let Latencies { count, min, median, p99, max } = measured.latency;
            let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            Object::new()
                .with("operation", measured.operation.name())
                .with("bytes", measured.bytes)
                .with("depth", measured.depth)
                .with("count", measured.count)
                .with("time_ns", nanoseconds(measured.time))
                .with("bytes_per_second", rounded(measured.bandwidth()))
                .with("latency_bytes", measured.latency_bytes)
                .with("latency_count", count)
                .with("latency_min_ns", nanoseconds(min))
                .with("latency_median_ns", nanoseconds(median))
                .with("latency_p99_ns", nanoseconds(p99))
                .with("latency_max_ns", nanoseconds(max))
        };
        Object::document("rdma-check-client", 1)
            .with("traddr", self.address.ip().to_string())
            .with("trsvcid", self.address.port().to_string())
            .with("host_traddr", self.local.map_or(Json::Null, |local| local.to_string().into()))
            .with("measured", self.measured.iter().map(measured).collect::<Vec<_>>())
    }
}

/// A measurement that was served.
pub(crate) struct ServedView<'a>(pub(crate) &'a Served);

impl ServedView<'_> {
    pub(crate) fn text_line(&self) -> String {
        let Served { peer, operation, error } = self.0;
        match (operation, error) {
            (Some(operation), None) => format!("{peer}: {}\n", operation.name()),
            (Some(operation), Some(error)) => format!("{peer}: {}: {error}\n", operation.name()),
            (None, Some(error)) => format!("{peer} was refused: {error}\n"),
            (None, None) => format!("{peer} was refused\n"),
        }
    }

    pub(crate) fn line(&self) -> serde_json::Result<String> {
        let Served { peer, operation, error } = self.0;
        Object::document("rdma-check-server", 1)
            .with("peer", peer.to_string())
            .with("operation", operation.map_or(Json::Null, |operation| operation.name().into()))
            .with("error", error.as_ref().map_or(Json::Null, |error| error.to_string().into()))
            .to_line()
    }
}

/// As perftest counts: 2^20 bytes.
fn mebibytes(measured: &Measured) -> f64 {
    measured.bandwidth() / f64::from(1 << 20)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes per second, not negative")]
fn rounded(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests {
    use ebof_bench::rdma::Operation;
    use ebof_verbs::{DeviceAttributes, LinkLayer, PortInfo, PortState, Protocol};

    use super::*;

    fn devices() -> DevicesView {
        let gid = |index, gid: &str, kind: &str| SysGid {
            index,
            gid: gid.parse().unwrap(),
            kind: kind.into(),
            interface: Some("eth0".into()),
        };
        let port = SysPort {
            number: 1,
            state: "ACTIVE".into(),
            physical_state: "LinkUp".into(),
            link_layer: "Ethernet".into(),
            rate: "25 Gb/sec (1X EDR)".into(),
            interfaces: vec!["eth0".into()],
            gids: vec![gid(0, "fe80::1", "RoCE v2"), gid(3, "::ffff:192.168.13.147", "RoCE v2")],
        };
        let attributes = DeviceAttributes {
            name: "mlx5_0".into(),
            protocol: Protocol::RoceV2,
            queue_pairs: 1 << 18,
            queue_entries: 1 << 15,
            completion_entries: 1 << 22,
            shared_receive_queues: 1 << 20,
            shared_receive_entries: 1 << 15,
            responder_resources: 16,
            initiator_depth: 16,
            regions: 1 << 24,
            region_bytes: u64::MAX,
            ..ebof_verbs::simulated::device()
        };
        let info = PortInfo {
            number: 1,
            state: PortState::Active,
            link_layer: LinkLayer::Ethernet,
            active_mtu: 1024,
            max_mtu: 4096,
            gids: Vec::new(),
        };
        let closed = SysDevice {
            name: "rxe0".into(),
            is_iwarp: false,
            ports: vec![SysPort { gids: Vec::new(), ..port.clone() }],
        };
        DevicesView {
            systems: vec![SysDevice { name: "mlx5_0".into(), is_iwarp: false, ports: vec![port] }, closed],
            devices: vec![DeviceInfo { attributes, firmware: "14.28.1002".into(), ports: vec![info] }],
            obstacles: vec![Obstacle::NoDevice { interface: Some("eth0".into()) }],
        }
    }

    fn measured() -> ClientView {
        let micros = Duration::from_micros;
        let latency = Latencies {
            count: 1000,
            min: micros(2),
            median: micros(3),
            p99: micros(9),
            max: Duration::from_nanos(10_250),
        };
        let measured = Measured {
            operation: Operation::Send,
            bytes: 65_536,
            depth: 128,
            count: 1000,
            time: Duration::from_millis(20),
            latency_bytes: 2,
            latency,
        };
        let address = SocketAddr::from(([192, 168, 13, 147], 18_520));
        ClientView { address, local: Some([192, 168, 13, 146].into()), measured: vec![measured] }
    }

    #[test]
    fn devices_ports_and_gids_are_shown_with_what_is_missing() {
        insta::assert_snapshot!(devices().text(false));
        insta::assert_snapshot!(devices().json(false).to_text().unwrap());
    }

    #[test]
    fn measurements_are_a_table() {
        insta::assert_snapshot!(measured().text(false));
        insta::assert_snapshot!(measured().json(false).to_text().unwrap());
        let way = ClientView { measured: Vec::new(), ..measured() };
        let text = "nothing prevents RDMA connections from 192.168.13.146 to 192.168.13.147\n";
        assert_eq!(way.text(false), text);
    }

    #[test]
    fn a_served_measurement_is_a_line() {
        let served = Served { peer: measured().address, operation: Some(Operation::Read), error: None };
        assert_eq!(ServedView(&served).text_line(), "192.168.13.147:18520: read\n");
        let line =
            r#"{"schema":"ebof/rdma-check-server/1","peer":"192.168.13.147:18520","operation":"read","error":null}"#;
        assert_eq!(ServedView(&served).line().unwrap().trim_end(), line);
    }
}
