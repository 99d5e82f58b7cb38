//! The words of [`super::ConnectError`]: one place to read and to improve what people see when a
//! connection fails.

mod trust;

use std::net::Ipv6Addr;

use ebof_authentication::host::Refusal;
use ebof_nvme::connect::field_name;
use ebof_nvme::property::Csts;
use ebof_nvme::uri::Transport;
use ebof_rdma::private_data::RejectStatus;
use ebof_tls::Alert;
use rustix::io::Errno;

use super::{ConnectErrorKind as K, Step, Tried};

/// The first line.
pub(super) fn summary(kind: &K, tried: &Tried) -> String {
    let to = address(tried);
    let nqn = &tried.nqn;
    match kind {
        K::NameNotResolved { .. } => format!("cannot connect: {:?} is not a known host name or address", tried.traddr),
        K::LocalAddress { option, .. } => format!("cannot connect to {to}: {option} cannot be used on this machine"),
        K::SocketOption { option, .. } => format!("cannot connect to {to}: this machine refuses {option}"),
        K::Refused => format!("cannot connect to {to}: the connection was refused, nobody listens there"),
        K::Unreachable { .. } => format!("cannot connect to {to}: there is no way to this address"),
        K::TimedOut { .. } => format!("cannot connect to {to}: no answer ({})", tried.step.name()),
        K::ClosedDuringInit { .. } => {
            format!("cannot connect to {to}: the peer closed the connection before it said a word of NVMe/TCP")
        }
        K::NotNvme { first_bytes } => match guess(first_bytes) {
            Some(what) => format!("cannot connect to {to}: that is not an NVMe/TCP target but {what}"),
            None => format!("cannot connect to {to}: that is not an NVMe/TCP target"),
        },
        K::NoRdma { .. } => format!("cannot connect to {to}: this machine cannot use RDMA"),
        K::NoRdmaDevice { .. } => format!("cannot connect to {to}: no RDMA device of this machine reaches it"),
        K::RdmaLimit { .. } => format!("cannot connect to {to}: the RDMA device is too small for the queue"),
        K::Rejected { status } => format!("cannot connect to {to}: the target rejects {}: {status}", queue(tried)),
        K::RejectedByManager { .. } => {
            format!("cannot connect to {to}: the other end rejects the connection without a word of NVMe/RDMA")
        }
        K::RdmaFailed { .. } => {
            format!("cannot connect to {to}: the RDMA connection failed ({})", tried.step.name())
        }
        K::DigestRefused { header, data } => {
            format!("cannot connect to {to}: the target refuses the {}", digests(*header, *data))
        }
        K::WrongNqn => format!("cannot connect to {to}: the target knows no subsystem {nqn} for this host"),
        K::HostNotAllowed => format!("cannot connect to {to}: subsystem {nqn} does not admit this host"),
        K::ControllerBusy { .. } => format!("cannot connect to {to}: subsystem {nqn} has no free controller"),
        K::InvalidParameter { in_data, offset, .. } => {
            format!("cannot connect to {to}: the target refuses {}", parameter(*in_data, *offset))
        }
        K::IsDiscovery => {
            format!("cannot connect to {to}: {nqn} is a discovery service, not a subsystem with namespaces")
        }
        K::NotDiscovery => {
            format!("cannot discover at {to}: {nqn} is a subsystem with namespaces, not a discovery service")
        }
        K::AuthenticationRequired => format!("cannot connect to {to}: the target wants this host to authenticate"),
        K::SecureChannelRequired => {
            format!("cannot connect to {to}: the target wants authentication with a secure channel behind it")
        }
        K::AuthenticationNotOffered => {
            format!("cannot connect to {to}: the target does not authenticate this host, which --concat needs")
        }
        K::NotProven => format!("cannot connect to {to}: the target does not prove that it is the one that is meant"),
        K::Key(_) => format!("cannot connect to {to}: this host's secret or key cannot be used"),
        K::Authentication(Refusal::ByController { .. } | Refusal::Unexplained) => {
            format!("cannot connect to {to}: the target does not take this host for {}", tried.host_nqn)
        }
        K::Authentication(_) => format!("cannot connect to {to}: this host does not trust the target"),
        K::Tls { .. } => format!("cannot connect to {to}: the target and this host agree on no TLS connection"),
        K::TlsRequired { .. } => format!("cannot connect to {to}: this port demands TLS"),
        K::NoTls => format!("cannot connect to {to}: this port speaks NVMe/TCP without TLS"),
        K::RestartDiscovery => format!("cannot connect to {to}: the target's discovery log has changed"),
        K::LogChanges => format!("cannot read the discovery log of {to}: it changes faster than it can be read"),
        K::Status { command, .. } => format!("cannot connect to {to}: the target refused {command}"),
        K::Closed { .. } => format!("cannot connect to {to}: the target closed the connection ({})", tried.step.name()),
        K::Terminated(_) => format!("cannot connect to {to}: the target ended the connection with a complaint"),
        K::Protocol { .. } => {
            format!("cannot connect to {to}: the target broke the {} protocol", tried.transport.full_name())
        }
        K::NotReady { .. } => format!("cannot connect to {to}: the controller does not become ready"),
        K::Unsupported { what } => format!("cannot connect to {to}: {what}"),
        K::System { action, .. } => format!("cannot connect to {to}: {action} failed on this machine"),
        K::Cancelled => format!("connecting to {to} was cancelled"),
    }
}

