//! Where a setting is kept: how it is read, written, and shown as a command.

use std::io;

use serde::{Deserialize, Serialize};

use crate::cores::Cores;
use crate::machine::Machine;
use crate::name::Name;
use crate::tunable::Tunable;
use crate::whose::Whose;

/// Where a setting is kept. Values are compared as texts: those that are read are in one form,
/// whichever the kernel has shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Knob {
    /// The service irqbalance: `running` or `stopped`.
    Irqbalance,
    /// The cores of an interrupt, as a list.
    Interrupt {
        /// Its number.
        irq: u32,
        /// Whose it is, by the driver's name for it: numbers are given again.
        name: String,
    },
    /// The governor of a core.
    Governor {
        /// The core.
        core: u32,
    },
    /// Adaptive coalescing: `on` or `off`.
    AdaptiveRx {
        /// The interface.
        interface: Name,
    },
    /// The largest packet, in bytes.
    Mtu {
        /// The interface.
        interface: Name,
    },
    /// The cores that process a receive queue's packets, as a mask.
    Rps {
        /// The interface.
        interface: Name,
        /// The queue.
        queue: u32,
    },
    /// The cores that send through a queue, as a mask.
    Xps {
        /// The interface.
        interface: Name,
        /// The queue.
        queue: u32,
    },
    /// A variable below `/proc/sys`.
    Sysctl {
        /// Which one.
        variable: Sysctl,
    },
    /// The I/O scheduler of a block device.
    Scheduler {
        /// The device.
        device: Name,
    },
}

/// The variables below `/proc/sys` that are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sysctl {
    /// Microseconds that `poll` and `select` look into a card's queue.
    #[serde(rename = "net.core.busy_poll")]
    BusyPoll,
    /// Microseconds that a read does, and sockets by default.
    #[serde(rename = "net.core.busy_read")]
    BusyRead,
    /// The largest receive buffer that a program may ask for.
    #[serde(rename = "net.core.rmem_max")]
    ReceiveMax,
    /// The largest send buffer that a program may ask for.
    #[serde(rename = "net.core.wmem_max")]
    SendMax,
    /// Smallest, first and largest receive buffer of TCP.
    #[serde(rename = "net.ipv4.tcp_rmem")]
    TcpReceive,
    /// Smallest, first and largest send buffer of TCP.
    #[serde(rename = "net.ipv4.tcp_wmem")]
    TcpSend,
}

impl Sysctl {
    /// Its name, as `sysctl` has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BusyPoll => "net.core.busy_poll",
            Self::BusyRead => "net.core.busy_read",
            Self::ReceiveMax => "net.core.rmem_max",
            Self::SendMax => "net.core.wmem_max",
            Self::TcpReceive => "net.ipv4.tcp_rmem",
            Self::TcpSend => "net.ipv4.tcp_wmem",
        }
    }
}

/// The directories of the threads that the kernel shows in `/proc`.
const PROC: &str = "/proc";
/// A thread of the kernel itself, which only the machine's own `/proc` shows.
const KERNEL_THREAD: &str = "/proc/2/comm";
const SERVICE: &str = "irqbalance.service";

impl Knob {
    /// What kind of setting it is.
    #[must_use]
    pub const fn tunable(&self) -> Tunable {
        match self {
            Self::Irqbalance => Tunable::Irqbalance,
            Self::Interrupt { .. } => Tunable::Interrupts,
            Self::Governor { .. } => Tunable::Governor,
            Self::AdaptiveRx { .. } => Tunable::AdaptiveRx,
            Self::Mtu { .. } => Tunable::Mtu,
            Self::Rps { .. } => Tunable::Rps,
            Self::Xps { .. } => Tunable::Xps,
            Self::Sysctl { variable: Sysctl::BusyPoll | Sysctl::BusyRead } => Tunable::BusyPoll,
            Self::Sysctl { .. } => Tunable::SocketBuffers,
            Self::Scheduler { .. } => Tunable::Scheduler,
        }
    }

    /// What has the setting.
    #[must_use]
    pub fn whose(&self) -> Whose {
        match self {
            Self::Irqbalance => Whose::named("irqbalance"),
            Self::Interrupt { irq, .. } => Whose::numbered("irq ", *irq),
            Self::Governor { core } => Whose::numbered("cpu", *core),
            Self::AdaptiveRx { interface } | Self::Mtu { interface } => Whose::named(interface.as_str()),
            Self::Rps { interface, queue } => Whose::numbered(&format!("{interface} rx-"), *queue),
            Self::Xps { interface, queue } => Whose::numbered(&format!("{interface} tx-"), *queue),
            Self::Sysctl { variable } => Whose::named(variable.name()),
            Self::Scheduler { device } => Whose::named(device.as_str()),
        }
    }

    /// The file that has it, for those that a file has.
    fn file(&self) -> Option<String> {
        Some(match self {
            Self::Irqbalance | Self::AdaptiveRx { .. } => return None,
            Self::Interrupt { irq, .. } => format!("/proc/irq/{irq}/smp_affinity_list"),
            Self::Governor { core } => format!("/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor"),
            Self::Mtu { interface } => format!("/sys/class/net/{interface}/mtu"),
            Self::Rps { interface, queue } => format!("/sys/class/net/{interface}/queues/rx-{queue}/rps_cpus"),
            Self::Xps { interface, queue } => format!("/sys/class/net/{interface}/queues/tx-{queue}/xps_cpus"),
            Self::Sysctl { variable } => format!("/proc/sys/{}", variable.name().replace('.', "/")),
            Self::Scheduler { device } => format!("/sys/block/{device}/queue/scheduler"),
        })
    }

