//! The program is started again over Redfish, listens elsewhere, and one of its addresses is
//! missing: hosts and the other addresses go on.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use ebof_initiator::{Controller, Options};
use ebof_nvme::{Nqn, Nsid};
use serde_json::{Value, json};

use crate::program::ebof;

const NQN: &str = "nqn.2014-08.org.example:disks";
const MANAGER: &str = "/redfish/v1/Managers/ebof";
const PASSWORD: &str = "correct horse battery";

/// A target that goes by its state directory. It ends with the test.
struct Served {
    child: Child,
    /// Held open: a later start writes there, too.
    _stdout: BufReader<ChildStdout>,
    started: Value,
    http: u16,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port where nobody listens now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn serve(directory: &Path, target: &str) -> Served {
    let (port, http) = (free_port(), free_port());
    let text = format!(
        "[target]\nhttp = \"127.0.0.1:{http}\"\n{target}[[ports]]\nname = \"a\"\nlisten = \"tcp://127.0.0.1:{port}\"\n\
         [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\nnamespaces = [\"disk.img:1Mi\"]\n"
    );
    std::fs::write(directory.join("a.toml"), text).unwrap();
    let mut command = ebof(directory);
    command.args(["serve", "--import", "a.toml", "--state", "state", "-o", "json", "--control", "control.sock"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let started: Value = serde_json::from_str(&line).unwrap();
    let first = std::fs::read_to_string(started["initial_password"].as_str().unwrap()).unwrap();
    let served = Served { child, _stdout: stdout, started, http };
    let body = json!({ "Password": PASSWORD });
    let first = first.lines().last().unwrap();
    let changed = request(served.http, ("admin", first), "PATCH", "/redfish/v1/AccountService/Accounts/1", &body);
    assert_eq!(changed.map(|(status, _)| status), Some(200));
    served
}

/// One request; `None` if nobody answers.
pub(crate) fn request(
    port: u16,
    (name, password): (&str, &str),
    method: &str,
    path: &str,
    body: &Value,
) -> Option<(u16, Value)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let token = base64(&format!("{name}:{password}"));
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}

fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let bits = chunk.iter().enumerate().fold(0, |bits, (at, byte)| bits | u32::from(*byte) << (16 - 8 * at));
        for at in 0..4 {
            let digit = char::from(DIGITS[(bits >> (18 - 6 * at)) as usize & 63]);
            encoded.push(if at <= chunk.len() { digit } else { '=' });
        }
    }
    encoded
}

impl Served {
    fn ask(&self, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
        request(self.http, ("admin", PASSWORD), method, path, body)
    }

    fn get(&self, path: &str) -> Option<Value> {
        self.ask("GET", path, &Value::Null).filter(|(status, _)| *status == 200).map(|(_, body)| body)
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }
}

/// Waits until something is there.
fn wait<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(Instant::now() < end, "{what}: it took too long");
        std::thread::sleep(Duration::from_millis(20));
    }
}

// @test redfish.restart
#[test]
fn a_restart_over_redfish_costs_hosts_a_reconnect() {
    let directory = tempfile::tempdir().unwrap();
    let served = serve(directory.path(), "");
    let port = served.started["status"]["ports"][0]["address"].as_str().unwrap().rsplit_once(':').unwrap().1;
    let options = Options::new("127.0.0.1", port.parse().unwrap(), Nqn::parse(NQN).unwrap());
    let host = Controller::connect(&options).unwrap();
    let namespace = host.namespace(Nsid(1)).unwrap();
    namespace.write(0, &[7; 512], false).unwrap();
    let (manager, before) = (served.get(MANAGER).unwrap(), served.descriptors());
    let reset = format!("{MANAGER}/Actions/Manager.Reset");
    let body = json!({ "ResetType": "GracefulRestart" });
    let plan = json!({ "Method": "POST", "Target": reset, "Body": body });
    let (_, planned) = served.ask("POST", &format!("{MANAGER}/Actions/Oem/EbofManager.PlanChanges"), &plan).unwrap();
    assert_eq!((&planned["Refused"], planned["Disturbed"].as_array().unwrap().len()), (&json!([]), 1), "{planned}");
    let (status, answer) = served.ask("POST", &reset, &body).unwrap();
    assert_eq!(status, 204, "{answer}");
    let last = |manager: &Value| manager["LastResetTime"].clone();
    let after = wait("the next start", || served.get(MANAGER).filter(|now| last(now) != last(&manager)));
    assert_eq!(after["UUID"], manager["UUID"]);
    let mut data = [0; 512];
    wait("the host", || namespace.read(0, &mut data).ok());
    assert_eq!(data, [7; 512]);
    // Nothing of the start before is left open.
    assert!(served.descriptors() <= before + 4, "{before}, {}", served.descriptors());
}

// @test redfish.missing-address
#[test]
fn an_address_that_is_missing_does_not_keep_the_other_away() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let https = taken.local_addr().unwrap();
    let served = serve(directory.path(), &format!("https = \"{https}\"\n"));
    assert_eq!(served.started["https"], Value::Null);
    let missing = served.get(MANAGER).unwrap()["Status"]["Conditions"].clone();
    let told = missing[0]["Message"].as_str().unwrap();
    assert!(told.contains(&format!("management https://{https} is missing")) && missing.get(1).is_none(), "{missing}");
    drop(taken);
    let protocol = || served.get(&format!("{MANAGER}/NetworkProtocol"));
    wait("HTTPS", || protocol().filter(|now| now["HTTPS"]["Port"] == https.port()));
    wait("the end of it", || served.get(MANAGER).filter(|now| now["Status"]["Conditions"].is_null()));
}

// @test redfish.listen
#[test]
fn management_moves_to_another_address_while_it_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let served = serve(directory.path(), "");
    let (uri, port) = (format!("{MANAGER}/NetworkProtocol"), free_port());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = taken.local_addr().unwrap().port();
    let (status, refused) = served.ask("PATCH", &uri, &json!({ "HTTP": { "Port": there } })).unwrap();
    assert!((400..500).contains(&status) && refused.to_string().contains("listening on http://"), "{refused}");
    let (status, moved) = served.ask("PATCH", &uri, &json!({ "HTTP": { "Port": port } })).unwrap();
    assert_eq!((status, &moved["HTTP"]["Port"]), (200, &json!(port)), "{moved}");
    assert!(TcpStream::connect(("127.0.0.1", served.http)).is_err(), "nobody is where it was");
    let (status, now) = request(port, ("admin", PASSWORD), "GET", &uri, &Value::Null).unwrap();
    assert_eq!((status, &now["HTTP"]["Port"]), (200, &json!(port)));
    let configuration = format!("{MANAGER}/Oem/Ebof/Configuration");
    let (_, now) = request(port, ("admin", PASSWORD), "GET", &configuration, &Value::Null).unwrap();
    assert!(now["TOML"].as_str().unwrap().contains(&format!("127.0.0.1:{port}")), "{now}");
}