/// What was tried.
pub(super) fn tried(tried: &Tried) -> String {
    let queue = queue(tried);
    let address = match tried.address {
        Some(found) if found.ip().to_string() != tried.traddr => format!("{} ({found})", address(tried)),
        _ => address(tried),
    };
    format!("{} of {queue}, address {address}, subsystem {}, as host {}", tried.step.name(), tried.nqn, tried.host_nqn)
}

fn queue(tried: &Tried) -> String {
    match tried.queue {
        0 => "the Admin Queue".to_owned(),
        queue => format!("the I/O queue {queue}"),
    }
}

/// What came back.
pub(super) fn answer(kind: &K, tried: &Tried) -> String {
    match kind {
        K::NameNotResolved { reason } => reason.clone(),
        K::LocalAddress { errno, .. }
        | K::SocketOption { errno, .. }
        | K::Unreachable { errno }
        | K::System { errno, .. } => errno_text(*errno),
        K::Refused => errno_text(Errno::CONNREFUSED),
        K::TimedOut { after_ms } => format!("none within {after_ms} ms"),
        K::ClosedDuringInit { reset: true } => errno_text(Errno::CONNRESET),
        K::ClosedDuringInit { reset: false } => "end of stream where ICResp was expected".to_owned(),
        K::NotNvme { first_bytes } => format!("the first bytes are {}", show(first_bytes)),
        K::NoRdma { reason } | K::NoRdmaDevice { reason } | K::RdmaLimit { reason } | K::RdmaFailed { reason } => {
            reason.clone()
        }
        K::Rejected { status } => match status.meaning() {
            Some(meaning) => format!("NVMe/RDMA reject, {status}: {meaning}"),
            None => format!("NVMe/RDMA reject, {status}"),
        },
        K::RejectedByManager { reason } => match reason {
            ..0 => errno_text(Errno::from_raw_os_error(reason.saturating_neg())),
            reason => format!("a reject of the connection manager, reason {reason}"),
        },
        K::DigestRefused { header, data } => format!("ICResp without the {}", digests(*header, *data)),
        K::WrongNqn => format!(
            "{}, field {}",
            ebof_nvme::Status::CONNECT_INVALID_PARAMETERS,
            parameter(true, ebof_nvme::connect::ConnectData::SUBNQN_OFFSET)
        ),
        K::HostNotAllowed => ebof_nvme::Status::CONNECT_INVALID_HOST.to_string(),
        K::ControllerBusy { status } => status.to_string(),
        K::InvalidParameter { in_data, offset, status } => format!("{status}, field {}", parameter(*in_data, *offset)),
        K::IsDiscovery => "Identify Controller: controller type 2, discovery controller".to_owned(),
        K::NotDiscovery => "Identify Controller: not a discovery controller".to_owned(),
        K::AuthenticationRequired => "Connect asks for authentication before anything else".to_owned(),
        K::SecureChannelRequired => "Connect asks for secure channel concatenation (ASCR)".to_owned(),
        K::AuthenticationNotOffered => "Connect asks for no authentication".to_owned(),
        K::NotProven => "Connect does not ask for authentication, in which the target would prove itself".to_owned(),
        K::Key(reason) => reason.clone(),
        K::Authentication(refusal) => refusal.to_string(),
        K::TlsRequired { alert, .. } => {
            let alert = alert.map(|alert| format!(": {}", Alert(alert))).unwrap_or_default();
            format!("a TLS alert where ICResp was expected{alert}")
        }
        K::NoTls => "C2HTermReq, which is NVMe/TCP, where TLS was expected".to_owned(),
        K::Tls { reason, tries: 1, .. } => reason.clone(),
        K::Tls { reason, tries, .. } => format!("{reason} (the first of {tries} names and derivations of the key)"),
        K::RestartDiscovery => ebof_nvme::Status::CONNECT_RESTART_DISCOVERY.to_string(),
        K::LogChanges => "another generation of the log at each of ten tries".to_owned(),
        K::Status { status, .. } => status.to_string(),
        K::Closed { errno: Some(errno) } => errno_text(*errno),
        K::Closed { errno: None } => format!("end of stream ({})", tried.step.name()),
        K::Terminated(termination) => format!("C2HTermReq: {termination}, FES {:02x}h", termination.status),
        K::Protocol { violation } => violation.clone(),
        K::NotReady { csts, after_ms } => {
            let what = if Csts(*csts).fatal() { "controller fatal status" } else { "not ready" };
            format!("CSTS {csts:#x} ({what}) after {after_ms} ms")
        }
        K::Unsupported { .. } => "as the controller's own data say".to_owned(),
        K::Cancelled => "none was waited for".to_owned(),
    }
}

