//! What an administrator may set about sessions and failed logins.

use serde::{Deserialize, Serialize};

use crate::account::Mistake;

/// The shortest and the longest idle time of a session, seconds (Redfish `SessionTimeout`).
pub(crate) const SESSION_TIMEOUT_S: (u32, u32) = (30, 86_400);

/// The most failed logins before a lockout.
const THRESHOLD_MAX: u32 = 1000;

/// The longest lockout, seconds.
const DURATION_S_MAX: u32 = 86_400;

/// Settings of sessions and logins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessSettings {
    /// How long a session lives without being used, seconds: 30 to 86400.
    pub session_timeout_s: u32,
    /// Whether a session is only good for the address that opened it (of IPv6, the network /64).
    pub sessions_by_address: bool,
    /// Whether requests may carry a name and a password (HTTP Basic) instead of a session.
    pub basic_auth: bool,
    /// Failed logins of an account until it is locked; 0: it is never locked.
    pub lockout_threshold: u32,
    /// How long it is locked, seconds.
    pub lockout_duration_s: u32,
    /// Failed logins are forgotten after so long without another one, seconds: at most the
    /// duration.
    pub lockout_reset_after_s: u32,
}

impl Default for AccessSettings {
    fn default() -> Self {
        Self {
            session_timeout_s: 1800,
            sessions_by_address: true,
            basic_auth: true,
            lockout_threshold: 10,
            lockout_duration_s: 300,
            lockout_reset_after_s: 300,
        }
    }
}

/// A change of some settings; `None` leaves one as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are those of Settings")]
pub struct SettingsChange {
    pub session_timeout_s: Option<u32>,
    pub sessions_by_address: Option<bool>,
    pub basic_auth: Option<bool>,
    pub lockout_threshold: Option<u32>,
    pub lockout_duration_s: Option<u32>,
    pub lockout_reset_after_s: Option<u32>,
}

impl AccessSettings {
    /// With a change.
    pub(crate) fn with(&self, change: &SettingsChange) -> Result<Self, Mistake> {
        let changed = Self {
            session_timeout_s: change.session_timeout_s.unwrap_or(self.session_timeout_s),
            sessions_by_address: change.sessions_by_address.unwrap_or(self.sessions_by_address),
            basic_auth: change.basic_auth.unwrap_or(self.basic_auth),
            lockout_threshold: change.lockout_threshold.unwrap_or(self.lockout_threshold),
            lockout_duration_s: change.lockout_duration_s.unwrap_or(self.lockout_duration_s),
            lockout_reset_after_s: change.lockout_reset_after_s.unwrap_or(self.lockout_reset_after_s),
        };
        changed.check()?;
        Ok(changed)
    }

    pub(crate) fn check(&self) -> Result<(), Mistake> {
        let (low, high) = SESSION_TIMEOUT_S;
        let within = |setting, value, low, high| {
            if (low..=high).contains(&value) { Ok(()) } else { Err(Mistake::Setting { setting, value, low, high }) }
        };
        within("session_timeout_s", self.session_timeout_s, low, high)?;
        within("lockout_threshold", self.lockout_threshold, 0, THRESHOLD_MAX)?;
        within("lockout_duration_s", self.lockout_duration_s, 1, DURATION_S_MAX)?;
        within("lockout_reset_after_s", self.lockout_reset_after_s, 1, self.lockout_duration_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_outside_their_limits_are_refused_by_name() {
        let settings = AccessSettings::default();
        settings.check().unwrap();
        let with = |change: SettingsChange| settings.with(&change).unwrap_err().to_string();
        for seconds in [0, 29, 86_401] {
            let text = with(SettingsChange { session_timeout_s: Some(seconds), ..SettingsChange::default() });
            assert_eq!(text, format!("session_timeout_s is {seconds}: accepted are 30 to 86400"));
        }
        let text = with(SettingsChange { lockout_duration_s: Some(60), ..SettingsChange::default() });
        assert_eq!(text, "lockout_reset_after_s is 300: accepted are 1 to 60");
        let change = SettingsChange {
            lockout_duration_s: Some(60),
            lockout_reset_after_s: Some(60),
            ..SettingsChange::default()
        };
        assert_eq!(settings.with(&change).unwrap().lockout_duration_s, 60);
    }
}
