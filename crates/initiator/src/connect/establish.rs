//! Connecting a queue: the link, then the Connect command; for the Admin Queue also enabling and
//! identifying the controller. Every step has a time-out. Used for the first connect and for every
//! reconnect.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ebof_authentication::host::Proof;
use ebof_authentication::message::SecureChannel;
use ebof_nvme::connect::{Connect, ConnectData, ConnectResult, Property};
use ebof_nvme::feature::{AsyncEventConfig, Fid, NumberOfQueues, SetFeature};
use ebof_nvme::identify::{
    Cns, ControllerType, IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, NamespaceList, NvmController,
};
use ebof_nvme::opcode::admin;
use ebof_nvme::property::{Cap, Cc, Csts, offset};
use ebof_nvme::{ControllerId, Cqe, Nsid, QueueId, Sqe, Status};
use ebof_tls::TlsPsk;
use zerocopy::{FromBytes, IntoBytes};

use super::authenticate::{authenticate_first, generated};
use super::steps::{Steps, success};
use crate::command::data::AdminData;
use crate::command::limits::Limits;
use crate::engine::Engine;
use crate::error::connect_error::{ConnectError, ConnectErrorKind as Kind, Step, Tried};
use crate::link::{self, HostLink, Wanted};
use crate::options::Options;
use crate::shared::bindings::{IdentifyRefusal, Inspection, NAMESPACES_MAX};
use crate::shared::fence::{Fence, quiesced_after};
use crate::shared::{GeneratedPsk, Info};
use crate::wait::{Cancel, Waiter};

/// Entries of the Admin Queue, as of the Linux host; every controller accepts it.
pub(crate) const ADMIN_ENTRIES: u16 = 32;
/// How often a queue looks whether its key for TLS has been replaced.
const PSK_REPLACED_WAIT: Duration = Duration::from_millis(10);

/// Connects an Admin Queue and enables the controller. `discovery`: whether it has to be a
/// discovery controller (`None`: either).
pub(crate) async fn controller(
    options: &Options,
    discovery: Option<bool>,
    waiter: &Waiter,
    cancel: &Cancel,
) -> Result<(Engine<Vec<u8>>, Info), ConnectError> {
    let mut attempt = Attempt::new(options, QueueId::ADMIN, waiter, cancel);
    attempt.controller(discovery).await.map_err(|kind| ConnectError::new(kind, attempt.tried))
}

/// Inspects namespaces over a new Admin Queue, all within the time-out of one admin command.
pub(crate) async fn inspect_namespaces(
    engine: &mut Engine<Vec<u8>>,
    options: &Options,
    open: &[Nsid],
    waiter: &Waiter,
    cancel: &Cancel,
) -> Result<Vec<Inspection>, ConnectError> {
    let mut attempt = Attempt::new(options, QueueId::ADMIN, waiter, cancel);
    attempt.tried.step = Step::Identify;
    let end = waiter.time.now() + Duration::from_millis(u64::from(options.admin_timeout_ms.max(1)));
    let mut inspected = Vec::with_capacity(open.len());
    for &nsid in open {
        let found = if waiter.time.now() < end {
            attempt.inspect(engine, nsid).await
        } else {
            Err(Kind::TimedOut { after_ms: u64::from(options.admin_timeout_ms) })
        };
        match found {
            Ok(found) => inspected.push(found),
            Err(kind) => return Err(ConnectError::new(kind, attempt.tried)),
        }
    }
    Ok(inspected)
}

/// Connects I/O queue `queue` of a controller and returns its link.
pub(crate) async fn io_queue(
    options: &Options,
    queue: QueueId,
    info: &Info,
    waiter: &Waiter,
    cancel: &Cancel,
) -> Result<HostLink, ConnectError> {
    let mut attempt = Attempt::new(options, queue, waiter, cancel);
    attempt.io_queue(queue, info).await.map_err(|kind| ConnectError::new(kind, attempt.tried))
}

struct Attempt<'a> {
    options: &'a Options,
    tried: Tried,
    /// Whether the controller has proven itself on this queue.
    is_proven: bool,
    steps: Steps<'a>,
}

impl<'a> Attempt<'a> {
    fn new(options: &'a Options, queue: QueueId, waiter: &'a Waiter, cancel: &'a Cancel) -> Self {
        let steps = Steps { options, waiter, cancel };
        Self { options, tried: options.tried(queue.0), is_proven: false, steps }
    }

