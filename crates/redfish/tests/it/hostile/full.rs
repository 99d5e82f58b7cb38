//! A state directory without room: what cannot be stored is not changed, and said so.

use super::known::KNOWN;
use super::populated::Populated;
use super::{addresses, endpoints};

#[test]
fn what_cannot_be_stored_is_not_changed() {
    let mut failed = Vec::new();
    for known in KNOWN {
        let box_ = Populated::new();
        let (path, headers, body) = known.request(&endpoints(&box_), &box_.revision());
        let resources = addresses(&box_);
        box_.fill();
        let before = box_.now();
        let answer = box_.admin(known.method, &path, &body, &headers);
        if answer.status < 400 {
            assert_eq!(before.kept(), box_.now().kept(), "{} {path}", known.method);
            continue;
        }
        let (id, _, words) = &answer.messages()[0];
        // Certificates are refused by whoever stores them.
        let expected =
            if path.ends_with("ReplaceCertificate") { (400, "CertificateRefused") } else { (500, "InternalError") };
        assert_eq!((answer.status, id.as_str()), expected, "{} {path}: {}", known.method, answer.body);
        assert!(words.contains("no storage space"), "{words}");
        assert_eq!(before, box_.now(), "{} {path}", known.method);
        for (at, resource) in resources.iter().filter(|(at, _)| at.contains("Service")) {
            let now = box_.admin("GET", at, b"", &[]);
            assert_eq!((now.status == 200).then_some(&now.body), resource.as_ref(), "{} {path}: {at}", known.method);
        }
        failed.push(format!("{} {}", known.method, path.rsplit('/').next().unwrap()));
    }
    failed.sort();
    let expected = [
        "DELETE 1",
        "DELETE 2",
        "DELETE k3",
        "PATCH 1",
        "PATCH 2",
        "PATCH AccountService",
        "PATCH EventService",
        "PATCH SessionService",
        "POST Accounts",
        "POST CertificateService.ReplaceCertificate",
        "POST EventDestination.ResumeSubscription",
        "POST EventDestination.SuspendSubscription",
        "POST NVMeoFSecrets",
        "POST Subscriptions",
    ];
    assert_eq!(failed, expected);
}