    /// The value now.
    ///
    /// # Errors
    /// It cannot be read; [`io::ErrorKind::NotFound`] if there is no such knob.
    pub fn read(&self, machine: &dyn Machine) -> io::Result<String> {
        let unclear = |text: &str| {
            let text: String = text.chars().take(40).collect();
            io::Error::new(io::ErrorKind::InvalidData, format!("unexpected: `{}`", text.trim().escape_debug()))
        };
        let Some(file) = self.file() else { return self.read_otherwise(machine) };
        if let Self::Interrupt { irq, name } = self
            && interrupt_name(machine, *irq)? != *name
        {
            let other = format!("interrupt {irq} is not {name} any more");
            return Err(io::Error::new(io::ErrorKind::NotFound, other));
        }
        let text = machine.read(&file)?;
        let value = match self {
            Self::Interrupt { .. } => Cores::from_list(&text).map(|cores| cores.to_list()),
            Self::Rps { .. } | Self::Xps { .. } => Cores::from_mask(&text).map(|cores| cores.to_mask()),
            Self::Scheduler { .. } => chosen(&text),
            _ => Some(text.split_whitespace().collect::<Vec<_>>().join(" ")),
        };
        value.filter(|value| is_presentable(value)).ok_or_else(|| unclear(&text))
    }

    fn read_otherwise(&self, machine: &dyn Machine) -> io::Result<String> {
        match self {
            Self::AdaptiveRx { interface } => match machine.coalescing(interface.as_str())?.adaptive_rx {
                Some(on) => Ok(if on { "on" } else { "off" }.to_owned()),
                None => Err(io::ErrorKind::Unsupported.into()),
            },
            _ => Ok(if is_irqbalance_running(machine)? { "running" } else { "stopped" }.to_owned()),
        }
    }

    /// Sets the value.
    ///
    /// # Errors
    /// It is refused.
    pub fn write(&self, machine: &dyn Machine, value: &str) -> io::Result<()> {
        match (self, self.file()) {
            (_, Some(file)) => machine.write(&file, value),
            (Self::AdaptiveRx { interface }, None) => machine.set_adaptive_rx(interface.as_str(), value == "on"),
            (_, None) => machine.switch_service(SERVICE, value == "running"),
        }
    }

    /// A shell's command that does the same.
    #[must_use]
    pub fn command(&self, value: &str) -> String {
        match (self, self.file()) {
            (Self::Sysctl { variable }, _) => format!("sysctl -w {}='{value}'", variable.name()),
            (Self::Mtu { interface }, _) => format!("ip link set dev {interface} mtu {value}"),
            (_, Some(file)) => format!("echo {value} >{file}"),
            (Self::AdaptiveRx { interface }, None) => format!("ethtool -C {interface} adaptive-rx {value}"),
            (_, None) => format!("systemctl {} {SERVICE}", if value == "running" { "start" } else { "stop" }),
        }
    }
}

/// What the driver calls an interrupt; empty if nobody has asked for it.
///
/// # Errors
/// There is no such interrupt.
pub(crate) fn interrupt_name(machine: &dyn Machine, irq: u32) -> io::Result<String> {
    let names = machine.read(&format!("/sys/kernel/irq/{irq}/actions"))?;
    // Drivers that share an interrupt are separated by commas. Network cards do not share.
    Ok(names.trim().chars().filter(|letter| letter.is_ascii_graphic()).take(64).collect())
}

/// The one in brackets: `[none] mq-deadline`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    let (name, _) = rest.split_once(']')?;
    Some(name.to_owned())
}

/// Whether a text of the kernel can be shown, and given to a shell in quotes.
fn is_presentable(value: &str) -> bool {
    value.len() <= 4096 && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" ,-_.".contains(&byte))
}

/// Whether irqbalance runs.
///
/// # Errors
/// The machine's processes are not shown here.
fn is_irqbalance_running(machine: &dyn Machine) -> io::Result<bool> {
    if !machine.read(KERNEL_THREAD).is_ok_and(|name| name.trim() == "kthreadd") {
        let hidden = "the machine's processes are not shown here, as in a container";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, hidden));
    }
    let processes = machine.names(PROC)?;
    let mut processes = processes.iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    // A process that ends meanwhile is none.
    Ok(processes.any(|pid| machine.read(&format!("{PROC}/{pid}/comm")).is_ok_and(|name| name.trim() == "irqbalance")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_stored_in_one_form() {
        let knobs = [
            Knob::Irqbalance,
            Knob::Interrupt { irq: 45, name: "mlx5_comp0@pci:0000:01:00.0".to_owned() },
            Knob::Rps { interface: Name::try_from("eth0").unwrap(), queue: 3 },
            Knob::Sysctl { variable: Sysctl::TcpSend },
        ];
        let text = serde_json::to_string(&knobs).unwrap();
        let expected = concat!(
            r#"[{"kind":"irqbalance"},{"kind":"interrupt","irq":45,"name":"mlx5_comp0@pci:0000:01:00.0"},"#,
            r#"{"kind":"rps","interface":"eth0","queue":3},{"kind":"sysctl","variable":"net.ipv4.tcp_wmem"}]"#
        );
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<Vec<Knob>>(&text).unwrap(), knobs);
        for bad in [
            r#"{"kind":"mtu","interface":"../../etc"}"#,
            r#"{"kind":"sysctl","variable":"kernel.core_pattern"}"#,
            r#"{"kind":"file","path":"/etc/passwd"}"#,
        ] {
            assert!(serde_json::from_str::<Knob>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_chosen_scheduler_is_in_brackets() {
        assert_eq!(chosen("none [mq-deadline] kyber\n").as_deref(), Some("mq-deadline"));
        assert_eq!(chosen("none\n"), None);
        assert_eq!(chosen("]x["), None);
    }
}
