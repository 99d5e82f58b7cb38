//! Keys of hosts over the control socket: status codes, plans and conditions, and bodies that are
//! not understood.

use super::*;

const HOST: &str = "nqn.2014-08.org.example:blade1";
const SECRET: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

fn body(kind: &str, more: &str) -> String {
    format!(r#"{{"host": "{HOST}", "kind": "{kind}", "key": "{SECRET}"{more}}}"#)
}

#[test]
fn keys_are_planned_added_and_removed() {
    let rig = rig(LONG);
    let (status, none) = rig.request("GET", "/v1/keys", "");
    assert_eq!((status, &none["keys"], &none["durable"]), (200, &serde_json::json!([]), &false.into()));
    let (status, planned) = rig.request("POST", "/v1/keys?plan=1", &body("dhchap", ""));
    assert_eq!((status, &planned["added"]["id"]), (200, &"k1".into()), "{planned}");
    assert_eq!(rig.request("GET", "/v1/keys", "").1, none, "a plan changes nothing");
    let condition = |revision: &str| format!("If-Match: \"{revision}\"\r\n");
    let (status, refused) = rig.request_with(&condition("another"), "POST", "/v1/keys", &body("dhchap", ""));
    assert_eq!((status, &refused["mistakes"][0]["kind"]), (412, &"outdated".into()));
    let planned = planned["revision"].as_str().unwrap();
    let (status, added) = rig.request_with(&condition(planned), "POST", "/v1/keys", &body("dhchap", ""));
    assert_eq!((status, &added["added"]["host"]), (201, &HOST.into()), "{added}");
    assert_eq!(rig.request("POST", "/v1/keys", &body("dhchap", "")).0, 409);
    assert_eq!(rig.request("POST", "/v1/keys", &body("dhchap-ctrl", "")).0, 201);
    let (_, all) = rig.request("GET", "/v1/keys", "");
    assert_eq!(all["keys"].as_array().unwrap().len(), 2);
    assert!(!all.to_string().contains("AAEC") && !added.to_string().contains("AAEC"));
    assert_eq!(rig.request("DELETE", "/v1/keys/k1,k9", "").0, 404);
    let (status, planned) = rig.request("DELETE", "/v1/keys/k1,k2?plan=1", "");
    assert_eq!((status, planned["removed"].as_array().map(Vec::len)), (200, Some(2)), "{planned}");
    assert_eq!(rig.request("GET", "/v1/keys", "").1, all);
    assert_eq!(rig.request("DELETE", "/v1/keys/k1,k2", "").0, 200);
    assert_eq!(rig.request("GET", "/v1/keys", "").1, none);
}

#[test]
fn what_is_not_understood_is_refused_without_repeating_it() {
    let rig = rig(LONG);
    for (path, body, expected) in [
        ("/v1/keys", String::new(), 400),
        ("/v1/keys", SECRET.to_owned(), 400),
        ("/v1/keys", body("DHHC-1:01:AAEC", ""), 400),
        ("/v1/keys", body("dhchap", r#", "AAEC": 1"#), 400),
        ("/v1/keys?plan=AAEC", body("dhchap", ""), 400),
        ("/v1/keys", body("dhchap", "").replace(HOST, SECRET), 422),
        ("/v1/keys", body("dhchap", "").replace("AAEC", "AAED"), 422),
        ("/v1/keys", body("tls", ""), 422),
    ] {
        let (status, refused) = rig.request("POST", path, &body);
        assert_eq!(status, expected, "{path} {refused}");
        assert!(!refused.to_string().contains("AAE"), "{refused}");
    }
    assert_eq!(rig.request("PUT", "/v1/keys", "").0, 405);
    let (status, refused) = rig.request_with("If-Match: AAEC\r\n", "DELETE", "/v1/keys/k1", "");
    assert!(status == 400 && !refused.to_string().contains("AAEC"), "{refused}");
}
