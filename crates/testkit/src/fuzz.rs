//! Entry points of the fuzz targets: each takes any bytes, must neither panic nor hang, and checks
//! invariants. The targets under `fuzz/` call them, and so does
//! the replay of the committed corpus.

mod authentication;
mod drive;
mod fabrics;
mod nvme;
mod nvme_drive;
mod rdma;
mod rdma_target;
mod tcp;
mod vfio;

pub use authentication::authentication;
pub use drive::drive_medium;
pub use ebof_tls::fuzz::{client_hello as tls_client_hello, records as tls_records};
pub use fabrics::{connected_queue, fabrics_submit};
pub use nvme::{nvme_command, nvme_descriptors, nvme_discovery, nvme_identify, nvme_logs, nvme_names};
pub use rdma::{rdma_controller, rdma_conversation, rdma_conversation_seeds, rdma_host, rdma_private_data};
pub use rdma_target::{rdma_target, rdma_target_seeds};
pub use tcp::{controller_seeds, host_seeds, tcp_controller, tcp_host, tcp_pdu};
pub use vfio::{vfio_messages, vfio_messages_seeds, vfio_pointer, vfio_pointer_seeds, vfio_rings};

/// One fuzz target.
pub type Target = fn(&[u8]);

/// Every fuzz target by its name, which is also the name of its corpus.
pub const TARGETS: &[(&str, Target)] = &[
    ("authentication", authentication),
    ("drive_medium", drive_medium),
    ("fabrics_submit", fabrics_submit),
    ("nvme_command", nvme_command),
    ("nvme_descriptors", nvme_descriptors),
    ("nvme_discovery", nvme_discovery),
    ("nvme_identify", nvme_identify),
    ("nvme_logs", nvme_logs),
    ("nvme_names", nvme_names),
    ("rdma_controller", rdma_controller),
    ("rdma_conversation", rdma_conversation),
    ("rdma_host", rdma_host),
    ("rdma_private_data", rdma_private_data),
    ("rdma_target", rdma_target),
    ("tcp_controller", tcp_controller),
    ("tcp_host", tcp_host),
    ("tcp_pdu", tcp_pdu),
    ("tls_client_hello", tls_client_hello),
    ("tls_records", tls_records),
    ("vfio_messages", vfio_messages),
    ("vfio_pointer", vfio_pointer),
    ("vfio_rings", vfio_rings),
];
