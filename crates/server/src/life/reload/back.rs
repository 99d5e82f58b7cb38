//! The way back: what was taken is given up, what was released is taken again.

use std::collections::BTreeSet;
use std::sync::Arc;

use ebof_backend::Spec;
use ebof_manage::Config;

use super::{Reload, hide, namespace_at};
use crate::drives::DriveThreads;
use crate::life::control::{Listening, Order};
use crate::life::startup::listen_at;
use crate::ports::port::PortState;

impl Reload<'_> {
    /// Takes what was released again, and shows hosts what there was. Gives what cannot be had any
    /// more.
    pub(super) fn go_back(&mut self) -> Vec<String> {
        for (from, to) in &self.moves {
            if let Some(plain) = self.taken.remove(to) {
                self.leaving.insert(from.clone(), plain);
            }
        }
        for (device, before) in self.extended.drain(..) {
            let taken_back = device.persistent().map_or(Ok(()), |backing| backing.take_back_extension(before));
            if let Err(error) = taken_back {
                let what = device.describe();
                tracing::error!(what, "was made larger, and cannot be made as small as it was: {error}");
            }
        }
        self.taken.clear();
        self.taken_ports.clear();
        self.taken_drives.drain(..).for_each(|opened| opened.actor.stop());
        for (path, id) in std::mem::take(&mut self.made) {
            // Made a moment ago, and empty.
            if self.environment().storage.id(&Spec::path(&path)) == Some(id)
                && let Err(error) = std::fs::remove_file(&path)
            {
                tracing::warn!(path = %path.display(), "made and not used, cannot be removed: {error}");
            }
        }
        let Some(released) = self.released.take() else { return Vec::new() };
        let mut lost = Vec::new();
        let mut config = self.old.clone();
        drop(released.backings);
        for key in released.namespaces.iter().filter(|key| !self.leaving.contains_key(key)).collect::<Vec<_>>() {
            let Some(namespace) = namespace_at(self.old, key) else { continue };
            match self.blank.open_plain(&key.0, namespace) {
                Ok(plain) => {
                    self.leaving.insert(key.clone(), plain);
                }
                Err(error) => {
                    hide(&mut config, &BTreeSet::from([key.clone()]));
                    lost.push(error.to_string());
                }
            }
        }
        for (drive, subsystem) in &released.drives {
            match self.blank.open_drive(drive, subsystem, &mut DriveThreads::Own) {
                Ok(opened) => self.leaving_drives.push(opened),
                Err(error) => {
                    config.subsystems.retain(|other| other.nqn != subsystem.nqn);
                    config.drives.retain(|other| other.name != drive.name);
                    lost.push(format!("subsystem {}: {error}", subsystem.nqn));
                }
            }
        }
        let ports = self.ports_again(&released.ports, &mut config, &mut lost);
        let open = std::mem::take(&mut self.stay).into_iter().chain(std::mem::take(&mut self.leaving)).collect();
        let actors = self.drives_stay.drain(..).map(|(before, _)| before).chain(self.leaving_drives.drain(..));
        let devices = self.blank.with(open, actors.collect());
        self.show_or_complain(config, devices, ports);
        lost.iter().for_each(|lost| tracing::error!("NOT SERVED any more: {lost}"));
        lost
    }

    /// The ports that there were, those that were released bound again.
    fn ports_again(
        &mut self,
        released: &[Arc<PortState>],
        config: &mut Config,
        lost: &mut Vec<String>,
    ) -> Vec<Listening> {
        let stay = self.ports_stay.drain(..).map(|(before, _)| before);
        let mut ports: Vec<Listening> = stay.chain(self.leaving_ports.drain(..)).collect();
        for port in released {
            match listen_at(&port.config, Some(port.address), self.environment()) {
                Ok((bound, _)) => {
                    let again = Listening { port: Arc::clone(port), bound: Some(bound) };
                    self.target.orders.give(Order::Listen(again.clone()));
                    let entry = ports.iter_mut().find(|listening| Arc::ptr_eq(&listening.port, port));
                    entry.into_iter().for_each(|entry| *entry = again.clone());
                }
                Err(error) => {
                    ports.retain(|listening| !Arc::ptr_eq(&listening.port, port));
                    config.ports.retain(|other| other.name != port.name);
                    lost.push(format!("port {}: {error}", port.name));
                }
            }
        }
        let at = |listening: &Listening| self.old.ports.iter().position(|port| port.name == listening.port.name);
        ports.sort_by_key(at);
        ports
    }
}
