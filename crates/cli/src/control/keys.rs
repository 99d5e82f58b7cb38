//! The requests about keys of hosts.

use std::time::Duration;

use ebof_manage::api::{AddKey, Keys, KeysChange, Revision};
use serde::de::DeserializeOwned;

use super::{CHANGE, ControlClient};
use crate::failure::Failure;

impl ControlClient {
    /// All keys of hosts.
    pub(crate) fn keys(&self) -> Result<Keys, Failure> {
        self.get("/v1/keys", Duration::ZERO)
    }

    /// What adding a key would do.
    pub(crate) fn plan_key(&self, key: &AddKey) -> Result<KeysChange, Failure> {
        self.send("POST", "/v1/keys?plan=1", key)
    }

    /// Adds a key, if that does what was planned.
    pub(crate) fn add_key(&self, key: &AddKey, planned: &Revision) -> Result<KeysChange, Failure> {
        self.change_keys("POST", "/v1/keys", planned, &self.body_of(key)?)
    }

    /// What removing keys would do.
    pub(crate) fn plan_without_keys(&self, ids: &[String]) -> Result<KeysChange, Failure> {
        self.request("DELETE", &format!("{}?plan=1", path(ids)?), &[], Duration::ZERO)
    }

    /// Removes keys, if that does what was planned.
    pub(crate) fn remove_keys(&self, ids: &[String], planned: &Revision) -> Result<KeysChange, Failure> {
        self.change_keys("DELETE", &path(ids)?, planned, &[])
    }

    fn change_keys<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        planned: &Revision,
        body: &[u8],
    ) -> Result<T, Failure> {
        let condition = format!("If-Match: \"{planned}\"\r\n");
        let (status, answer) = self.answer((method, path), &condition, body, CHANGE)?;
        if (200..300).contains(&status) { self.understood(&answer) } else { Err(self.refusal(status, &answer)) }
    }
}

fn path(ids: &[String]) -> Result<String, Failure> {
    let is_id = |id: &String| !id.is_empty() && id.len() <= 24 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !ids.iter().all(is_id) {
        return Err(Failure::usage("this is no key's id", "`ebof target show keys` shows them, such as k3"));
    }
    Ok(format!("/v1/keys/{}", ids.join(",")))
}
