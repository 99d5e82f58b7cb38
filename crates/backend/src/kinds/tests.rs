//! A kind of a test's own, whose backings have no path: images in a pool.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::{Action, Class, DataOrigin, Error, Geometry, Io, Persistent, Removable, Request, Submitted};

type Images = Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>;

#[derive(Debug)]
struct Pool {
    images: Images,
    is_locked: AtomicBool,
}

#[derive(Debug)]
struct Image {
    name: String,
    bytes: Arc<AtomicU64>,
    offered_bytes: AtomicU64,
    geometry: Geometry,
}

impl BackingKind for Pool {
    fn schemes(&self) -> &[&'static str] {
        &["pool", "pool+tls"]
    }

    fn open(&self, spec: &Spec) -> Result<Arc<dyn Device>, OpenError> {
        let Source::Named { name, .. } = &spec.source else { return Err(unknown(spec)) };
        let called = || Name::new(format!("pool:{name}"));
        let refused = |is_in_use, source: &str| OpenError::Refused { name: called(), is_in_use, source: source.into() };
        if self.is_locked.load(Ordering::Relaxed) {
            return Err(refused(true, "client.4711 has it open; stop that one first"));
        }
        let bytes = self.images.lock().unwrap().get(name).cloned();
        let bytes = bytes.ok_or_else(|| refused(false, "there is no such image"))?;
        let (capacity_bytes, logical_block_bytes) = (bytes.load(Ordering::Relaxed), block_bytes(spec));
        check_blocks(called(), capacity_bytes, logical_block_bytes)?;
        let read_only = spec.read_only;
        let geometry =
            Geometry { logical_block_bytes, ..Memory::new(capacity_bytes, logical_block_bytes, read_only).geometry() };
        let offered_bytes = capacity_bytes.into();
        Ok(Arc::new(Image { name: name.clone(), bytes, offered_bytes, geometry }))
    }

    fn id(&self, spec: &Spec) -> Option<BackingId> {
        let Source::Named { name, .. } = &spec.source else { return None };
        self.images.lock().unwrap().contains_key(name).then(|| BackingId::lasting("pool", name.as_str()))
    }
}

impl Device for Image {
    fn geometry(&self) -> Geometry {
        Geometry { capacity_bytes: self.offered_bytes.load(Ordering::Relaxed), ..self.geometry }
    }

    fn submit(&self, _io: &mut Io, request: Request) -> Submitted {
        let action = request.operation.action();
        let device = format!("pool:{}", self.name).into();
        let source = "the pool is full; add storage to it".into();
        let error = Error::Failed { device, action, offset: 512, len: 1024, class: Class::OutOfSpace, source };
        Submitted::Done(request.complete(Err(error)))
    }

    fn persistent(&self) -> Option<&dyn Persistent> {
        Some(self)
    }

    fn describe(&self) -> String {
        format!("image {}", self.name)
    }
}

impl Persistent for Image {
    fn id(&self) -> Option<BackingId> {
        Some(BackingId::lasting("pool", self.name.as_str()))
    }

    fn origin(&self) -> DataOrigin {
        DataOrigin::Everywhere(format!("pool.{}", self.name))
    }

    fn record(&self, _identity: [u8; 16]) -> bool {
        false
    }

    fn is_idle(&self) -> bool {
        true
    }

    fn current_bytes(&self, asked_bytes: Option<u64>) -> Result<u64, OpenError> {
        let name = Name::new(format!("pool:{}", self.name));
        let actual_bytes = self.bytes.load(Ordering::Relaxed);
        let offered_bytes = self.offered_bytes.load(Ordering::Relaxed);
        if actual_bytes < offered_bytes {
            return Err(OpenError::Shrunk { name, actual_bytes, offered_bytes });
        }
        match asked_bytes.filter(|asked| *asked != actual_bytes) {
            Some(asked_bytes) => Err(OpenError::SizeDiffers { name, actual_bytes, asked_bytes }),
            None => Ok(actual_bytes),
        }
    }

