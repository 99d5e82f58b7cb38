//! Certificates: made, stored, renewed, requested and replaced.

use rcgen::{BasicConstraints, CertificateSigningRequestParams, IsCa, Issuer};

use super::*;

struct Rig {
    clock: Clock,
    directory: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        Self { clock: Clock::simulated(1), directory: tempfile::tempdir().unwrap() }
    }

    fn open(&self) -> Arc<Identity> {
        self.try_open().unwrap()
    }

    fn try_open(&self) -> Result<Arc<Identity>, CertificateError> {
        let state = Arc::new(StateDirectory::open(&self.directory.path().join("state")).unwrap());
        Identity::open(state, names("box.example.org", &["192.0.2.1".parse().unwrap()]), self.clock.clone())
    }
}

/// A certificate for `names`, with its key.
fn foreign(names: &[&str], days: (i64, i64), clock: &Clock) -> (String, String) {
    let mut parameters = CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).unwrap();
    let at = |days: i64| {
        let seconds = seconds(clock.unix_time()) + days * 86_400;
        (SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.try_into().unwrap())).into()
    };
    (parameters.not_before, parameters.not_after) = (at(days.0), at(days.1));
    let key = KeyPair::generate().unwrap();
    (parameters.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

#[test]
fn a_certificate_is_made_once_and_renewed_before_it_ends() {
    let rig = Rig::new();
    let first = rig.open().info();
    assert!(first.is_self_made && first.subject.contains("CN=box.example.org"), "{first:?}");
    let now = seconds(rig.clock.unix_time());
    assert_eq!((first.valid_from, first.valid_to), (now - 86_400, now + 825 * 86_400));
    assert_eq!(first.fingerprint.len(), 32 * 3 - 1);
    assert_eq!(rig.open().info(), first, "the same after a restart");
    let file = rig.directory.path().join("state").join(FILE);
    let mode = std::os::unix::fs::MetadataExt::mode(&file.metadata().unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let identity = rig.open();
    rig.clock.advance(LIFETIME - RENEWED_BEFORE - Duration::from_secs(2));
    assert!(!identity.renew().unwrap());
    rig.clock.advance(Duration::from_secs(3));
    assert!(identity.renew().unwrap());
    let second = identity.info();
    assert!(second.valid_to > first.valid_to && second.fingerprint != first.fingerprint);
    drop(identity);
    assert_eq!(rig.open().info(), second);
}

#[test]
fn another_certificate_is_taken_if_it_has_its_key_and_is_valid() {
    let rig = Rig::new();
    let identity = rig.open();
    let before = identity.info();
    let (chain, key) = foreign(&["box"], (-1, 90), &rig.clock);
    let (other, other_key) = foreign(&["box"], (-1, 90), &rig.clock);
    let refused = |chain: &str, key: Option<&str>| identity.replace(chain, key).unwrap_err();
    assert!(matches!(refused(&chain, Some(&other_key)), CertificateError::OtherKey));
    assert!(matches!(refused(&chain, None), CertificateError::OtherKey));
    assert!(matches!(refused("hello", Some(&key)), CertificateError::NotPem { .. }));
    assert!(matches!(refused(&chain, Some("hello")), CertificateError::NotPem { .. }));
    assert!(matches!(refused(&chain.repeat(CHAIN_MAX + 1), Some(&key)), CertificateError::ChainLength));
    assert!(matches!(refused(&"x".repeat(PEM_BYTES_MAX + 1), Some(&key)), CertificateError::TooLong(_)));
    let cut = chain.replacen("\nMI", "\nMJ", 1);
    assert!(matches!(refused(&cut, Some(&key)), CertificateError::NotUnderstood(_) | CertificateError::NotPem { .. }));
    for days in [(-90, -1), (1, 90)] {
        let (outdated, key) = foreign(&["box"], days, &rig.clock);
        assert!(matches!(refused(&outdated, Some(&key)), CertificateError::NotValidNow { .. }));
    }
    assert_eq!(identity.info(), before, "and the first one stays");
    let info = identity.replace(&chain, Some(&key)).unwrap();
    assert!(!info.is_self_made && info != before);
    assert_eq!(identity.info(), info);
    // With others behind it.
    let chain = format!("{chain}{other}");
    identity.replace(&chain, Some(&key)).unwrap();
    assert_eq!(identity.shown().1.matches("BEGIN CERTIFICATE").count(), 2);
    drop(identity);
    assert_eq!(rig.open().shown().1.matches("BEGIN CERTIFICATE").count(), 2, "after a restart");
    rig.clock.advance(LIFETIME);
    assert!(!rig.open().renew().unwrap(), "it is not for this program to make another one");
}

#[test]
fn what_is_issued_for_a_request_is_taken_without_a_key() {
    let rig = Rig::new();
    let identity = rig.open();
    let subject = RequestCertificate {
        common_name: "box.example.org".to_owned(),
        alternative_names: vec!["box.example.org".to_owned(), "192.0.2.1".to_owned()],
        organization: Some("Example".to_owned()),
        country: Some("DE".to_owned()),
        ..RequestCertificate::default()
    };
    let request = identity.request(&subject).unwrap();
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.distinguished_name.push(DnType::CommonName, "Authority");
    let issuer = Issuer::new(parameters, KeyPair::generate().unwrap());
    let issued = request_of(&request).signed_by(&issuer).unwrap().pem();
    // The target may have been started again meanwhile.
    drop(identity);
    let identity = rig.open();
    let info = identity.replace(&issued, None).unwrap();
    assert!(info.subject.contains("O=Example") && info.issuer.contains("CN=Authority"), "{info:?}");
    // Renewed for the same key, which is the present one now.
    identity.request(&subject).unwrap();
    identity.replace(&issued, None).unwrap();
    for wrong in [
        RequestCertificate::default(),
        RequestCertificate { common_name: "a\nb".to_owned(), ..RequestCertificate::default() },
        RequestCertificate { alternative_names: vec!["a".to_owned(); NAMES_MAX + 1], ..subject.clone() },
        RequestCertificate { organization: Some(String::new()), ..subject.clone() },
    ] {
        assert!(matches!(identity.request(&wrong), Err(CertificateError::Names)), "{wrong:?}");
    }
    let wrong = RequestCertificate { country: Some("Germany".to_owned()), ..subject };
    assert!(matches!(identity.request(&wrong), Err(CertificateError::Country)));
}

fn request_of(pem: &str) -> CertificateSigningRequestParams {
    CertificateSigningRequestParams::from_pem(pem).unwrap()
}

#[test]
fn a_damaged_file_is_told_and_not_replaced() {
    let rig = Rig::new();
    drop(rig.open());
    let file = rig.directory.path().join("state").join(FILE);
    let good = std::fs::read(&file).unwrap();
    std::fs::write(&file, &good[..good.len() / 2]).unwrap();
    let error = rig.try_open().unwrap_err().to_string();
    assert!(error.contains("tls.pem"), "{error}");
    let state = StateDirectory::open(&rig.directory.path().join("state")).unwrap();
    state.replace(FILE, b"hello").unwrap();
    drop(state);
    let error = rig.try_open().unwrap_err().to_string();
    assert!(error.contains("tls.pem") && error.contains("BEGIN CERTIFICATE"), "{error}");
}

#[test]
fn names_are_those_that_clients_may_use() {
    let all = names("box", &["192.0.2.1".parse().unwrap(), "127.0.0.1".parse().unwrap(), "::".parse().unwrap()]);
    assert_eq!(all, ["box", "localhost", "192.0.2.1", "127.0.0.1", "::1"]);
    assert_eq!(names("a b", &[]), ["localhost", "127.0.0.1", "::1"]);
}