const LOCAL_ADDRESS: &str = "give --host-traddr an address of this machine, and --host-iface one of its interfaces (which \
                             may need root); `ip address` lists them";

const CONTROLLER_BUSY: &str = "disconnect a host that is not needed, raise the target's limit, or try again in a while: a \
                               target frees the controllers of a host that vanished only after its keep-alive time-out";

/// What to do.
#[expect(clippy::too_many_lines, reason = "an arm for each kind")]
pub(super) fn to_do(kind: &K, tried: &Tried) -> String {
    if let Some(text) = to_do_over_rdma(kind, tried) {
        return text;
    }
    match kind {
        K::NameNotResolved { .. } => "check the spelling of --traddr, or give the address itself".to_owned(),
        K::LocalAddress { .. } => LOCAL_ADDRESS.to_owned(),
        K::SocketOption { option, .. } if option.starts_with("--zerocopy-send") => ebof_pinned::ADVICE.to_owned(),
        K::SocketOption { .. } => {
            "leave the option away, give it a smaller value, or run with CAP_NET_ADMIN".to_owned()
        }
        K::Refused => format!(
            "see whether the target runs and listens on port {}: on its machine `ss -ltn`; NVMe/TCP subsystems are \
             usually on port 4420, discovery services on 8009 or 4420",
            tried.trsvcid
        ),
        K::Unreachable { .. } => "check the address, the route (`ip route get ADDRESS`) and the firewalls".to_owned(),
        K::TimedOut { .. } => to_do_about_time(tried.step).to_owned(),
        K::ClosedDuringInit { .. } => {
            "the target may have reached its limit of connections, may demand TLS on this port (--tls), may \
            be behind a proxy that has nobody behind it, or is not NVMe/TCP: see its log, and check the port"
                .to_owned()
        }
        K::NotNvme { .. } => {
            "check the port: NVMe/TCP subsystems are usually on port 4420, discovery services on 8009".to_owned()
        }
        K::NoRdma { .. }
        | K::NoRdmaDevice { .. }
        | K::RdmaLimit { .. }
        | K::Rejected { .. }
        | K::RejectedByManager { .. } => "connect with -t tcp".to_owned(),
        K::DigestRefused { header, data } => {
            let flag = match (header, data) {
                (true, true) => "--hdr-digest and --data-digest",
                (true, false) => "--hdr-digest",
                _ => "--data-digest",
            };
            format!("connect without {flag}, or allow digests on the target's port")
        }
        K::WrongNqn => format!(
            "compare the name with what `ebof discover -t {} -a {} -s {}` lists; a subsystem that does not admit \
             host {} may be hidden from it",
            tried.transport.name(),
            tried.traddr,
            tried.trsvcid,
            tried.host_nqn
        ),
        K::HostNotAllowed => format!(
            "add host {} to the subsystem's allowed hosts on the target, or connect with --hostnqn of one that is; a \
             subsystem that wants a proof or TLS refuses in the same way: give the host a key there \
             (`ebof target add key HOST`), and name it here (--dhchap-secret-file FILE, --tls --tls-key-file FILE)",
            tried.host_nqn
        ),
        K::ControllerBusy { .. } => CONTROLLER_BUSY.to_owned(),
        K::InvalidParameter { in_data, offset, .. } => advice(*in_data, *offset).to_owned(),
        K::IsDiscovery => format!(
            "list what it offers with `ebof discover -t {} -a {} -s {}`, then connect to one of those",
            tried.transport.name(),
            tried.traddr,
            tried.trsvcid
        ),
        K::NotDiscovery => {
            "use `ebof connect` for it; to discover, leave the NQN away or give the discovery service's".to_owned()
        }
        K::AuthenticationRequired
        | K::SecureChannelRequired
        | K::AuthenticationNotOffered
        | K::NotProven
        | K::Key(_)
        | K::Authentication(_)
        | K::Tls { .. }
        | K::TlsRequired { .. }
        | K::NoTls => trust::to_do(kind, tried),
        K::RestartDiscovery => "run discovery again and connect to what it lists now".to_owned(),
        K::LogChanges => "try again: somebody changes the target's configuration just now".to_owned(),
        K::Status { status, .. } if !status.is_dnr() => "see the target's log; trying again may help".to_owned(),
        K::Status { .. } => "see the target's log: it says that trying again would not help".to_owned(),
        K::Closed { .. } | K::RdmaFailed { .. } => "see the target's log, and try again".to_owned(),
        K::Terminated(_) | K::Protocol { .. } => {
            "one of the two ends has a bug: report it with this text and, if you can, a \
            packet capture (`tcpdump -w`)"
                .to_owned()
        }
        K::NotReady { .. } => "see the target's log and the health of its drive, then try again".to_owned(),
        K::Unsupported { .. } => "see what the target offers (`ebof id-ctrl`) and what was asked for".to_owned(),
        K::System { errno, .. } => to_do_about_system(*errno, &tried.traddr),
        K::Cancelled => "nothing".to_owned(),
    }
}

