//! A host that is bytes on a socket, and sends exactly what the test says.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ebof_nvme::connect::{Connect, ConnectData, Property};
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Cqe, Nqn, QueueId, Sgl, Sqe};
use zerocopy::{FromBytes, IntoBytes};

/// The subsystem that it connects to.
const NQN: &str = "nqn.2014-08.org.example:drive0";

pub(crate) fn connect(queue: u16, entries: u32) -> Sqe {
    Connect { recfmt: 0, qid: QueueId(queue), entries, cattr: 0, kato_ms: if queue == 0 { 60_000 } else { 0 } }.encode()
}

pub(crate) fn connect_data(controller: u16) -> ConnectData {
    let mut data = ConnectData::zeroed();
    data.hostid = [7; 16];
    data.cntlid = controller.into();
    data.subnqn = Nqn::parse(NQN).unwrap().to_field();
    data.hostnqn = Nqn::parse("nqn.2014-08.org.example:rude").unwrap().to_field();
    data
}

/// A host that sends exactly what the test says.
pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    /// An initialized connection: ICReq sent, ICResp read.
    pub(crate) fn initialized(address: SocketAddr) -> Self {
        let mut raw = Self(TcpStream::connect(address).unwrap());
        raw.0.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut request = [0; 128];
        (request[0], request[2], request[4]) = (0, 128, 128);
        raw.0.write_all(&request).unwrap();
        let response = raw.pdu();
        assert_eq!((response[0], response.len()), (1, 128));
        raw
    }

    /// An Admin Queue whose controller is enabled.
    pub(crate) fn admin(address: SocketAddr) -> Self {
        Self::admin_and_controller(address).0
    }

    pub(crate) fn admin_and_controller(address: SocketAddr) -> (Self, u16) {
        let mut raw = Self::initialized(address);
        raw.send(connect(0, 32), 1, connect_data(0xffff).as_bytes());
        let connected = raw.completion();
        assert!(connected.status().is_success());
        raw.send(Property::set(offset::CC, Cc::ENABLE.0), 2, &[]);
        assert!(raw.completion().status().is_success());
        (raw, connected.dw0.get() as u16)
    }

    /// An Admin Queue that `host` has connected; the controller is not enabled.
    pub(crate) fn connected_as(address: SocketAddr, host: &str) -> Self {
        let mut raw = Self::initialized(address);
        let mut data = connect_data(0xffff);
        data.hostnqn = Nqn::parse(host).unwrap().to_field();
        raw.send(connect(0, 32), 1, data.as_bytes());
        assert!(raw.completion().status().is_success());
        raw
    }

    /// Sends the data that an R2T requests.
    pub(crate) fn send_data(&mut self, r2t: &[u8], data: &[u8]) {
        assert_eq!(r2t[16..20], (data.len() as u32).to_le_bytes(), "the R2T asks for all of it");
        // H2CData with LAST: CCCID and TTAG as in the R2T, DATAO, DATAL.
        let mut pdu = vec![6, 4, 24, 24];
        pdu.extend_from_slice(&(24 + data.len() as u32).to_le_bytes());
        pdu.extend_from_slice(&r2t[8..20]);
        pdu.extend_from_slice(&[0; 4]);
        pdu.extend_from_slice(data);
        self.0.write_all(&pdu).unwrap();
    }

    pub(crate) fn capsule(mut sqe: Sqe, cid: u16, data: &[u8]) -> Vec<u8> {
        sqe.cid = cid.into();
        if !data.is_empty() {
            sqe.dptr = SglDescriptor::encode(Sgl::InCapsule { offset: 0, length: data.len() as u32 });
        }
        let mut pdu = vec![4, 0, 72, if data.is_empty() { 0 } else { 72 }];
        pdu.extend_from_slice(&(72 + data.len() as u32).to_le_bytes());
        pdu.extend_from_slice(sqe.as_bytes());
        pdu.extend_from_slice(data);
        pdu
    }

    pub(crate) fn send(&mut self, sqe: Sqe, cid: u16, data: &[u8]) {
        self.0.write_all(&Self::capsule(sqe, cid, data)).unwrap();
    }

    pub(crate) fn pdu(&mut self) -> Vec<u8> {
        let mut pdu = vec![0; 8];
        self.0.read_exact(&mut pdu).unwrap();
        let length = u32::from_le_bytes(pdu[4..8].try_into().unwrap()) as usize;
        assert!((8..=2 << 20).contains(&length), "{pdu:?}");
        pdu.resize(length, 0);
        self.0.read_exact(&mut pdu[8..]).unwrap();
        pdu
    }

    /// The next response; data before it are skipped.
    pub(crate) fn completion(&mut self) -> Cqe {
        loop {
            let pdu = self.pdu();
            if pdu[0] == 5 {
                return Cqe::read_from_bytes(&pdu[8..24]).unwrap();
            }
            assert_eq!(pdu[0], 7, "neither a response nor data");
        }
    }
}