    async fn controller(&mut self, discovery: Option<bool>) -> Result<(Engine<Vec<u8>>, Info), Kind> {
        let psk = match discovery {
            Some(true) => None,
            _ if !self.options.concat => None,
            _ => Some(self.generate_psk().await?),
        };
        let mut engine = Engine::new(ADMIN_ENTRIES - 1, false, self.steps.waiter.time.clone());
        let peer = self.open(&mut engine, admin_queue(psk.clone())).await?;
        let id = self.connect_admin(&mut engine).await?;
        self.tried.step = Step::Enable;
        let cap = Cap(self.property(&mut engine, Property::get(offset::CAP, 8), "Property Get (CAP)").await?);
        self.enable(&mut engine, cap).await?;
        self.tried.step = Step::Identify;
        let identify = self.identify(&mut engine).await?;
        check_type(&identify, discovery)?;
        // The controller was to prove itself. Whoever says that there is no need may be another
        // one; of discovery controllers nobody asks it.
        let is_discovery = discovery == Some(true) || identify.controller_type() == ControllerType::Discovery;
        if self.options.dhchap_ctrl_key.is_some() && !self.is_proven && !is_discovery {
            // It is Connect that did not ask for it.
            self.tried.step = Step::Authenticate;
            return Err(Kind::NotProven);
        }
        let io_queues = self.number_of_queues(&mut engine, &identify).await?;
        self.async_events(&mut engine, &identify).await?;
        let namespaces = if io_queues > 0 { self.namespaces(&mut engine).await? } else { None };
        let nvm = if io_queues > 0 { self.nvm_controller(&mut engine).await? } else { None };
        let keep_alive = Duration::from_millis(u64::from(self.options.keep_alive_ms));
        let fence = Arc::new(Fence::new(quiesced_after(&identify, keep_alive, self.options.fence_tmo)));
        let limits = Limits::new(&identify, nvm.as_ref(), cap.page_min_bytes()).within(engine.transfer_max());
        let io_entries = u32::from(self.options.queue_entries()).min(cap.mqes());
        let io_entries = u16::try_from(io_entries).unwrap_or(u16::MAX);
        let maxcmd = identify.maxcmd.get();
        let io_entries = if maxcmd == 0 { io_entries } else { io_entries.min(maxcmd.saturating_add(1)) }.max(2);
        Ok((
            engine,
            Info {
                id,
                cap,
                identify: Arc::new(identify),
                io_queues,
                io_entries,
                peer,
                namespaces,
                limits,
                inspected: Vec::new(),
                psk: GeneratedPsk::new(psk),
                fence,
            },
        ))
    }

    /// Secure channel concatenation: authenticates on an Admin Queue without TLS, which ends then.
    async fn generate_psk(&mut self) -> Result<Arc<TlsPsk>, Kind> {
        let mut engine = Engine::new(ADMIN_ENTRIES - 1, false, self.steps.waiter.time.clone());
        self.open(&mut engine, admin_queue(None)).await?;
        let (_, authreq) = self.send_connect(&mut engine, QueueId::ADMIN, ADMIN_ENTRIES, ControllerId::DYNAMIC).await?;
        if authreq & (ConnectResult::AUTHENTICATION_REQUIRED | ConnectResult::SECURE_CHANNEL_REQUIRED) == 0 {
            return Err(Kind::AuthenticationNotOffered);
        }
        let proof = self.authenticate(&mut engine, SecureChannel::New).await?;
        self.is_proven = proof.is_mutual;
        if let Some(link) = engine.detach() {
            link.end();
        }
        generated(self.options, &proof)
    }

    /// Connects an I/O queue. Where its key for TLS is replaced meanwhile, the two ends may not
    /// have had the same one: then again, with the next one.
    async fn io_queue(&mut self, queue: QueueId, info: &Info) -> Result<HostLink, Kind> {
        let deadline = self.steps.deadline();
        loop {
            let psk = info.psk.get();
            let connected = self.io_queue_by(queue, info, psk.clone()).await;
            let is_outdated = psk.is_some_and(|psk| info.psk.is_outdated(&psk));
            let is_over = || self.steps.cancel.is_set() || self.steps.waiter.time.now() >= deadline;
            if connected.is_ok() || !is_outdated || is_over() {
                return connected;
            }
            while info.psk.is_being_replaced() && !is_over() {
                self.steps.waiter.sleep(PSK_REPLACED_WAIT, Some(self.steps.cancel)).await;
            }
        }
    }

