//! What can happen to a running target, and how much it matters.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::diagnostic::nearest::names;

names! {
    /// Whether somebody has to look.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum EventSeverity {
        /// Nobody.
        Ok = "ok";
        /// Somebody should, soon.
        Warning = "warning";
        /// Somebody has to, now: hosts do not get what they ask for, or data are in danger.
        Critical = "critical";
    }
}

/// The kinds, with their names in JSON, their usual severities, and whether those can cause many of
/// them who are not trusted.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal, $severity:ident, $by_others:literal;)*) => {
        /// What happened.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        #[non_exhaustive]
        pub enum EventKind {
            $($(#[$doc])* $kind,)*
        }

        impl EventKind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// Its name in JSON and in messages.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// How much it matters as a rule.
            #[must_use]
            pub const fn severity(self) -> EventSeverity {
                match self { $(Self::$kind => EventSeverity::$severity,)* }
            }

            /// Whether hosts, devices or strangers can cause any number of them. Those that come
            /// quickly one after the other are counted instead of stored.
            #[must_use]
            pub const fn is_by_others(self) -> bool {
                match self { $(Self::$kind => $by_others,)* }
            }
        }
    };
}

kinds! {
    /// The target was started.
    TargetStarted = "target-started", Ok, false;
    /// The target is being stopped.
    TargetStopping = "target-stopping", Ok, false;
    /// A host has connected a controller.
    HostConnected = "host-connected", Ok, true;
    /// A host has disconnected a controller, or its connection was lost.
    HostDisconnected = "host-disconnected", Ok, true;
    /// A connection was refused.
    ConnectionRefused = "connection-refused", Warning, true;
    /// A controller ended because of an error: its keep alive ran out, or its host broke the rules.
    ControllerFailed = "controller-failed", Warning, true;
    /// Data were damaged on the way from or to a host, or its connections fail.
    TransportTrouble = "transport-trouble", Warning, true;
    /// A function was given to a port.
    FunctionGiven = "function-given", Ok, false;
    /// A function was taken from its port.
    FunctionTaken = "function-taken", Ok, false;
    /// A function was moved from one port to another.
    FunctionMoved = "function-moved", Ok, false;
    /// Resources, limits or state of a function changed.
    FunctionChanged = "function-changed", Ok, false;
    /// A namespace was created or is served.
    NamespaceAdded = "namespace-added", Ok, true;
    /// A namespace was deleted or is not served any more.
    NamespaceRemoved = "namespace-removed", Ok, true;
    /// A namespace was attached, detached, formatted, resized or protected.
    NamespaceChanged = "namespace-changed", Ok, true;
    /// A subsystem was added.
    SubsystemAdded = "subsystem-added", Ok, false;
    /// A subsystem was removed.
    SubsystemRemoved = "subsystem-removed", Ok, false;
    /// A subsystem changed: its hosts, its ports.
    SubsystemChanged = "subsystem-changed", Ok, false;
    /// A drive was added.
    DriveAdded = "drive-added", Ok, false;
    /// A drive was removed.
    DriveRemoved = "drive-removed", Ok, false;
    /// A drive cannot be used, or its device fails.
    DriveFailed = "drive-failed", Critical, true;
    /// A drive can be used again.
    DriveRecovered = "drive-recovered", Ok, true;
    /// A drive reports a critical warning.
    HealthWarning = "health-warning", Critical, true;
    /// A drive reports no critical warning any more.
    HealthRestored = "health-restored", Ok, true;
    /// A block is damaged: hosts get an error instead of its data.
    DamageFound = "damage-found", Critical, true;
    /// Firmware was downloaded, committed or activated.
    FirmwareChanged = "firmware-changed", Ok, true;
    /// A port accepts connections.
    PortUp = "port-up", Ok, false;
    /// A port accepts no connections any more.
    PortDown = "port-down", Warning, false;
    /// Something that is to be served cannot be had: a device, an address.
    ObjectMissing = "object-missing", Critical, false;
    /// Something that was missing is there.
    ObjectFound = "object-found", Ok, false;
    /// The configuration in force changed.
    ConfigurationChanged = "configuration-changed", Ok, false;
    /// A configuration was refused.
    ConfigurationRefused = "configuration-refused", Warning, false;
    /// A task began.
    TaskBegan = "task-began", Ok, false;
    /// A task has come further.
    TaskProgress = "task-progress", Ok, false;
    /// A task has ended as it was meant to.
    TaskEnded = "task-ended", Ok, false;
    /// A task failed.
    TaskFailed = "task-failed", Warning, false;
    /// An account was added.
    AccountAdded = "account-added", Ok, false;
    /// An account changed: its password, its role, whether it is locked.
    AccountChanged = "account-changed", Ok, false;
    /// An account was locked, after too many failed logins.
    AccountLocked = "account-locked", Warning, true;
    /// An account was removed.
    AccountRemoved = "account-removed", Ok, false;
    /// Somebody logged in.
    SessionBegan = "session-began", Ok, true;
    /// Somebody logged out, or was logged out.
    SessionEnded = "session-ended", Ok, true;
    /// A login was refused.
    SessionRefused = "session-refused", Warning, true;
    /// A host was given a key.
    KeyAdded = "key-added", Ok, false;
    /// A key of a host was removed.
    KeyRemoved = "key-removed", Ok, false;
    /// A certificate was replaced.
    CertificateChanged = "certificate-changed", Ok, false;
    /// A certificate expires soon, or has expired.
    CertificateExpiring = "certificate-expiring", Warning, false;
    /// A log was cleared.
    LogCleared = "log-cleared", Warning, false;
}

impl EventKind {
    /// Whether it tells what somebody did, or tried to do, with the management: such events are not
    /// cleared, whoever asks for it.
    #[must_use]
    pub const fn is_trail(self) -> bool {
        matches!(
            self,
            Self::TargetStarted
                | Self::TargetStopping
                | Self::ConfigurationChanged
                | Self::ConfigurationRefused
                | Self::TaskBegan
                | Self::TaskEnded
                | Self::TaskFailed
                | Self::AccountAdded
                | Self::AccountChanged
                | Self::AccountLocked
                | Self::AccountRemoved
                | Self::SessionBegan
                | Self::SessionEnded
                | Self::SessionRefused
                | Self::KeyAdded
                | Self::KeyRemoved
                | Self::CertificateChanged
                | Self::LogCleared
        )
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