fn to_do_about_system(errno: Errno, traddr: &str) -> String {
    match errno {
        Errno::INVAL if is_link_local(traddr) => format!(
            "a link-local address counts on one network only: name the interface behind it ({traddr}%eth0), or with \
             --host-iface"
        ),
        Errno::MFILE | Errno::NFILE => "raise the limit of open files (`ulimit -n`)".to_owned(),
        _ => "see the system's limits and log (`dmesg`)".to_owned(),
    }
}

/// Whether an address is link-local and does not name its network.
fn is_link_local(traddr: &str) -> bool {
    traddr.parse::<Ipv6Addr>().is_ok_and(|address| address.is_unicast_link_local())
}

/// What to do if there was no answer in time.
fn to_do_about_time(step: Step) -> &'static str {
    match step {
        Step::Keys | Step::Resolve | Step::Tcp => {
            "check the address and that no firewall swallows the packets: `ping`, then `nc -zv ADDRESS PORT`"
        }
        Step::Address | Step::QueuePair | Step::Rdma => {
            "check that the address answers (`ping`), that both ends speak the same RDMA (`ebof rdma-check` shows RoCE v1, \
             RoCE v2 or iWARP), and that no firewall swallows its packets (RoCE v2: UDP port 4791)"
        }
        Step::Tls => {
            "something accepts connections there and does not answer TLS: check that the port has TLS; a Linux target needs \
             its handshake daemon (tlshd)"
        }
        Step::Init => {
            "something accepts connections there but does not speak: check that the port is an NVMe/TCP port, and that the \
             target is not stopped or overloaded"
        }
        Step::Connect | Step::Authenticate | Step::Enable | Step::Identify => {
            "the target is alive but slow: see its log, or give it more time"
        }
    }
}