    async fn io_queue_by(&mut self, queue: QueueId, info: &Info, psk: Option<Arc<TlsPsk>>) -> Result<HostLink, Kind> {
        // For the Connect command.
        let mut engine = Engine::new(1, false, self.steps.waiter.time.clone());
        let (entries, controller, in_capsule) = (info.io_entries, info.id, info.in_capsule_bytes());
        self.open(&mut engine, Wanted { queue, entries, controller, in_capsule, psk }).await?;
        self.connect(&mut engine, queue, info.io_entries, info.id).await?;
        Ok(engine.detach().expect("the link that Connect was answered over"))
    }

    /// A link for the queue.
    async fn open(&mut self, engine: &mut Engine<Vec<u8>>, wanted: Wanted) -> Result<SocketAddr, Kind> {
        let (link, peer) =
            link::connect(self.options, wanted, &mut self.tried, self.steps.waiter, self.steps.cancel).await?;
        engine.attach(link);
        Ok(peer)
    }

    async fn connect_admin(&mut self, engine: &mut Engine<Vec<u8>>) -> Result<ControllerId, Kind> {
        self.connect(engine, QueueId::ADMIN, ADMIN_ENTRIES, ControllerId::DYNAMIC).await
    }

    /// Connects and, where that is asked for, authenticates.
    async fn connect(
        &mut self,
        engine: &mut Engine<Vec<u8>>,
        queue: QueueId,
        entries: u16,
        controller: ControllerId,
    ) -> Result<ControllerId, Kind> {
        let (id, authreq) = self.send_connect(engine, queue, entries, controller).await?;
        if authreq & ConnectResult::SECURE_CHANNEL_REQUIRED != 0 {
            return Err(Kind::SecureChannelRequired);
        }
        if authreq & ConnectResult::AUTHENTICATION_REQUIRED != 0 {
            let proof = self.authenticate(engine, SecureChannel::None).await?;
            tracing::debug!(hash = %proof.hash, group = %proof.group, mutual = proof.is_mutual, "authenticated");
            self.is_proven |= proof.is_mutual;
        }
        Ok(id)
    }

    /// Sends Connect. Returns the controller, and what it asks for before anything else (AUTHREQ).
    async fn send_connect(
        &mut self,
        engine: &mut Engine<Vec<u8>>,
        queue: QueueId,
        entries: u16,
        controller: ControllerId,
    ) -> Result<(ControllerId, u16), Kind> {
        self.tried.step = Step::Connect;
        let mut data = ConnectData::zeroed();
        data.hostid = self.options.host_id.0;
        data.cntlid = controller.0.into();
        data.subnqn = self.options.nqn.to_field();
        data.hostnqn = self.options.host_nqn.to_field();
        let disable = self.options.disable_sqflow && !queue.is_admin();
        let connect = Connect {
            recfmt: 0,
            qid: queue,
            entries: u32::from(entries),
            cattr: if disable { Connect::CATTR_DISABLE_SQ_FLOW } else { 0 },
            kato_ms: if queue.is_admin() { self.options.keep_alive_ms } else { 0 },
        };
        let cqe = self.steps.run(engine, connect.encode(), &mut AdminData::FromHost(data.as_bytes())).await?;
        if !cqe.status().is_success() {
            return Err(connect_kind(&cqe));
        }
        let (id, authreq) = ConnectResult::connected(cqe.result());
        if id.0 > ControllerId::MAX.0 || (!queue.is_admin() && id != controller) {
            return Err(Kind::Protocol { violation: format!("Connect answered with controller ID {id}") });
        }
        Ok((id, authreq))
    }

    async fn authenticate(
        &mut self,
        engine: &mut Engine<Vec<u8>>,
        secure_channel: SecureChannel,
    ) -> Result<Proof, Kind> {
        self.tried.step = Step::Authenticate;
        authenticate_first(self.steps, engine, secure_channel).await
    }

