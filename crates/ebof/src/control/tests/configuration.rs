//! The configuration over the control socket: what is accepted, and each way of being refused.

use std::sync::Barrier;

use ebof_manage::api::{Applied, Configuration, Planned, Source};
use serde_json::json;

use super::*;

const NQN: &str = "nqn.2014-08.org.example:disks";

const PORT: &str = "[[ports]]\nname = \"a\"\nlisten = \"tcp://127.0.0.1:0\"\n";

fn text(namespaces: &str) -> String {
    format!(
        "{PORT}[[subsystems]]\nnqn = \"nqn.2014-08.org.example:disks\"\nallow_any_host = true\nnamespaces = [{namespaces}]\n"
    )
}

/// A target that was started with a file.
struct Filed {
    rig: Rig,
    file: PathBuf,
}

fn filed() -> Filed {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ebof.toml");
    std::fs::write(&file, text("\"mem:1Mi\"")).unwrap();
    let config = crate::reload::read(&file, ebof_cli::Kind::Regular).unwrap().config;
    let settings = ebof_server::Settings { threads: Some(1), pin: false, ..Settings::default() };
    let target = Arc::new(Target::start(config, settings).unwrap());
    let reloads = reloads(Some(file.clone()), &target);
    let control =
        serve_at(&directory.path().join("control.sock"), Managed::new(&target, &reloads, None), LONG).unwrap();
    Filed { rig: Rig { control, _directory: directory }, file }
}

impl Filed {
    fn configuration(&self) -> Configuration {
        let (status, configuration) = self.rig.get("/v1/configuration");
        assert_eq!(status, 200, "{configuration}");
        serde_json::from_value(configuration).unwrap()
    }

    fn plan(&self, toml: &str) -> Planned {
        let body = json!({ "toml": toml }).to_string();
        let (status, planned) = self.rig.request("POST", "/v1/configuration/plan", &body);
        assert_eq!(status, 200, "{planned}");
        serde_json::from_value(planned).unwrap()
    }

    fn put(&self, revision: &str, toml: &str) -> (u16, Value) {
        let lines = format!("If-Match: \"{revision}\"\r\n");
        self.rig.request_with(&lines, "PUT", "/v1/configuration", &json!({ "toml": toml }).to_string())
    }

    fn reload(&self, text: &str) -> (u16, Value) {
        std::fs::write(&self.file, text).unwrap();
        self.rig.request("POST", "/v1/reload", "")
    }
}

