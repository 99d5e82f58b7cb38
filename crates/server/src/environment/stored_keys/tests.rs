//! Lists of keys: what is written and read, damage, and media that fail.

use std::sync::Arc;
use std::sync::Mutex;

use ebof_manage::api::HOST_KEYS_MAX;

use super::*;

const SECRET: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

fn nqn(name: &str) -> Nqn {
    Nqn::parse(&format!("nqn.2014-08.org.example:{name}")).unwrap()
}

fn secret() -> HostKey {
    HostKey::parse(KeyKind::Dhchap, SECRET).unwrap()
}

/// A key of each kind, and a number that was in use before.
fn some() -> KeyList {
    let bytes = |byte: u8| ebof_authentication::KeyMaterial::new(vec![byte; 48]);
    let psk = ConfiguredPsk::new(bytes(7), Some(Hash::Sha384)).unwrap();
    let ctrl = Secret::new(bytes(8), None).unwrap();
    let (list, _) = KeyList::default().with(nqn("a"), secret(), 1);
    let (list, _) = list.with(nqn("a"), HostKey::DhchapCtrl(ctrl), 2);
    let (list, _) = list.with(nqn("b"), secret(), 3);
    let (list, _) = list.with(nqn("b"), HostKey::Tls(psk), 4);
    list.without(&[3])
}

/// Fails as it is told, and remembers what was stored.
#[derive(Default)]
struct Medium {
    fails: Mutex<Option<bool>>,
    stored: Mutex<Vec<u8>>,
}

impl KeyStore for Arc<Medium> {
    fn replace(&self, content: &[u8]) -> Result<(), ConfigStoreError> {
        let error = || Box::from("there is no room");
        match *self.fails.lock().unwrap() {
            Some(true) => return Err(ConfigStoreError::Unknown(error())),
            Some(false) => return Err(ConfigStoreError::NotStored(error())),
            None => {}
        }
        *self.stored.lock().unwrap() = content.to_vec();
        Ok(())
    }
}

#[test]
fn what_is_written_is_read() {
    assert_eq!(text::read(&text::write(&some())), Ok(some()));
    assert_eq!(text::read(&text::write(&KeyList::default())), Ok(KeyList::default()));
}

#[test]
fn the_largest_list_is_written_without_growing() {
    let host = Nqn::parse(&format!("nqn.2014-08.org.example:{}", "x".repeat(199))).unwrap();
    let bytes = ebof_authentication::KeyMaterial::new(vec![0xff; 64]);
    let longest = HostKey::DhchapCtrl(Secret::new(bytes, Some(Hash::Sha512)).unwrap());
    for count in [0, 1, 100] {
        let keys = (0..count).map(|at| StoredKey {
            number: u64::MAX - 200 + at,
            host: host.clone(),
            key: longest.clone(),
            since_s: u64::MAX,
        });
        let list = KeyList { next: u64::MAX, keys: keys.collect() };
        let text = text::write(&list);
        let planned = list.keys.len() * (host.as_str().len() + 256) + 256;
        assert!(text.len() <= planned, "{count}: {} of {planned}", text.len());
    }
}

#[test]
fn damage_is_noticed_and_no_key_is_told() {
    let text = String::from_utf8(text::write(&some()).to_vec()).unwrap();
    for end in 0..text.len() {
        let error = text::read(&text.as_bytes()[..end]).unwrap_err().to_string();
        assert!(!error.contains("AAEC"), "cut at {end}: {error}");
    }
    for (from, to, why) in [
        ("\"version\":1", "\"version\":2", "version 2"),
        ("\"next\":5", "\"next\":4", "key k4"),
        ("\"number\":2", "\"number\":1", "key k1"),
        ("\"kind\":\"dhchap-ctrl\"", "\"kind\":\"tls\"", "key k2"),
        ("\"kind\":\"dhchap\"", "\"kind\":\"DHHC-1:01:AAECAw\"", "column"),
        ("\"host\":\"nqn.2014-08.org.example:a\"", "\"host\":\"\"", "key k1"),
        ("AAECAwQ", "AAECAwR", "key k1"),
        ("\"since_s\":1", "\"since_s\":\"DHHC-1:01:AAECAw\"", "column"),
        ("\"since_s\":1", "\"since_s\":1,\"AAEC\":1", "column"),
    ] {
        let damaged = text.replacen(from, to, 1);
        assert_ne!(damaged, text, "{from}");
        let error = text::read(damaged.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("damaged") && !error.contains("AAEC"), "{from}: {error}");
    }
    assert!(text::read("[".repeat(100_000).as_bytes()).is_err(), "deeply nested");
    let mut many = KeyList::default();
    (0..=HOST_KEYS_MAX).for_each(|_| many = many.with(nqn("a"), secret(), 0).0);
    assert!(text::read(&text::write(&many)).unwrap_err().to_string().contains("more keys of this kind"));
}

// @test keys.stored
#[test]
fn what_cannot_be_stored_is_not_in_force_and_a_number_that_may_be_stored_is_not_given_again() {
    let medium = Arc::new(Medium::default());
    let keys = StoredKeys::open(None, Box::new(Arc::clone(&medium))).unwrap();
    let add = |host: &str| keys.list().with(nqn(host), secret(), 1);
    keys.replace(add("a").0).unwrap();
    for (fails, next) in [(false, 2), (true, 3)] {
        *medium.fails.lock().unwrap() = Some(fails);
        assert!(keys.replace(add("b").0).is_err());
        assert_eq!((keys.count(), keys.list().next), (1, next), "{fails}");
    }
    *medium.fails.lock().unwrap() = None;
    let (list, added) = add("b");
    assert_eq!(added.id(), "k3");
    keys.replace(list).unwrap();
    // As after the next start, whenever that is.
    let stored = medium.stored.lock().unwrap().clone();
    let again = StoredKeys::open(Some(stored), Box::new(Arc::clone(&medium))).unwrap();
    assert_eq!(again.list(), keys.list());
    keys.replace(keys.list().without(&[3])).unwrap();
    assert_eq!(add("c").1.number, 4, "a number is not given again");
}

#[test]
fn nothing_of_a_key_is_formatted() {
    let shown = format!("{:?} {:?}", some(), StoredKeys::default());
    assert!(shown.contains("32 secret bytes") && !shown.contains("AAEC"), "{shown}");
}
