//! README's tour: every block of commands is run as printed, in the order of the text, and its
//! output is compared. The example of a box is served as it is, too.
//!
//! The commands run in one shell as root, in a directory, a network and a `/run` of their own.
//! `ebof serve` runs in the background, as in another terminal, until the next one. In output,
//! `...` stands for any lines; identifiers, device numbers and other values that differ from run to
//! run are compared by their form (see [`normalized`]). A block device in a command is replaced by
//! the one that was printed here.
//!
//! With `EBOF_TOUR_PICTURE=FILE` the first commands and their output become the picture of a
//! terminal in README (`scripts/tour-picture.sh`).

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::picture;

/// The time limit for the start of a target.
const LONG: Duration = Duration::from_secs(60);

/// The line that marks the end of a command's output.
const END: &str = "--- end of the output, status ";

/// Prefixes of the names of block devices.
const DEVICES: [&str; 2] = ["/dev/loop", "/dev/ublkb"];

/// A command of the tour, and its expected output.
#[derive(Debug)]
struct Step {
    /// Line of README, from 1.
    line: usize,
    command: String,
    expected: Vec<String>,
}

/// Whether a command continues in the next line: by a backslash, or because its here-document has
/// not ended.
fn continues(command: &str) -> bool {
    command.ends_with('\\') || (command.contains("<<END") && !command.ends_with("\nEND"))
}

/// The steps of all `console` blocks.
fn steps(readme: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    let mut console = false;
    for (number, line) in readme.lines().enumerate() {
        if line.starts_with("```") {
            inside = !inside;
            console = inside && line == "```console";
        } else if !console {
            continue;
        } else if let Some(step) = steps.last_mut().filter(|step| continues(&step.command)) {
            step.command.push('\n');
            step.command.push_str(line);
        } else if let Some(command) = line.strip_prefix("# ").or_else(|| line.strip_prefix("$ ")) {
            steps.push(Step { line: number + 1, command: command.to_owned(), expected: Vec::new() });
        } else {
            steps.last_mut().expect("a block begins with a command").expected.push(line.to_owned());
        }
    }
    // An empty line before the next command is not output.
    for step in &mut steps {
        while step.expected.last().is_some_and(String::is_empty) {
            step.expected.pop();
        }
    }
    steps
}

/// The names of block devices in these lines.
fn devices(lines: &[String]) -> Vec<String> {
    let words = lines.iter().flat_map(|line| line.split(|c: char| c.is_whitespace() || ",;:()'".contains(c)));
    words.filter(|word| DEVICES.iter().any(|start| word.starts_with(start))).map(str::to_owned).collect()
}

/// The command with the devices of this machine instead of those in README. A device that was not
/// printed before belongs to something else, and such a command is not run.
fn with_devices(command: &str, known: &HashMap<String, String>) -> String {
    let mut command = command.to_owned();
    for device in devices(&[command.clone()]) {
        let here = known.get(&device).unwrap_or_else(|| panic!("{command}: {device} was not printed before"));
        command = command.replace(&device, here);
    }
    command
}

/// A line without values that differ from run to run: UUIDs, device numbers, long numbers.
fn normalized(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line.trim_end();
    while let Some(first) = rest.chars().next() {
        let word = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_hexdigit() || c == '-').len();
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if word == 36 && rest[..word].matches('-').count() == 4 {
            out.push_str("UUID");
            rest = &rest[word..];
        } else if digits >= 10 {
            out.push_str("NUMBER");
            rest = &rest[digits..];
        } else if let Some(after) = DEVICES.iter().find_map(|start| rest.strip_prefix(start)) {
            out.push_str("/dev/DEVICE");
            rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
        } else {
            // A whole word of letters and digits: digits within it are not separate numbers.
            let length = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len()).max(first.len_utf8());
            out.push_str(&rest[..length]);
            rest = &rest[length..];
        }
    }
    // The columns of a table are as wide as their cells.
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether `actual` matches `expected`, where `...` stands for any lines.
fn matches(expected: &[String], actual: &[String]) -> bool {
    match expected.split_first() {
        None => actual.is_empty(),
        Some((any, rest)) if any == "..." => (0..=actual.len()).any(|skipped| matches(rest, &actual[skipped..])),
        Some((first, rest)) => actual
            .split_first()
            .is_some_and(|(line, others)| normalized(first) == normalized(line) && matches(rest, others)),
    }
}

/// The shell that runs the tour.
struct Shell {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    directory: PathBuf,
    servers: usize,
}

