//! A host behind PCI: its memory, messages of a client of vfio-user, and data pointers as a host
//! builds them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use ebof_nvme::Sqe;
use ebof_nvme::sgl::SglDescriptor;
use ebof_vfio::{Fault, Memory};
use zerocopy::{FromZeros, IntoBytes};

const PAGE_BYTES: usize = 4096;
const PAGE: u64 = 4096;

type Page = Box<[u8; PAGE_BYTES]>;

/// Bytes that nobody needs to read: whoever reads more goes in a circle.
const READ_BYTES_MAX: u64 = 16 << 20;

/// Pages of memory at any addresses. All other addresses are faults.
#[derive(Debug, Default)]
pub struct HostMemory {
    pages: RefCell<BTreeMap<u64, Page>>,
    /// Bytes that were read, which tells how much work a host can cause.
    pub read_bytes: Cell<u64>,
}

impl HostMemory {
    /// Zeroed pages from `address` on, which is a multiple of 4096.
    pub fn map(&self, address: u64, pages: u64) {
        for page in 0..pages {
            self.pages.borrow_mut().insert(address + page * PAGE, Box::new([0; PAGE_BYTES]));
        }
    }

    /// Takes the page at `address` away.
    pub fn unmap(&self, address: u64) {
        self.pages.borrow_mut().remove(&address);
    }

    /// The bytes of a range.
    ///
    /// # Panics
    /// They are not mapped.
    #[must_use]
    pub fn get(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.access(address, length, |page, range, at| {
            let end = at + range.len();
            bytes[at..end].copy_from_slice(&page[range]);
        })
        .expect("mapped");
        bytes
    }

    /// Stores numbers, as a host writes a list.
    ///
    /// # Panics
    /// They are not mapped.
    pub fn put_list(&self, address: u64, numbers: &[u64]) {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.write(address, &bytes).expect("mapped");
    }

    fn access(
        &self,
        address: u64,
        length: usize,
        mut each: impl FnMut(&mut Page, std::ops::Range<usize>, usize),
    ) -> Result<(), Fault> {
        let mut done = 0;
        while done < length {
            let at = address.checked_add(done as u64).ok_or(Fault { address })?;
            let offset = usize::try_from(at % PAGE).expect("within a page");
            let bytes = (PAGE_BYTES - offset).min(length - done);
            let mut pages = self.pages.borrow_mut();
            let page = pages.get_mut(&(at - at % PAGE)).ok_or(Fault { address: at })?;
            each(page, offset..offset + bytes, done);
            done += bytes;
        }
        Ok(())
    }
}

impl Memory for HostMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.read_bytes.set(self.read_bytes.get() + into.len() as u64);
        assert!(self.read_bytes.get() <= READ_BYTES_MAX, "what a host describes is read in a circle");
        self.access(address, into.len(), |page, range, at| {
            let end = at + range.len();
            into[at..end].copy_from_slice(&page[range]);
        })
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.access(address, from.len(), |page, range, at| {
            let end = at + range.len();
            page[range].copy_from_slice(&from[at..end]);
        })
    }

    fn load(&self, address: u64) -> Result<u32, Fault> {
        let mut bytes = [0; 4];
        aligned(address, 4)?;
        self.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn store(&self, address: u64, value: u32) -> Result<(), Fault> {
        aligned(address, 4)?;
        self.write(address, &value.to_le_bytes())
    }

    fn write_completion(&self, address: u64, entry: &[u8; 16]) -> Result<(), Fault> {
        aligned(address, 16)?;
        self.write(address, entry)
    }
}

fn aligned(address: u64, bytes: u64) -> Result<(), Fault> {
    if address.is_multiple_of(bytes) { Ok(()) } else { Err(Fault { address }) }
}

/// A message of a client, with any header.
#[must_use]
pub fn message(id: u16, command: u16, flags: u32, body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(16 + body.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::new();
    bytes.extend(id.to_le_bytes());
    bytes.extend(command.to_le_bytes());
    for number in [size, flags, 0] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(body);
    bytes
}

/// A command with PRP entries 1 and 2.
#[must_use]
pub fn with_prps(opcode: u8, first: u64, second: u64) -> Sqe {
    let mut sqe = Sqe { opcode, ..Sqe::new_zeroed() };
    sqe.as_mut_bytes()[24..32].copy_from_slice(&first.to_le_bytes());
    sqe.as_mut_bytes()[32..40].copy_from_slice(&second.to_le_bytes());
    sqe
}

/// A command with an SGL descriptor.
#[must_use]
pub fn with_sgl(opcode: u8, descriptor: SglDescriptor) -> Sqe {
    Sqe { dptr: descriptor, ..Sqe::new(opcode) }
}

/// A descriptor of any type: data block 00h, segment 20h, last segment 30h.
#[must_use]
pub fn descriptor(identifier: u8, address: u64, length: u32) -> SglDescriptor {
    SglDescriptor { address: address.into(), length: length.into(), reserved: [0; 3], identifier }
}
