//! Changes of `ManagerNetworkProtocol`: where this service listens. They are changes of the
//! configuration (`https` and `http` of `[target]`), and take effect at once.

use std::net::{Ipv4Addr, SocketAddr};

use ebof_manage::Config;
use serde_json::Value;

use crate::area::demand::Demand;
use crate::managed::parts::Door;
use crate::managed::view::View;
use crate::request::input::Input;
use crate::response::message::{Message, Problem, Severity};

/// Protocols of the standard that other programs of the machine have.
const OF_OTHERS: &[&str] =
    &["SSH", "SNMP", "NTP", "IPMI", "Telnet", "KVMIP", "VirtualMedia", "DHCP", "DHCPv6", "RDP", "RFB", "FTP", "SFTP"];

/// What a request wants of a protocol.
#[derive(Clone, Copy, Debug, Default)]
struct ProtocolChange {
    enabled: Option<bool>,
    port: Option<u16>,
}

/// What a PATCH asks for. `current` is the resource.
pub(super) fn alter(mut input: Input, current: &Value, view: &View<'_>) -> Result<Demand, Problem> {
    let mut config = view.config().clone();
    let doors = view.parts.program.doors();
    let is_empty = input.names().next().is_none();
    input.object("HTTPS", |inner| https(inner, doors.https, &mut config));
    input.object("HTTP", |inner| http(inner, doors.http, &mut config));
    input.object("SSDP", |inner| {
        if inner.flag("ProtocolEnabled") == Some(true) {
            let advice = "Tell clients its address, or announce it by a program of the machine.";
            inner.mistake("ProtocolEnabled", refused("This service is not announced by SSDP.", advice));
        }
    });
    for name in OF_OTHERS {
        if input.value(name).is_some() {
            let message = format!("{name} is no protocol of this service.");
            let advice = format!("Configure {name} in the operating system of the machine.");
            input.mistake(name, refused(&message, &advice));
        }
    }
    input.finish(Some(current))?;
    if is_empty {
        return Err(Problem::bad_request(Message::no_operation()));
    }
    Ok(Demand::configuration(config, None))
}

fn read_protocol(input: &mut Input) -> ProtocolChange {
    let enabled = input.flag("ProtocolEnabled");
    let port = input.number("Port", 1..=u16::MAX.into());
    ProtocolChange { enabled, port }
}

fn https(input: &mut Input, door: Door, config: &mut Config) {
    let ProtocolChange { enabled, port } = read_protocol(input);
    if enabled == Some(false) && door.port.is_some() {
        let message = "Without HTTPS this service could not be reached over the network any more.";
        let advice = "On the machine itself, take `https` out of [target]: `ebof target set target https=`.";
        return input.mistake("ProtocolEnabled", refused(message, advice));
    }
    let wants_another = port.is_some_and(|port| door.port != Some(port));
    let wants_it = enabled == Some(true) && door.port.is_none();
    if !wants_another && !wants_it {
        return;
    }
    if door.by_command_line {
        return input.mistake("Port", by_command_line("https"));
    }
    match (config.target.https, port) {
        (Some(address), Some(port)) => config.target.https = Some(SocketAddr::new(address.ip(), port)),
        (Some(_), None) => {}
        (None, _) => {
            let advice =
                "On the machine itself: `ebof target set target https=ADDRESS:PORT`, and start the target again.";
            input.mistake("ProtocolEnabled", refused("No address is known for HTTPS.", advice));
        }
    }
}

/// HTTP is for programs of the machine itself.
fn http(input: &mut Input, door: Door, config: &mut Config) {
    let ProtocolChange { enabled, port } = read_protocol(input);
    let wants_another = port.is_some_and(|port| door.port != Some(port));
    let is_on = door.port.is_some();
    let changes = match enabled {
        Some(false) => is_on,
        Some(true) => !is_on || wants_another,
        None => is_on && wants_another,
    };
    if !changes {
        // The port of a disabled protocol is stored nowhere.
        if enabled != Some(false) && wants_another {
            let advice = "Send `ProtocolEnabled` as true with it.";
            input.mistake("Port", refused("HTTP is not enabled, and has no port.", advice));
        }
        return;
    }
    if door.by_command_line {
        let about = if enabled == Some(false) { "ProtocolEnabled" } else { "Port" };
        return input.mistake(about, by_command_line("http"));
    }
    let ip = config.target.http.map_or(Ipv4Addr::LOCALHOST.into(), |address| address.ip());
    config.target.http = match (enabled, port.or(config.target.http.map(|address| address.port()))) {
        (Some(false), _) => None,
        (_, Some(port)) => Some(SocketAddr::new(ip, port)),
        (_, None) => return input.mistake("Port", Message::property_missing("Port")),
    };
}

fn by_command_line(key: &str) -> Message {
    let message =
        format!("The command line of the service names the address (--{key}), which would be that of its next start.");
    let advice = format!(
        "Take --{key} off the command line, set `{key}` in [target] of the configuration, and start the service again."
    );
    refused(&message, &advice)
}

fn refused(message: &str, advice: &str) -> Message {
    Message::own("ProtocolNotChanged", Severity::Warning, message, advice)
}