impl Shell {
    /// `None` if this machine does not permit it.
    fn start(directory: &Path, programs: &Path) -> Option<Self> {
        let set_up =
            "ip link set lo up && mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /var/lib && exec bash --norc";
        let path = format!("{}:{}:/usr/sbin:/sbin", programs.display(), std::env::var("PATH").unwrap_or_default());
        let mut process = Command::new("unshare")
            .args(["--net", "--mount", "--propagation", "private", "sh", "-c", set_up])
            .current_dir(directory)
            .env("PATH", path)
            .env_remove("EBOF_RUNTIME_DIR")
            .env_remove("EBOF_LOG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut shell = Self { process, input, output, directory: directory.to_owned(), servers: 0 };
        // In a mount namespace of its own, so its mounts end with it.
        let (lines, _) = shell.run("exec 2>&1; echo ready")?;
        (lines == ["ready"]).then_some(shell)
    }

    /// Runs a command: its output and its status; `None` if the shell has ended.
    fn run(&mut self, command: &str) -> Option<(Vec<String>, String)> {
        writeln!(self.input, "{{ {command}\n}} </dev/null\necho \"\n{END}$?\"").ok()?;
        let mut lines: Vec<String> = Vec::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end_matches('\n');
            if let Some(status) = line.strip_prefix(END) {
                // The empty line before the marker, and those that README does not show.
                while lines.last().is_some_and(String::is_empty) {
                    lines.pop();
                }
                return Some((lines, status.to_owned()));
            }
            lines.push(line.to_owned());
        }
    }

    /// Serves in the background, instead of the previous target; waits until it has printed
    /// `expected`.
    fn serve(&mut self, step: &Step) -> Vec<String> {
        let log = format!("server{}.log", self.servers);
        self.servers += 1;
        self.run("if [ -n \"$server\" ]; then kill $server; wait $server; fi").unwrap();
        self.run(&format!("{} >{log} 2>/dev/null & server=$!", step.command)).unwrap();
        let end = Instant::now() + LONG;
        loop {
            let printed = fs::read_to_string(self.directory.join(&log)).unwrap_or_default();
            let lines: Vec<String> = printed.lines().map(str::to_owned).collect();
            if matches(&step.expected, &lines) || Instant::now() > end {
                return lines;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ended = self.run("umount mnt; ebof disconnect-all --force; kill $server; wait");
        let _ended = self.process.kill();
        let _ended = self.process.wait();
    }
}

/// Why the tour cannot be run here.
fn obstacle() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("the tour needs root");
    }
    let missing = ["/dev/fuse", "/dev/loop-control"].iter().any(|path| !Path::new(path).exists());
    if missing && !Path::new("/dev/ublk-control").exists() {
        return Some("the tour needs block devices: /dev/ublk-control, or /dev/fuse and /dev/loop-control");
    }
    for program in ["unshare", "flock", "ip", "mkfs.ext4"] {
        let found =
            Command::new("sh").args(["-c", &format!("PATH=$PATH:/usr/sbin:/sbin command -v {program}")]).output();
        if !found.is_ok_and(|output| output.status.success()) {
            return Some("the tour needs unshare, flock, ip and mkfs.ext4");
        }
    }
    None
}

