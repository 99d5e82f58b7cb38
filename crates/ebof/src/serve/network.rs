//! `serve --https`: what is opened before the target starts, and what is told about it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use ebof_cli::output::say;
use ebof_manage::config::TargetOptions;
use ebof_state::StateDirectory;

use super::Args;
use crate::https::accounts::{self, FIRST_NAME, Opened};
use crate::https::{self, Addresses, Endpoints};
use crate::identity;
use crate::made;
use crate::managed::{Managed, Remote};

/// Management over the network that is wanted.
#[derive(Clone)]
pub(super) struct RemoteWanted {
    addresses: Addresses,
    state: Arc<StateDirectory>,
    /// Whether files that are missing are made anew.
    create: bool,
}

/// Management over the network, before it is served.
pub(super) struct RemoteManagement {
    addresses: Addresses,
    remote: Remote,
    initial_password: Option<PathBuf>,
    /// What was made for it.
    made: Vec<String>,
}

/// Where it is served.
pub(super) struct ServedNetwork {
    endpoints: Endpoints,
    initial_password: Option<PathBuf>,
    made: Vec<String>,
}

impl RemoteWanted {
    /// Whether the target is to be managed over the network, and where.
    ///
    /// # Errors
    /// What is wanted cannot be.
    pub(super) fn of(
        args: &Args,
        options: &TargetOptions,
        state: Option<Arc<StateDirectory>>,
    ) -> anyhow::Result<Option<Self>> {
        let addresses = Addresses { https: args.https.or(options.https), http: args.http.or(options.http) };
        if !addresses.check()? {
            return Ok(None);
        }
        let state = state.context(
            "accounts are stored in a state directory, and the target has none: name one that is its own (--state DIR), \
             or serve without --https and --http",
        )?;
        Ok(Some(Self { addresses, state, create: args.create }))
    }

    /// Opens the accounts and the certificate.
    ///
    /// # Errors
    /// They are damaged, or cannot be made.
    pub(super) fn open(&self) -> anyhow::Result<RemoteManagement> {
        let (addresses, state) = (self.addresses, Arc::clone(&self.state));
        let files = [accounts::FILE, identity::FILE];
        let made = made::check(&state, &files, self.create)?;
        let Opened { access, initial_password } = accounts::open(&state)?;
        let place = state.path().display().to_string();
        let identity = https::identity(&addresses, Arc::clone(&state))?;
        made::note(&state, &files)?;
        let made = made.iter().map(|name| state.path_of(name).display().to_string()).collect();
        let remote = Remote { access, identity, place, state };
        Ok(RemoteManagement { addresses, remote, initial_password, made })
    }

    /// `https://192.0.2.1:443`.
    pub(super) fn name(&self) -> String {
        let Addresses { https, http } = self.addresses;
        let named = [("https", https), ("http", http)].into_iter();
        let named = named.filter_map(|(scheme, address)| Some(format!("{scheme}://{}", address?)));
        named.collect::<Vec<_>>().join(", ")
    }

    /// Serves it another time: what was opened before is not opened again.
    pub(super) fn serve_later(&self, managed: &Arc<Managed>) -> anyhow::Result<()> {
        let opened = match managed.remote.get() {
            Some(remote) => {
                let (addresses, remote) = (self.addresses, remote.clone());
                RemoteManagement { addresses, remote, initial_password: None, made: Vec::new() }
            }
            None => self.open()?,
        };
        // The first and only one.
        let _set = managed.remote.set(opened.remote());
        let served = opened.serve(Arc::clone(managed))?;
        say(served.text().trim_end());
        Ok(())
    }
}

impl RemoteManagement {
    pub(super) fn remote(&self) -> Remote {
        self.remote.clone()
    }

    pub(super) fn serve(self, managed: Arc<Managed>) -> anyhow::Result<ServedNetwork> {
        let Self { addresses, remote, initial_password, made } = self;
        Ok(ServedNetwork { endpoints: https::serve(addresses, remote, managed)?, initial_password, made })
    }
}

impl ServedNetwork {
    pub(super) fn text(&self) -> String {
        let Self { endpoints, initial_password, made: _ } = self;
        let mut text = String::new();
        if let Some(url) = self.https() {
            text += &format!("managed at {url}\n  certificate SHA-256 {}\n", endpoints.fingerprint);
        }
        if let Some(url) = self.http() {
            text += &format!("managed at {url}, by this machine only\n");
        }
        if let Some(path) = initial_password {
            text += &format!("log in as {FIRST_NAME} with the password in {}, and change it\n", path.display());
        }
        text
    }

    pub(super) fn https(&self) -> Option<String> {
        self.endpoints.https.map(|address| format!("https://{address}"))
    }

    pub(super) fn http(&self) -> Option<String> {
        self.endpoints.http.map(|address| format!("http://{address}"))
    }

    /// The files that were made for it.
    pub(super) fn made(&self) -> &[String] {
        &self.made
    }

    /// Of the certificate.
    pub(super) fn fingerprint(&self) -> String {
        self.endpoints.fingerprint.clone()
    }

    /// The file with the first password.
    pub(super) fn initial_password(&self) -> Option<String> {
        self.initial_password.as_ref().map(|path| path.display().to_string())
    }
}