    async fn enable(&mut self, engine: &mut Engine<Vec<u8>>, cap: Cap) -> Result<(), Kind> {
        self.property(engine, Property::set(offset::CC, Cc::ENABLE.0), "Property Set (CC)").await?;
        let started = self.steps.waiter.time.now();
        // CAP.TO of 0 is not legal; such a controller gets the time-out of any step.
        let time = match cap.timeout_ms() {
            0 => self.steps.time(),
            ms => Duration::from_millis(u64::from(ms)),
        };
        let mut pause = Duration::from_millis(1);
        loop {
            let value = self.property(engine, Property::get(offset::CSTS, 4), "Property Get (CSTS)").await?;
            let csts = Csts(u32::try_from(value & 0xffff_ffff).unwrap_or(0));
            if csts.ready() && !csts.fatal() {
                return Ok(());
            }
            let passed = self.steps.waiter.time.now().saturating_duration_since(started);
            if csts.fatal() || passed >= time {
                let after_ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
                return Err(Kind::NotReady { csts: csts.0, after_ms });
            }
            self.steps.waiter.sleep(pause.min(time), Some(self.steps.cancel)).await;
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }

    async fn identify(&mut self, engine: &mut Engine<Vec<u8>>) -> Result<IdentifyController, Kind> {
        let mut bytes = vec![0; size_of::<IdentifyController>()];
        let sqe = Sqe::new(admin::IDENTIFY).with_cdw(10, u32::from(Cns::CONTROLLER.0));
        let cqe = self.steps.run(engine, sqe, &mut AdminData::ToHost(&mut bytes)).await?;
        success(&cqe, "Identify Controller")?;
        IdentifyController::read_from_bytes(&bytes)
            .map_err(|error| Kind::Protocol { violation: format!("Identify Controller: {error}") })
    }

    /// Reads the active namespaces, before events report changes to them.
    async fn namespaces(&mut self, engine: &mut Engine<Vec<u8>>) -> Result<Option<BTreeSet<u32>>, Kind> {
        let mut found = BTreeSet::new();
        let mut after = Nsid::NONE;
        loop {
            let mut list = NamespaceList::default();
            let sqe = Sqe::new(admin::IDENTIFY).with_nsid(after).with_cdw(10, u32::from(Cns::ACTIVE_NAMESPACE_LIST.0));
            let cqe = self.steps.run(engine, sqe, &mut AdminData::ToHost(list.as_mut_bytes())).await?;
            if !cqe.status().is_success() {
                return Ok(None);
            }
            found.extend(list.iter().map(|nsid| nsid.0));
            match list.next_after(after) {
                Some(next) if found.len() < NAMESPACES_MAX => after = next,
                _ => return Ok(Some(found)),
            }
        }
    }

    /// Limits of the NVM command set; `None` if the controller does not report them (before version
    /// 2.0).
    async fn nvm_controller(&mut self, engine: &mut Engine<Vec<u8>>) -> Result<Option<NvmController>, Kind> {
        let mut bytes = vec![0; IDENTIFY_BYTES];
        let status = self.identify_into(engine, Cns::IOCS_CONTROLLER, Nsid::NONE, &mut bytes).await?;
        Ok(NvmController::read_from_bytes(&bytes).ok().filter(|_| status.is_success()))
    }

    async fn identify_into(
        &mut self,
        engine: &mut Engine<Vec<u8>>,
        cns: Cns,
        nsid: Nsid,
        bytes: &mut [u8],
    ) -> Result<Status, Kind> {
        let sqe = Sqe::new(admin::IDENTIFY).with_nsid(nsid).with_cdw(10, u32::from(cns.0));
        Ok(self.steps.run(engine, sqe, &mut AdminData::ToHost(bytes)).await?.status())
    }

    /// Inspects one namespace. A transient refusal is an error: the connection is not used before
    /// all open namespaces are known.
    async fn inspect(&mut self, engine: &mut Engine<Vec<u8>>, nsid: Nsid) -> Result<Inspection, Kind> {
        let succeeded = |command, status: Status| match IdentifyRefusal::from_status(status) {
            _ if status.is_success() => Ok(true),
            IdentifyRefusal::Permanent => Ok(false),
            IdentifyRefusal::Transient => Err(Kind::Status { command, status }),
        };
        let mut bytes = vec![0; IDENTIFY_BYTES];
        let status = self.identify_into(engine, Cns::NAMESPACE, nsid, &mut bytes).await?;
        if !succeeded("Identify Namespace", status)? {
            return Ok(Inspection::absent(nsid));
        }
        let identify = IdentifyNamespace::read_from_bytes(&bytes)
            .map_err(|error| Kind::Protocol { violation: format!("Identify Namespace: {error}") })?;
        let status = self.identify_into(engine, Cns::NAMESPACE_ID_DESCRIPTORS, nsid, &mut bytes).await?;
        let has_list = succeeded("Identify (Namespace Identification Descriptors)", status)?;
        Ok(Inspection::found(nsid, Box::new(identify), has_list.then_some(&bytes)))
    }

    async fn number_of_queues(
        &mut self,
        engine: &mut Engine<Vec<u8>>,
        identify: &IdentifyController,
    ) -> Result<u16, Kind> {
        let wanted = self.options.io_queues();
        if wanted == 0 || identify.controller_type() == ControllerType::Discovery {
            return Ok(0);
        }
        let value = NumberOfQueues { submission: wanted, completion: wanted };
        let cqe = self.set_feature(engine, Fid::NUMBER_OF_QUEUES, value.encode()).await?;
        success(&cqe, "Set Features (Number of Queues)")?;
        // 65536 cannot be decoded: then all requested queues are granted.
        let granted = NumberOfQueues::decode(cqe.dw0.get());
        Ok(granted.map_or(wanted, |granted| granted.submission.min(granted.completion).min(wanted)))
    }

    /// Enables the notices that this host handles, of those that the controller offers.
    async fn async_events(&mut self, engine: &mut Engine<Vec<u8>>, identify: &IdentifyController) -> Result<(), Kind> {
        let notices = AsyncEventConfig::NAMESPACE_ATTRIBUTE
            .with(AsyncEventConfig::FIRMWARE_ACTIVATION)
            .with(AsyncEventConfig::ANA_CHANGE)
            .with(AsyncEventConfig::DISCOVERY_LOG);
        let value = notices.0 & identify.oaes.get();
        if value == 0 {
            return Ok(());
        }
        // If the controller refuses, it is used without notices.
        self.set_feature(engine, Fid::ASYNC_EVENT_CONFIG, value).await.map(|_| ())
    }

    async fn set_feature(&mut self, engine: &mut Engine<Vec<u8>>, fid: Fid, value: u32) -> Result<Cqe, Kind> {
        let feature = SetFeature { fid, save: false };
        let sqe = Sqe::new(admin::SET_FEATURES).with_cdw(10, feature.encode()).with_cdw(11, value);
        self.steps.run(engine, sqe, &mut AdminData::None).await
    }

    async fn property(&mut self, engine: &mut Engine<Vec<u8>>, sqe: Sqe, name: &'static str) -> Result<u64, Kind> {
        let cqe = self.steps.run(engine, sqe, &mut AdminData::None).await?;
        success(&cqe, name)?;
        Ok(cqe.result())
    }
}

/// The Admin Queue, over TLS with this key or without one that was generated.
pub(super) fn admin_queue(psk: Option<Arc<TlsPsk>>) -> Wanted {
    Wanted {
        queue: QueueId::ADMIN,
        entries: ADMIN_ENTRIES,
        controller: ControllerId(0),
        // As of the Linux host, which sends no data in capsules of the Admin Queue over RDMA.
        in_capsule: 0,
        psk,
    }
}

/// The error of a failed Connect command.
fn connect_kind(cqe: &Cqe) -> Kind {
    let status = cqe.status();
    if status.is(Status::CONNECT_INVALID_PARAMETERS) {
        let (in_data, offset) = ConnectResult::invalid(cqe.result());
        if in_data && offset == ConnectData::SUBNQN_OFFSET {
            return Kind::WrongNqn;
        }
        return Kind::InvalidParameter { in_data, offset, status };
    }
    if status.is(Status::CONNECT_INVALID_HOST) {
        Kind::HostNotAllowed
    } else if status.is(Status::CONNECT_CONTROLLER_BUSY) {
        Kind::ControllerBusy { status }
    } else if status.is(Status::AUTHENTICATION_REQUIRED) {
        Kind::AuthenticationRequired
    } else if status.is(Status::CONNECT_RESTART_DISCOVERY) {
        Kind::RestartDiscovery
    } else {
        Kind::Status { command: "Connect", status }
    }
}

fn check_type(identify: &IdentifyController, discovery: Option<bool>) -> Result<(), Kind> {
    let is_discovery = identify.controller_type() == ControllerType::Discovery;
    match discovery {
        Some(false) if is_discovery => Err(Kind::IsDiscovery),
        // Before NVMe 1.4 the type was not reported; the NQN decides then.
        Some(true) if identify.controller_type() == ControllerType::Io => Err(Kind::NotDiscovery),
        _ => Ok(()),
    }
}