fn message(answer: &Value) -> &str {
    answer["mistakes"][0]["message"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn a_configuration_is_planned_applied_and_exported() {
    let filed = filed();
    let before = filed.configuration();
    let Source::File { path, differs, problem } = &before.source else { panic!("{before:?}") };
    assert_eq!((Path::new(path), differs, problem), (filed.file.as_path(), &Some(false), &None));
    // What is exported changes nothing.
    assert_eq!(filed.plan(&before.toml).plan, []);
    let desired = text("\"mem:1Mi\", \"mem:2Mi\"");
    let planned = filed.plan(&desired);
    assert_eq!(planned.revision, before.revision);
    assert_eq!(planned.plan.len(), 1);
    assert_eq!(filed.configuration(), before, "a plan changes nothing");

    let (status, applied) = filed.put(before.revision.as_str(), &desired);
    assert_eq!(status, 200, "{applied}");
    let applied: Applied = serde_json::from_value(applied).unwrap();
    assert_eq!(applied.plan, planned.plan);
    let after = filed.configuration();
    assert_eq!((&after.revision, &after.source), (&applied.revision, &applied.source));
    assert!(matches!(after.source, Source::File { differs: Some(true), .. }), "{after:?}");
    assert_ne!(after.revision, before.revision);
    assert!(after.toml.contains("mem:2Mi"), "{}", after.toml);

    // The file says something else: a reload brings it back.
    let (status, reloaded) = filed.rig.request("POST", "/v1/reload", "");
    assert_eq!(status, 200, "{reloaded}");
    assert_eq!(reloaded["plan"][0]["text"], "remove namespace 2 of nqn.2014-08.org.example:disks");
    assert_eq!(reloaded["revision"], before.revision.as_str());
}

// @test data.planned-revision
#[test]
fn an_outdated_plan_is_refused() {
    let filed = filed();
    let first = filed.configuration().revision;
    let (status, applied) = filed.put(first.as_str(), &text("\"mem:1Mi\", \"mem:2Mi\""));
    assert_eq!(status, 200, "{applied}");
    let now = filed.configuration();
    let (status, refused) = filed.put(first.as_str(), &text("\"mem:1Mi\", \"mem:3Mi\""));
    assert_eq!((status, refused["mistakes"][0]["kind"].as_str()), (412, Some("outdated")), "{refused}");
    assert!(
        message(&refused).contains(first.as_str()) && message(&refused).contains(now.revision.as_str()),
        "{refused}"
    );
    assert!(refused["mistakes"][0]["advice"].as_str().unwrap().contains("look at the plan again"), "{refused}");
    // That it is outdated is told first.
    assert_eq!(filed.put(first.as_str(), PORT).0, 412);
    assert_eq!(filed.configuration(), now);
}

#[test]
fn requests_that_are_no_configuration_are_refused() {
    let filed = filed();
    let before = filed.configuration();
    let revision = format!("If-Match: \"{}\"\r\n", before.revision);
    let good = json!({ "toml": text("\"mem:1Mi\"") }).to_string();
    let relative = json!({ "toml": text("\"a.img:1Mi\"") }).to_string();
    let long = json!({ "toml": "#".repeat((1 << 20) + 1) }).to_string();
    let beyond = json!({ "toml": "#".repeat(3 << 20) }).to_string();
    let both = json!({ "toml": "", "json": "{}" }).to_string();
    let base = json!({ "toml": text("\"a.img:1Mi\""), "base": "etc" }).to_string();
    let silent = json!({ "toml": PORT }).to_string();
    let threads = json!({ "toml": format!("[target]\nthreads = 7\n{}", text("\"mem:1Mi\"")) }).to_string();
    let missing = json!({ "toml": text("\"mem:1Mi\", \"/nonexistent/a.img\"") }).to_string();
    let name = json!({ "toml": "", "name": "a\nb" }).to_string();
    for (lines, body, expected, told) in [
        ("", good.as_str(), 428, "If-Match"),
        ("If-Match: 7\r\n", good.as_str(), 400, "If-Match"),
        ("If-Match: *\r\n", good.as_str(), 400, "If-Match"),
        ("If-Match: W/\"a\"\r\n", good.as_str(), 400, "If-Match"),
        ("If-Match: \"a\", \"b\"\r\n", good.as_str(), 400, "If-Match"),
        ("If-Match: \"a\"\r\nIf-Match: \"b\"\r\n", good.as_str(), 400, "If-Match"),
        (&revision, "", 400, "not understood"),
        (&revision, "{}", 400, "not one text"),
        (&revision, "{\"toml\": \"\", \"force\": true}", 400, "force"),
        (&revision, &both, 400, "not one text"),
        (&revision, &base, 400, "no absolute path"),
        (&revision, &name, 400, "too long"),
        (&revision, &relative, 422, "relative paths"),
        (&revision, &long, 413, "1048577 bytes"),
        (&revision, &beyond, 413, ""),
        (&revision, &silent, 422, "it says nothing of subsystems"),
        (&revision, &threads, 422, "only a new start can"),
        (&revision, &missing, 409, "/nonexistent/a.img"),
    ] {
        let (status, refused) = filed.rig.request_with(lines, "PUT", "/v1/configuration", body);
        assert_eq!(status, expected, "{lines} {refused}");
        assert!(message(&refused).contains(told), "{told}: {refused}");
        assert_ne!(refused["mistakes"][0]["advice"], "", "{refused}");
    }
    assert_eq!(filed.rig.request("DELETE", "/v1/configuration", "").0, 405);
    assert_eq!(filed.rig.request("GET", "/v1/reload", "").0, 405);
    let (status, refused) = filed.rig.request("POST", "/v1/configuration/plan", &silent);
    assert_eq!((status, message(&refused).contains("nothing of subsystems")), (422, true), "{refused}");
    assert_eq!(filed.configuration(), before);
}

// @test data.planned-revision
#[test]
fn every_mistake_of_a_text_has_its_place() {
    let filed = filed();
    let revision = filed.configuration().revision;
    let body = json!({ "toml": "[[ports]]\nlisten = 7\n[[port]]\n", "name": "/etc/new.toml" }).to_string();
    let lines = format!("If-Match: \"{revision}\"\r\n");
    for (method, path) in [("PUT", "/v1/configuration"), ("POST", "/v1/configuration/plan")] {
        let (status, refused) = filed.rig.request_with(&lines, method, path, &body);
        assert_eq!(status, 422, "{refused}");
        let items = refused["diagnostics"]["items"].as_array().unwrap();
        let places: Vec<_> =
            items.iter().map(|it| (it["line"].as_u64().unwrap(), it["column"].as_u64().unwrap())).collect();
        assert_eq!(places, [(2, 10), (3, 3)], "{refused}");
        assert!(items.iter().all(|it| it["file"] == "/etc/new.toml" && !it["help"].is_null()), "{refused}");
    }
}

#[test]
fn texts_are_toml_or_json_and_paths_begin_at_their_base() {
    let filed = filed();
    let base = filed.file.parent().unwrap();
    std::fs::write(base.join("a.img"), [0; 4096]).unwrap();
    let revision = filed.configuration().revision;
    let json = r#"{"ports": [{"name": "a", "listen": "tcp://127.0.0.1:0"}], "subsystems": [{"allow_any_host": true,
        "nqn": "nqn.2014-08.org.example:disks", "namespaces": ["mem:1Mi", "a.img"]}]}"#;
    let body = json!({ "json": json, "base": base }).to_string();
    let lines = format!("If-Match: \"{revision}\"\r\n");
    let (status, applied) = filed.rig.request_with(&lines, "PUT", "/v1/configuration", &body);
    assert_eq!(status, 200, "{applied}");
    let path = base.join("a.img").display().to_string();
    assert!(filed.configuration().toml.contains(&path), "{}", filed.configuration().toml);
}

