//! What the system says of the memory of keys.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use ebof_vault::{KeptBytes, KeptValue, Unprotected, unprotected};

/// The flags of the mapping that an address is in, as /proc/self/smaps has them.
fn flags(address: usize) -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_it = false;
    for line in maps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_it) {
            return flags.split_whitespace().map(str::to_owned).collect();
        }
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        if let Some((first, end)) = range {
            let [first, end] = [first, end].map(|text| usize::from_str_radix(text, 16));
            if let (Ok(first), Ok(end)) = (first, end) {
                is_it = (first..end).contains(&address);
            }
        }
    }
    panic!("nothing is mapped at {address:#x}")
}

// @test keys.locked
#[test]
fn the_memory_of_a_key_is_locked_and_not_dumped() {
    let small = KeptBytes::from(vec![7; 32]);
    let large = KeptBytes::from(vec![7; 100_000]);
    let value = KeptValue::new(|| [7_u64; 30]);
    let places = [&raw const *small.first().unwrap(), &raw const *large.last().unwrap(), (&raw const *value).cast()];
    let has = |place: &*const u8, flag: &str| flags(place.addr()).iter().any(|it| it == flag);
    assert!(places.iter().all(|place| has(place, "dd")));
    if matches!(unprotected(), Some(Unprotected::Swapped(_))) {
        println!("SKIPPED: memory cannot be locked here");
        return;
    }
    assert!(places.iter().all(|place| has(place, "lo")));
    // That of other things is not.
    let other = Box::new([7_u8; 100_000]);
    assert!(!has(&other.as_ptr(), "lo") && !has(&other.as_ptr(), "dd"));
}