    fn extend(&self, asked_bytes: u64) -> Result<Option<u64>, OpenError> {
        Ok(Some(self.bytes.swap(asked_bytes, Ordering::Relaxed)))
    }

    fn take_back_extension(&self, before_bytes: u64) -> io::Result<()> {
        self.bytes.store(before_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn grow(&self, capacity_bytes: u64) {
        self.offered_bytes.fetch_max(capacity_bytes, Ordering::Relaxed);
    }
}

/// Kinds with a pool in which are the images `disk`, of a mebibyte, and `odd`, of 1000 bytes.
fn with_pool() -> (Kinds, Arc<Pool>) {
    let images = [("disk", 1 << 20), ("a,b", 4096), ("odd", 1000)];
    let images = images.map(|(name, bytes)| (name.to_owned(), Arc::new(AtomicU64::new(bytes))));
    let pool = Arc::new(Pool { images: Arc::new(Mutex::new(images.into())), is_locked: false.into() });
    (Kinds::system().with(Arc::clone(&pool) as Arc<dyn BackingKind>).unwrap(), pool)
}

#[test]
fn a_registered_kind_is_opened_by_its_scheme_and_the_others_as_before() {
    let (kinds, _pool) = with_pool();
    let device = kinds.open(&kinds.parse("pool:disk,readonly,block=4096").unwrap()).unwrap();
    let geometry = device.geometry();
    assert_eq!((geometry.capacity_bytes, geometry.logical_block_bytes, geometry.read_only), (1 << 20, 4096, true));
    assert!(device.file().is_none());
    assert_eq!(kinds.open(&kinds.parse("pool+tls:a,,b").unwrap()).unwrap().describe(), "image a,b");
    let described = |text: &str| kinds.open(&kinds.parse(text).unwrap()).unwrap().describe();
    assert_eq!((described("mem:1Mi"), described("memory:1Mi")), ("memory, 1Mi".into(), "memory, 1Mi".into()));
    assert!(described("null:1Ti").starts_with("null, 1Ti"));
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(4096).unwrap();
    assert!(described(file.path().to_str().unwrap()).starts_with("file "));
}

#[test]
fn a_kind_that_is_not_registered_is_a_path_in_a_text_and_refused_otherwise() {
    let (kinds, _pool) = with_pool();
    for text in ["pool:disk", "file:disk"] {
        assert_eq!(Kinds::system().parse(text), Ok(Spec::path(text)));
    }
    assert_eq!(kinds.parse("file:disk"), Ok(Spec::path("file:disk")));
    let spec = kinds.parse("pool:disk,readonly").unwrap();
    let error = open(&spec).unwrap_err();
    assert_eq!(error.to_string(), "pool:disk,readonly: nothing here opens backings of that kind");
    assert!(!error.is_in_use() && id(&spec).is_none());
}

#[test]
fn a_scheme_has_one_kind() {
    let (kinds, pool) = with_pool();
    assert_eq!(kinds.with(pool).unwrap_err(), SchemeTaken { scheme: "pool" });
    #[derive(Debug)]
    struct Also(&'static str);
    impl BackingKind for Also {
        fn schemes(&self) -> &[&'static str] {
            std::slice::from_ref(&self.0)
        }
        fn open(&self, spec: &Spec) -> Result<Arc<dyn Device>, OpenError> {
            Err(unknown(spec))
        }
        fn id(&self, _spec: &Spec) -> Option<BackingId> {
            None
        }
    }
    for scheme in ["mem", "memory", "null"] {
        assert_eq!(Kinds::system().with(Arc::new(Also(scheme))).unwrap_err(), SchemeTaken { scheme });
    }
    assert!(Kinds::system().with(Arc::new(Also("file"))).is_ok(), "paths have no scheme");
}

#[test]
fn backings_without_a_path_have_an_identity() {
    let (kinds, _pool) = with_pool();
    let spec = |text: &str| kinds.parse(text).unwrap();
    let opened = |text: &str| kinds.open(&spec(text)).unwrap();
    let own = opened("pool:disk").persistent().unwrap().id();
    assert!(own.as_ref().is_some_and(BackingId::is_lasting));
    // However it is opened and reached.
    assert_eq!(opened("pool+tls:disk,readonly").persistent().unwrap().id(), own);
    assert_eq!(kinds.id(&spec("pool:disk")), own);
    assert_ne!(kinds.id(&spec("pool:a,,b")), own);
    assert_eq!(kinds.id(&spec("pool:nothing")), None);
    assert_eq!(kinds.id(&spec("mem:1Mi")), None);
    // A file of that name is another one.
    assert_ne!(Some(BackingId::lasting("file", "disk")), own);
    assert_ne!(Some(BackingId::changing("pool", "disk")), own);
    // Also behind a device that can be pulled out.
    let (removable, _remover) = Removable::new(opened("pool:disk"));
    assert_eq!(removable.persistent().unwrap().id(), own);
    assert_eq!(removable.persistent().unwrap().origin(), DataOrigin::Everywhere("pool.disk".into()));
}

#[test]
fn errors_call_a_backing_without_a_path_by_its_name() {
    let (kinds, pool) = with_pool();
    let refusal = |text: &str| kinds.open(&kinds.parse(text).unwrap()).unwrap_err();
    assert_eq!(
        refusal("pool:odd").to_string(),
        "pool:odd has 1000 bytes, which is not a multiple of the block size 512: 1024 bytes would be"
    );
    let missing = refusal("pool:nothing");
    assert_eq!(missing.to_string(), "pool:nothing: there is no such image");
    assert!(!missing.is_in_use());
    pool.is_locked.store(true, Ordering::Relaxed);
    let locked = refusal("pool:disk");
    assert_eq!(locked.to_string(), "pool:disk: client.4711 has it open; stop that one first");
    assert!(locked.is_in_use());
}

#[test]
fn the_size_of_a_backing_without_a_path_changes_like_that_of_a_file() {
    let (kinds, pool) = with_pool();
    let device = kinds.open(&kinds.parse("pool:disk").unwrap()).unwrap();
    let persistent = device.persistent().unwrap();
    assert_eq!(persistent.extend(2 << 20).unwrap(), Some(1 << 20));
    assert_eq!(persistent.current_bytes(None).unwrap(), 2 << 20);
    assert_eq!(device.geometry().capacity_bytes, 1 << 20, "nothing is offered yet");
    persistent.grow(2 << 20);
    assert_eq!(device.geometry().capacity_bytes, 2 << 20);
    assert_eq!(
        persistent.current_bytes(Some(3 << 20)).unwrap_err().to_string(),
        "pool:disk has 2097152 bytes (2Mi), but 3145728 bytes (3Mi) were asked for: write the size as 2Mi or leave it \
         out to use it as it is, or make it larger first"
    );
    pool.images.lock().unwrap()["disk"].store(4096, Ordering::Relaxed);
    assert_eq!(
        persistent.current_bytes(None).unwrap_err().to_string(),
        "pool:disk has 4096 bytes (4Ki), fewer than the 2097152 (2Mi) that hosts use: it does not shrink while it is in \
         use; make it as large again, or take the namespace away first"
    );
}

#[test]
fn a_request_that_failed_says_of_what_and_has_the_class_that_the_kind_gave_it() {
    let (kinds, _pool) = with_pool();
    let device = kinds.open(&kinds.parse("pool:disk").unwrap()).unwrap();
    let mut io = Io::new(1).unwrap();
    let Submitted::Done(done) = device.submit(&mut io, Request::new(1, crate::Operation::Flush)) else {
        panic!("it is done at once")
    };
    let error = done.result.unwrap_err();
    assert!(matches!(error, Error::Failed { action: Action::Flush, .. }));
    assert_eq!(
        error.to_string(),
        "flush of 1024 bytes at offset 512 of pool:disk: the pool is full; add storage to it"
    );
    assert_eq!(error.class(), Class::OutOfSpace);
}