// @test data.planned-revision
#[test]
fn a_reload_answers_why_it_is_refused() {
    let filed = filed();
    let before = filed.configuration();
    let (status, refused) = filed.reload("[[ports]]\nlisten = 7\n");
    assert_eq!((status, refused["diagnostics"]["items"][0]["line"].as_u64()), (422, Some(2)), "{refused}");
    let (status, refused) = filed.reload(PORT);
    assert_eq!((status, message(&refused).contains("was the file cut short?")), (422, true), "{refused}");
    assert!(matches!(filed.configuration().source, Source::File { differs: Some(true), .. }));
    std::fs::remove_file(&filed.file).unwrap();
    let (status, refused) = filed.rig.request("POST", "/v1/reload", "");
    assert_eq!((status, message(&refused).contains("No such file")), (422, true), "{refused}");
    let without = filed.configuration();
    assert!(matches!(&without.source, Source::File { differs: None, problem: Some(_), .. }), "{without:?}");
    assert_eq!((without.revision, without.toml), (before.revision, before.toml));
    let (status, reloaded) = filed.reload(&text("\"mem:1Mi\", \"mem:2Mi\""));
    assert_eq!((status, reloaded["plan"].as_array().unwrap().len()), (200, 1), "{reloaded}");
}

#[test]
fn a_drive_that_was_applied_is_shown_as_added_until_the_next_reload() {
    let filed = filed();
    let drive = "[[drives]]\nname = \"d1\"\nbacking = \"mem:64Mi\"\n\
                 [[subsystems]]\nnqn = \"nqn.2014-08.org.example:d1\"\nallow_any_host = true\ndrive = \"d1\"\n";
    let desired = text("\"mem:1Mi\"") + drive;
    let (status, applied) = filed.put(filed.configuration().revision.as_str(), &desired);
    assert_eq!(status, 200, "{applied}");
    assert!(filed.rig.inventory().drive("d1").unwrap().added);
    let (status, reloaded) = filed.reload(&desired);
    assert_eq!((status, &reloaded["plan"]), (200, &json!([])), "{reloaded}");
    assert!(!filed.rig.inventory().drive("d1").unwrap().added);
}

