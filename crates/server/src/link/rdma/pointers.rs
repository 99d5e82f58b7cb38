//! Where commands that are under way have their data in the host's memory, by CID.

use ebof_nvme::Cid;
use ebof_rdma::Segments;

/// Those of a connection.
#[derive(Debug)]
pub(super) struct Pointers {
    /// At the place that the low bits of the CID name.
    places: Box<[Option<(Cid, Segments)>]>,
    /// Those whose place is taken: hosts choose CIDs, mostly below the queue's size.
    others: Vec<(Cid, Segments)>,
}

impl Pointers {
    /// For so many commands. Allocates nothing later if their CIDs do not share places.
    pub(super) fn new(commands: usize) -> Self {
        Self { places: vec![None; commands.next_power_of_two()].into(), others: Vec::new() }
    }

    #[inline]
    pub(super) fn insert(&mut self, cid: Cid, segments: Segments) {
        let place = self.place(cid);
        if place.is_none() {
            *place = Some((cid, segments));
        } else {
            self.others.push((cid, segments));
        }
    }

    /// The command is complete. `None`: it has no data there.
    #[inline]
    pub(super) fn take(&mut self, cid: Cid) -> Option<Segments> {
        if let Some((_, segments)) = self.place(cid).take_if(|(of, _)| *of == cid) {
            return Some(segments);
        }
        if self.others.is_empty() { None } else { self.take_other(cid) }
    }

    #[cold]
    fn take_other(&mut self, cid: Cid) -> Option<Segments> {
        let at = self.others.iter().position(|(of, _)| *of == cid)?;
        Some(self.others.swap_remove(at).1)
    }

    pub(super) fn clear(&mut self) {
        self.places.fill(None);
        self.others.clear();
    }

    #[inline]
    fn place(&mut self, cid: Cid) -> &mut Option<(Cid, Segments)> {
        // The length is a power of two.
        let mask = self.places.len() - 1;
        &mut self.places[usize::from(cid.0) & mask]
    }
}

#[cfg(test)]
mod tests {
    use ebof_nvme::Sgl;
    use ebof_nvme::Sqe;
    use ebof_nvme::sgl::SglDescriptor;

    use super::*;

    fn segments(length: u32) -> Segments {
        let sgl = Sgl::Keyed { address: 0x1000, length, key: 1, invalidate: false };
        let sqe = Sqe { dptr: SglDescriptor::encode(sgl), ..Sqe::new(1) };
        Segments::from_pointer(&sqe.data_pointer()).unwrap()
    }

    #[test]
    fn commands_are_told_apart_also_where_their_places_are_the_same() {
        let mut pointers = Pointers::new(3);
        let cids = [1, 5, 9, 1, 2].map(Cid);
        for (length, cid) in (1..).zip(cids) {
            pointers.insert(cid, segments(length));
        }
        assert_eq!(pointers.take(Cid(13)), None);
        assert_eq!(pointers.take(Cid(9)), Some(segments(3)));
        assert_eq!(pointers.take(Cid(1)), Some(segments(1)));
        assert_eq!(pointers.take(Cid(1)), Some(segments(4)), "a host may break the rules");
        assert_eq!((pointers.take(Cid(1)), pointers.take(Cid(2))), (None, Some(segments(5))));
        pointers.clear();
        assert_eq!(pointers.take(Cid(5)), None);
    }
}