/// What to do over RDMA, where that differs.
fn to_do_over_rdma(kind: &K, tried: &Tried) -> Option<String> {
    if tried.transport != Transport::Rdma {
        return None;
    }
    Some(match kind {
        K::Refused => format!(
            "see whether the target runs and listens on port {} for RDMA: on its machine `rdma resource show cm_id`; a \
             target that listens for TCP only is reached with -t tcp",
            tried.trsvcid
        ),
        K::NoRdma { .. } => "install or load what is missing, or connect with -t tcp".to_owned(),
        K::NoRdmaDevice { .. } => format!(
            "`ebof rdma-check {}` tells what prevents a connection; an Ethernet interface without an RDMA adapter can have \
             soft-RoCE: `rdma link add rxe0 type rxe netdev INTERFACE`",
            tried.traddr
        ),
        K::RdmaLimit { .. } => {
            "ask for shorter or fewer queues (--queue-size, --nr-io-queues), raise the limit of locked \
            memory (`ulimit -l`), or leave --memory-windows away if the device has none"
                .to_owned()
        }
        K::Rejected { status: RejectStatus::INVALID_HSQSIZE } => "ask for shorter queues (--queue-size)".to_owned(),
        K::Rejected { status: RejectStatus::INVALID_QID } => "ask for fewer queues (--nr-io-queues)".to_owned(),
        K::Rejected { status: RejectStatus::NO_RESOURCES } => "disconnect a host that is not needed, ask for fewer or \
            shorter queues (--nr-io-queues, --queue-size), or raise the target's limit"
            .to_owned(),
        K::Rejected { .. } => "one of the two ends has a bug, or is of another time: see the target's log".to_owned(),
        K::RdmaFailed { .. } => {
            format!("see the target's log, and the link between both ends with `ebof rdma-check {}`", tried.traddr)
        }
        K::RejectedByManager { .. } => "see the target's log; the port may be that of another RDMA service".to_owned(),
        K::System { errno: Errno::NOMEM, .. } => {
            "raise the limit of locked memory (`ulimit -l`), which RDMA takes, or ask for shorter or fewer queues"
                .to_owned()
        }
        _ => return None,
    })
}

fn address(tried: &Tried) -> String {
    if tried.traddr.contains(':') {
        format!("[{}]:{}", tried.traddr, tried.trsvcid)
    } else {
        format!("{}:{}", tried.traddr, tried.trsvcid)
    }
}

fn digests(header: bool, data: bool) -> &'static str {
    match (header, data) {
        (true, true) => "header and data digests",
        (true, false) => "header digest",
        _ => "data digest",
    }
}

fn parameter(in_data: bool, offset: u16) -> String {
    let part = if in_data { "the Connect data" } else { "the Connect command" };
    match field_name(in_data, offset) {
        Some(name) => format!("{name} at offset {offset} of {part}"),
        None => format!("what is at offset {offset} of {part}"),
    }
}

