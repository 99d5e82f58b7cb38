//! `serve --https`: what is opened before the target starts, and what is told about it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use ebof_cli::output::say;
use ebof_manage::config::TargetOptions;
use ebof_state::StateDirectory;

use super::Args;
use crate::doors::{Addresses, Scheme};
use crate::https;
use crate::https::accounts::{self, FIRST_NAME, OpenedAccounts};
use crate::identity;
use crate::managed::{Managed, Remote};
use crate::serve::made;

/// Management over the network that is wanted.
#[derive(Clone)]
pub(super) struct RemoteWanted {
    addresses: Addresses,
    /// Those that the command line names.
    named: Addresses,
    state: Arc<StateDirectory>,
    /// Whether files that are missing are made anew.
    create: bool,
}

/// Management over the network, before it is served.
pub(super) struct RemoteManagement {
    remote: Remote,
    initial_password: Option<PathBuf>,
    /// What was made for it.
    made: Vec<String>,
}

/// Where it is served.
pub(super) struct ServedNetwork {
    https: Option<SocketAddr>,
    http: Option<SocketAddr>,
    /// SHA-256 of the certificate.
    fingerprint: String,
    initial_password: Option<PathBuf>,
    made: Vec<String>,
}

impl RemoteWanted {
    /// Whether the target is to be managed over the network, and where.
    ///
    /// # Errors
    /// What is wanted cannot be.
    pub(super) fn from_args(
        args: &Args,
        options: &TargetOptions,
        state: Option<Arc<StateDirectory>>,
    ) -> anyhow::Result<Option<Self>> {
        let named = Addresses { https: args.https, http: args.http };
        let addresses = Addresses { https: args.https.or(options.https), http: args.http.or(options.http) };
        if !addresses.check()? {
            return Ok(None);
        }
        let state = state.context(
            "accounts are stored in a state directory, and the target has none: name one that is its own (--state DIR), \
             or serve without --https and --http",
        )?;
        Ok(Some(Self { addresses, named, state, create: args.create }))
    }

    /// Opens the accounts and the certificate.
    ///
    /// # Errors
    /// They are damaged, or cannot be made.
    pub(super) fn open(&self) -> anyhow::Result<RemoteManagement> {
        let (addresses, state) = (self.addresses, Arc::clone(&self.state));
        let files = [accounts::FILE, identity::FILE];
        let made = made::check(&state, &files, self.create, made::ANOTHER)?;
        let OpenedAccounts { access, initial_password } = accounts::open(&state)?;
        let place = state.path().display().to_string();
        let identity = https::identity(&addresses, Arc::clone(&state))?;
        made::note(&state, &files)?;
        let made = made.iter().map(|name| state.path_of(name).display().to_string()).collect();
        let remote = Remote { access, identity, place, state };
        Ok(RemoteManagement { remote, initial_password, made })
    }

    /// `https://192.0.2.1:443`, of each address.
    pub(super) fn names(&self) -> Vec<(Scheme, String)> {
        let Addresses { https, http } = self.addresses;
        let named = [(Scheme::Https, https), (Scheme::Http, http)].into_iter();
        named.filter_map(|(scheme, address)| Some((scheme, format!("{scheme}://{}", address?)))).collect()
    }

    /// Starts what serves it, without an address yet.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(&self, opened: RemoteManagement, managed: &Arc<Managed>) -> anyhow::Result<ServedNetwork> {
        let RemoteManagement { remote, initial_password, made } = opened;
        let fingerprint = remote.identity.info().fingerprint;
        let doors = managed.reloads.doors();
        doors.want(self.addresses, self.named);
        https::serve(doors, remote, managed)?;
        Ok(ServedNetwork { https: None, http: None, fingerprint, initial_password, made })
    }

    /// Serves it another time: what was opened before is not opened again.
    pub(super) fn serve_later(&self, managed: &Arc<Managed>) -> anyhow::Result<()> {
        let opened = match managed.remote.get() {
            Some(remote) => RemoteManagement { remote: remote.clone(), initial_password: None, made: Vec::new() },
            None => self.open()?,
        };
        // The first and only one.
        let _set = managed.remote.set(opened.remote());
        let mut served = self.start(opened, managed)?;
        let mut missing = Ok(());
        for (scheme, _) in self.names() {
            match managed.reloads.doors().open(scheme) {
                Ok(address) => served.found(scheme, address),
                Err(error) => missing = Err(error),
            }
        }
        missing?;
        say(served.text().trim_end());
        Ok(())
    }
}

impl RemoteManagement {
    pub(super) fn remote(&self) -> Remote {
        self.remote.clone()
    }
}

impl ServedNetwork {
    /// Notes where it is served.
    pub(super) fn found(&mut self, scheme: Scheme, address: Option<SocketAddr>) {
        match scheme {
            Scheme::Https => self.https = address,
            Scheme::Http => self.http = address,
        }
    }

    pub(super) fn text(&self) -> String {
        let Self { fingerprint, initial_password, .. } = self;
        let mut text = String::new();
        if let Some(url) = self.https() {
            text += &format!("managed at {url}\n  certificate SHA-256 {fingerprint}\n");
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
        self.https.map(|address| format!("https://{address}"))
    }

    pub(super) fn http(&self) -> Option<String> {
        self.http.map(|address| format!("http://{address}"))
    }

    /// The files that were made for it.
    pub(super) fn made_files(&self) -> &[String] {
        &self.made
    }

    /// Of the certificate.
    pub(super) fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    /// The file with the first password.
    pub(super) fn initial_password(&self) -> Option<String> {
        self.initial_password.as_ref().map(|path| path.display().to_string())
    }
}
