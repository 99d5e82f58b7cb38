//! A real Prometheus reads a running target: every query of the dashboard has data, and every alert
//! is understood.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::ebof;
use crate::serving::Serving;

const BOX: &str = r#"
[target]
control = "control.sock"
metrics = "127.0.0.1:0"
[[ports]]
name = "fabric0"
listen = "tcp://127.0.0.1:0"
[[drives]]
name = "d0"
backing = "mem:256Mi"
functions = 2
[[subsystems]]
nqn = "nqn.2014-08.org.example:box:d0"
allow_any_host = true
ports = ["fabric0"]
drive = "d0"
"#;

const NQN: &str = "nqn.2014-08.org.example:box:d0";

fn monitoring(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../monitoring").join(file)
}

/// A process that is killed at the end.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

/// A target with a drive that has two functions.
pub(crate) fn start(directory: &Path) -> Serving {
    let config = directory.join("box.toml");
    std::fs::write(&config, BOX).unwrap();
    let mut command = ebof(directory);
    command.args(["serve", "-o", "json", "--config"]).arg(config);
    Serving::start(command, directory)
}

/// A Prometheus that reads the target's metrics each second, and evaluates the alerts.
fn prometheus(metrics: &str, directory: &Path) -> (Running, SocketAddr) {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{}]\nscrape_configs:\n  \
         - job_name: ebof\n    static_configs: [{{targets: [\"{metrics}\"]}}]\n",
        monitoring("prometheus/alerts.yml").display()
    );
    let file = directory.join("prometheus.yml");
    std::fs::write(&file, config).unwrap();
    let log = std::fs::File::create(directory.join("prometheus.log")).unwrap();
    let child = Command::new("prometheus")
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
        .arg(format!("--web.listen-address={address}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    (Running(child), address)
}

/// The answer of Prometheus' API; `None` while it does not answer.
fn ask(address: SocketAddr, path: &str) -> Option<Value> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

fn escaped(query: &str) -> String {
    query.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// What keeps a query from having data.
fn trouble(address: SocketAddr, query: &str) -> Option<String> {
    let Some(answer) = ask(address, &format!("/api/v1/query?query={}", escaped(query))) else {
        return Some("no answer".to_owned());
    };
    if answer["status"] != "success" {
        return Some(answer.to_string());
    }
    let series = answer["data"]["result"].as_array().cloned().unwrap_or_default();
    // A quantile of a histogram without its last bucket is there, and is no number.
    let numbers = series.iter().filter_map(|one| one["value"][1].as_str()?.parse::<f64>().ok());
    (!numbers.into_iter().any(f64::is_finite)).then(|| format!("no number: {answer}"))
}

fn until(what: &str, mut trouble: impl FnMut() -> Option<String>) {
    let end = Instant::now() + Duration::from_secs(60);
    while let Some(trouble) = trouble() {
        assert!(Instant::now() < end, "{what}: {trouble}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The queries of the dashboard, with its variables filled in.
fn queries() -> Vec<String> {
    let text = std::fs::read_to_string(monitoring("grafana/ebof.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries: Vec<String> = targets
        .map(|target| target["expr"].as_str().unwrap().replace("$__rate_interval", "5s").replace("$instance", ".*"))
        .collect();
    assert!(queries.len() > 30 && queries.iter().all(|query| !query.contains('$')), "{queries:?}");
    queries
}

#[test]
fn prometheus_has_data_for_the_dashboard_and_understands_the_alerts() {
    if Command::new("prometheus").arg("--version").output().is_err() {
        println!("SKIPPED: prometheus is not installed");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let target = start(directory.path());
    let metrics = target.started["metrics"].as_str().unwrap();
    let metrics = metrics.trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
    let (_prometheus, address) = prometheus(&metrics, directory.path());
    let uri = format!("nvme+{}/{NQN}", target.started["listening"][0].as_str().unwrap());
    let mut loads = Vec::new();
    for function in ["d0/vf1", "d0/vf2"] {
        let number = function.chars().last().unwrap();
        let created = Command::new(env!("CARGO_BIN_EXE_ebof")).args(["create-ns", &uri, "-S", "32M"]).output().unwrap();
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
        target.told(&["target", "map", &format!("d0/ns{number}"), "--vf", function]);
        target.told(&["target", "assign", function, "--port", "fabric0"]);
        let load = Command::new(env!("CARGO_BIN_EXE_ebof"))
            .args([
                "bench",
                &format!("{uri}:vf{number}/{number}"),
                "--rw",
                "randrw",
                "--runtime",
                "60",
                "--iodepth",
                "2",
            ])
            .args(["--overwrite", "--rate-iops", "500"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        loads.push(Running(load));
    }
    // A drive in memory has no sensor; the metric is there in the tests of ebof-server.
    for query in queries().into_iter().filter(|query| !query.contains("ebof_drive_temperature")) {
        until(&query, || trouble(address, &query));
    }
    until("rules", || {
        let Some(rules) = ask(address, "/api/v1/rules") else { return Some("no answer".to_owned()) };
        let rules = rules["data"]["groups"][0]["rules"].as_array().cloned().unwrap_or_default();
        let is_understood = rules.len() > 10 && rules.iter().all(|rule| rule["health"] == "ok");
        (!is_understood).then(|| format!("{rules:?}"))
    });
}

#[test]
fn the_alerts_do_what_they_are_meant_to() {
    if Command::new("promtool").arg("--version").output().is_err() {
        println!("SKIPPED: promtool is not installed");
        return;
    }
    // Each alert is seen to fire.
    let read = |file: &str| std::fs::read_to_string(monitoring(file)).unwrap();
    let (alerts, tests) = (read("prometheus/alerts.yml"), read("prometheus/alerts_test.yml"));
    for alert in alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let mut of_alert = tests.split("- alertname: ").filter(|test| test.lines().next() == Some(alert));
        assert!(of_alert.any(|test| test.contains("exp_labels")), "{alert} never fires in a test");
    }
    for arguments in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]] {
        let done = Command::new("promtool").args(arguments).current_dir(monitoring("prometheus")).output().unwrap();
        let text = [done.stdout, done.stderr].concat();
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&text));
    }
}