// @test output.readme
#[test]
fn the_tour_of_the_readme_prints_what_it_says() {
    if let Some(obstacle) = obstacle() {
        println!("SKIPPED: {obstacle}");
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let steps = steps(&fs::read_to_string(root.join("README.md")).unwrap());
    assert!(steps.len() > 15, "the tour is {} commands long", steps.len());
    let directory = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_ebof"));
    let Some(mut shell) = Shell::start(directory.path(), program.parent().unwrap()) else {
        println!("SKIPPED: no namespaces of our own can be had here");
        return;
    };
    let mut screen = Vec::new();
    let mut known = HashMap::new();
    let mut wrong = Vec::new();
    for step in &steps {
        let Step { line, expected, .. } = step;
        let command = with_devices(&step.command, &known);
        let (lines, status) = if command.starts_with("ebof serve") {
            (shell.serve(step), "0".to_owned())
        } else {
            shell.run(&command).unwrap_or_else(|| panic!("README.md:{line}: {command}: the shell is gone"))
        };
        let fails = expected.iter().any(|line| line.contains("error: "));
        if !matches(expected, &lines) || (status != "0") != fails {
            let said = expected.join("\n");
            let printed = lines.join("\n");
            wrong.push(format!("README.md:{line}: {command}\nsays:\n{said}\nprinted (status {status}):\n{printed}\n"));
        }
        let shown = devices(expected);
        let here = devices(&lines);
        if shown.len() == here.len() {
            known.extend(shown.into_iter().zip(here));
        }
        screen.push((command, lines));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    if let Some(file) = std::env::var_os("EBOF_TOUR_PICTURE") {
        fs::write(file, picture::svg(&screen)).unwrap();
    }
}

/// A network of its own, so that the example's ports are free.
#[test]
fn the_example_of_a_box_is_served_as_it_is() {
    if let Some(obstacle) = obstacle() {
        println!("SKIPPED: {obstacle}");
        return;
    }
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/box.toml");
    let directory = tempfile::tempdir().unwrap();
    fs::copy(example, directory.path().join("box.toml")).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_ebof"));
    let Some(mut shell) = Shell::start(directory.path(), program.parent().unwrap()) else {
        println!("SKIPPED: no namespaces of our own can be had here");
        return;
    };
    let expected = ["...", "listening on tcp://127.0.0.1:4420", "..."].map(str::to_owned).to_vec();
    let serve = Step { line: 0, command: "ebof serve --config box.toml".into(), expected };
    let printed = shell.serve(&serve);
    assert!(matches(&serve.expected, &printed), "{}", printed.join("\n"));
    // The commands of operations.md that need no host.
    let steps = [
        "ebof create-ns nvme+tcp://127.0.0.1:4420/nqn.2014-08.org.example:box:d3 -S 100G --hostnqn nqn.2014-08.org.example:admin",
        "ebof target map d3/ns1 --vf d3/vf2",
        "ebof target assign d3/vf2 --port fabric0",
        "ebof id-ctrl nvme+tcp://127.0.0.1:4420/nqn.2014-08.org.example:box:d3:vf2 --hostnqn nqn.2014-08.org.example:tenant",
        "ebof target move d3/vf2 --to fabric1",
        "ebof target show",
    ];
    let operations =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md")).unwrap();
    for command in steps {
        let (lines, status) = shell.run(command).unwrap_or_else(|| panic!("{command}: the shell is gone"));
        assert_eq!(status, "0", "{command}:\n{}", lines.join("\n"));
        assert!(
            command.contains("id-ctrl") || operations.contains(&format!("$ {command}\n")),
            "{command} is not in operations.md"
        );
    }
}

// @test output.readme
#[test]
fn the_picture_of_the_terminal_shows_the_first_commands() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let steps = steps(&fs::read_to_string(root.join("README.md")).unwrap());
    let svg = fs::read_to_string(root.join("docs/tour.svg")).unwrap();
    let first = steps.iter().take(picture::shown_commands());
    let expected: Vec<_> = first.map(|step| normalized(&picture::shown(&step.command))).collect();
    let shown: Vec<_> = picture::commands(&svg).iter().map(|command| normalized(command)).collect();
    assert_eq!(shown, expected, "scripts/tour-picture.sh makes the picture anew");
}

#[test]
fn blocks_are_parsed_into_commands_and_output() {
    let text = "# no\n```console\n# a \\\n    b\none\n\n...\n$ c\n```\n# no\n```toml\n# no\n```\n\
                ```console\n$ cat >d <<END\n# e\nEND\nf\n\n```\n";
    let steps = steps(text);
    assert_eq!(steps.len(), 3);
    assert_eq!((steps[0].line, steps[0].command.as_str()), (3, "a \\\n    b"));
    assert_eq!(steps[0].expected, ["one", "", "..."]);
    assert_eq!((steps[1].command.as_str(), steps[1].expected.len()), ("c", 0));
    assert_eq!((steps[2].command.as_str(), &steps[2].expected[..]), ("cat >d <<END\n# e\nEND", &["f".to_owned()][..]));
}

#[test]
fn variable_output_is_compared_by_its_form() {
    let same = [
        ("counter 1795303050040", "counter 1795303050041"),
        ("uuid:0a057e8e-5200-8d76-b261-cb099f447d93 x", "uuid:1b057e8e-5200-8d76-b261-cb099f447d94 x"),
        ("nvme0n1: /dev/loop0 (1.07 GB)", "nvme0n1: /dev/ublkb13 (1.07 GB)"),
        ("a   b", "a b "),
    ];
    for (one, other) in same {
        assert_eq!(normalized(one), normalized(other));
    }
    for (one, other) in [("sn : 12", "sn : 13"), ("a", "b"), ("EBOFF7F8258C2BD15288", "EBOFF7F8258C2BD15289")] {
        assert_ne!(normalized(one), normalized(other));
    }
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(matches(&lines("a\n...\nd"), &lines("a\nb\nc\nd")));
    assert!(!matches(&lines("a\n...\nd"), &lines("a\nb")));
    assert!(!matches(&lines("a"), &lines("a\nb")));
}