#[test]
fn a_target_that_was_started_with_arguments_has_no_file() {
    let rig = rig(LONG);
    assert_eq!(rig.get("/v1/configuration").1["source"], json!({ "kind": "arguments" }));
    let (status, reloaded) = rig.request("POST", "/v1/reload", "");
    assert_eq!((status, &reloaded["plan"]), (200, &json!([])), "{reloaded}");
}

#[test]
fn changes_at_once_are_made_one_after_the_other() {
    let filed = filed();
    let revision = filed.configuration().revision;
    let together = Barrier::new(16);
    std::fs::write(&filed.file, text("\"mem:1Mi\"")).unwrap();
    let codes: Vec<u16> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..16)
            .map(|at| {
                let (filed, revision, together) = (&filed, &revision, &together);
                scope.spawn(move || {
                    together.wait();
                    match at % 2 {
                        0 => filed.put(revision.as_str(), &text(&format!("\"mem:1Mi\", \"mem:{}Mi\"", at + 2))).0,
                        _ => filed.rig.request("POST", "/v1/reload", "").0,
                    }
                })
            })
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(codes.iter().skip(1).step_by(2).all(|&code| code == 200), "reloads: {codes:?}");
    let puts: Vec<u16> = codes.iter().step_by(2).copied().collect();
    assert!(puts.contains(&200) && puts.iter().all(|code| [200, 412].contains(code)), "{puts:?}");
    let (status, _) = filed.rig.request("POST", "/v1/reload", "");
    assert_eq!((status, filed.configuration().revision), (200, revision));
}

// @test redfish.planned-hosts
#[test]
fn a_plan_holds_only_for_the_hosts_that_it_named() {
    let filed = filed();
    let port = filed.rig.get("/v1/status").1["ports"][0]["address"].as_str().unwrap().to_owned();
    let desired = "subsystems = []\n[[ports]]\nname = \"a\"\nlisten = \"tcp://127.0.0.1:0\"\n";
    let planned = filed.plan(desired);
    assert_eq!(planned.disturbed, []);
    let uri = ebof_nvme::uri::Uri::parse(&format!("nvme+tcp://{port}/{NQN}")).unwrap();
    let host = ebof_initiator::Controller::connect(&ebof_initiator::Options::from_uri(&uri)).unwrap();
    let put = |promise: &str| {
        let lines = format!("If-Match: \"{}\"\r\n", planned.revision);
        let body = json!({ "toml": desired, "promise": promise }).to_string();
        filed.rig.request_with(&lines, "PUT", "/v1/configuration", &body)
    };
    let (status, refused) = put(&planned.promise);
    assert_eq!((status, &refused["mistakes"][0]["kind"]), (412, &json!("outdated")), "{refused}");
    assert!(message(&refused).contains("other hosts"), "{refused}");
    assert_eq!(filed.configuration().revision, planned.revision, "nothing was changed");
    let again = filed.plan(desired);
    assert!(!again.disturbed.is_empty());
    let (status, applied) = put(&again.promise);
    assert_eq!(status, 200, "{applied}");
    drop(host);
}