fn advice(in_data: bool, offset: u16) -> &'static str {
    use ebof_nvme::connect::{Connect, ConnectData};
    match (in_data, offset) {
        (true, ConnectData::HOSTNQN_OFFSET) => {
            "check --hostnqn: it must be a legal NQN, and always go with the same host identifier"
        }
        (true, ConnectData::HOSTID_OFFSET) => {
            "check --hostid: it must not be zero, and always go with the same --hostnqn"
        }
        (true, ConnectData::CNTLID_OFFSET) => "the controller is gone or belongs to another host: connect anew",
        (false, Connect::SQSIZE_OFFSET) => "ask for shorter queues (--queue-size)",
        (false, Connect::QID_OFFSET) => "ask for fewer queues (--nr-io-queues)",
        (false, Connect::CATTR_OFFSET) => "connect without --disable-sqflow",
        (false, Connect::KATO_OFFSET) => "ask for another --keep-alive-tmo",
        _ => "see the target's log: it knows why",
    }
}

/// What speaks like this, when it is something well known.
fn guess(bytes: &[u8]) -> Option<&'static str> {
    let starts: [(&[u8], &'static str); 9] = [
        (b"SSH-", "an SSH server"),
        (b"HTTP/", "an HTTP server"),
        (b"<", "a server that speaks HTML or XML"),
        (b"220 ", "a mail or FTP server"),
        (b"220-", "a mail or FTP server"),
        (b"* OK", "an IMAP server"),
        (b"+OK", "a POP3 server"),
        (b"NBDMAGIC", "an NBD server"),
        (b"RFB ", "a VNC server"),
    ];
    starts.iter().find(|(start, _)| bytes.starts_with(start)).map(|(_, what)| *what)
}

/// Bytes of a stranger, safe to print: text as text, the rest as hexadecimal digits.
fn show(bytes: &[u8]) -> String {
    let line = bytes.split(|&b| b == b'\r' || b == b'\n').next().unwrap_or(bytes);
    if line.len() >= 4 && line.iter().all(|b| matches!(b, 0x20..=0x7e)) {
        return format!("\"{}\"", String::from_utf8_lossy(line).escape_debug());
    }
    let hex: Vec<String> = bytes.iter().take(16).map(|b| format!("{b:02x}")).collect();
    hex.join(" ")
}

/// An errno by its name, with its meaning.
pub(crate) fn errno_text(errno: Errno) -> String {
    let meaning = std::io::Error::from(errno).to_string();
    let meaning = meaning.split(" (os error").next().unwrap_or_default();
    match errno_name(errno) {
        Some(name) => format!("{name} ({meaning})"),
        None => format!("errno {} ({meaning})", errno.raw_os_error()),
    }
}

fn errno_name(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::ACCESS => "EACCES",
        Errno::ADDRINUSE => "EADDRINUSE",
        Errno::ADDRNOTAVAIL => "EADDRNOTAVAIL",
        Errno::AFNOSUPPORT => "EAFNOSUPPORT",
        Errno::CONNABORTED => "ECONNABORTED",
        Errno::CONNREFUSED => "ECONNREFUSED",
        Errno::CONNRESET => "ECONNRESET",
        Errno::HOSTDOWN => "EHOSTDOWN",
        Errno::HOSTUNREACH => "EHOSTUNREACH",
        Errno::INVAL => "EINVAL",
        Errno::IO => "EIO",
        Errno::MFILE => "EMFILE",
        Errno::NETDOWN => "ENETDOWN",
        Errno::NETRESET => "ENETRESET",
        Errno::NETUNREACH => "ENETUNREACH",
        Errno::NFILE => "ENFILE",
        Errno::NOBUFS => "ENOBUFS",
        Errno::NODEV => "ENODEV",
        Errno::NOMEM => "ENOMEM",
        Errno::NOTCONN => "ENOTCONN",
        Errno::PERM => "EPERM",
        Errno::PIPE => "EPIPE",
        Errno::TIMEDOUT => "ETIMEDOUT",
        _ => return None,
    })
}
