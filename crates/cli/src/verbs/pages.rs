//! Man pages: one for each verb, from the description of the command line, and those of files and
//! services, from the documents that describe them.

use clap::Command;
use clap_mangen::Man;

use crate::program::Program;
use crate::program::verb::Verb;

mod markdown;

/// A page that no verb has.
pub(crate) struct Document {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its section.
    pub(crate) section: &'static str,
    about: &'static str,
    /// Its text, in Markdown.
    text: &'static str,
    see_also: &'static str,
}

/// The pages that no verb has. `manual` has links to files in `docs`, which become files where the
/// crate is published.
pub(crate) const DOCUMENTS: [Document; 10] = [
    Document {
        name: "ebof.toml",
        section: "5",
        about: "configuration of an ebof target",
        text: include_str!("../../manual/config.md"),
        see_also: "ebof-serve(1), ebof-config(1), ebof.service(8)",
    },
    Document {
        name: "ebof-connections.toml",
        section: "5",
        about: "what ebof connects at boot",
        text: include_str!("../../manual/connections.md"),
        see_also: "ebof-connect(1), ebof-connect-all(1), fstab(5), systemd.mount(5)",
    },
    Document {
        name: "ebof.service",
        section: "8",
        about: "the ebof target as a service",
        text: include_str!("../../manual/service.md"),
        see_also: "ebof-serve(1), ebof-target(1), ebof.toml(5), ebof-connections.toml(5)",
    },
    Document {
        name: "ebof-manual",
        section: "7",
        about: "the command line of ebof",
        text: include_str!("../../manual/cli.md"),
        see_also: "ebof(1), ebof-json(7), ebof-operations(7)",
    },
    Document {
        name: "ebof-json",
        section: "7",
        about: "JSON output of ebof and its management API",
        text: include_str!("../../manual/json.md"),
        see_also: "ebof(1), ebof-manual(7)",
    },
    Document {
        name: "ebof-operations",
        section: "7",
        about: "operation of ebof: changes, the box, failures, metrics",
        text: include_str!("../../manual/operations.md"),
        see_also: "ebof-serve(1), ebof-target(1), ebof.toml(5), ebof-security(7)",
    },
    Document {
        name: "ebof-errors",
        section: "7",
        about: "errors of ebof, and what to do",
        text: include_str!("../../manual/errors.md"),
        see_also: "ebof(1), ebof-operations(7)",
    },
    Document {
        name: "ebof-security",
        section: "7",
        about: "what an ebof target and host defend, and against whom",
        text: include_str!("../../manual/security.md"),
        see_also: "ebof-serve(1), ebof.toml(5), ebof-operations(7)",
    },
    Document {
        name: "ebof-firmware",
        section: "7",
        about: "firmware images of ebof's drives",
        text: include_str!("../../manual/firmware.md"),
        see_also: "ebof-fw-image(1), ebof-fw-download(1), ebof-fw-commit(1)",
    },
    Document {
        name: "ebof-fio",
        section: "7",
        about: "the engine for fio, and jobs",
        text: include_str!("../../manual/fio.md"),
        see_also: "fio(1), ebof-bench(1)",
    },
];

/// What all pages of verbs say.
const EXIT_STATUS: &str = "\
.SH \"EXIT STATUS\"
.TP
0
Success.
.TP
1
The verb failed. Standard error says what was tried, what the answer was and what to do; with
\\fB\\-o json\\fR it is JSON on standard output.
.TP
2
The command line is invalid.
";

const ENVIRONMENT: &str = "\
.SH ENVIRONMENT
.TP
EBOF_LOG
The level of the log on standard error, as in \\fBEBOF_LOG=debug\\fR or
\\fBEBOF_LOG=warn,ebof_initiator=trace\\fR.
.TP
EBOF_RUNTIME_DIR
The runtime directory, with connected devices and the control socket, in place of
\\fI/run/ebof\\fR (root) or \\fI$XDG_RUNTIME_DIR/ebof\\fR; \\fB\\-\\-runtime\\-dir\\fR counts more. Its old name,
EBOF_STATE_DIR, works and warns.
.TP
NO_COLOR
No colours on terminals.
";

const FILES: &str = "\
.SH FILES
.TP
.I /etc/nvme/hostnqn, /etc/nvme/hostid
Who this host is. Without them a name is made from the machine's identity.
.TP
.I /etc/nvme/discovery.conf
Discovery services for \\fBdiscover\\fR and \\fBconnect\\-all\\fR without an address.
.TP
.I /etc/nvme/nvme\\-fabrics.conf, /etc/nvme/nvme\\-fabrics.conf.d
The same, and subsystems, in the form of nvme\\-cli 3.
.TP
.I /etc/nvme/exclusions.conf, /etc/nvme/exclusions.conf.d
What \\fBconnect\\-all\\fR leaves alone.
.TP
.I /etc/ebof/ebof.toml
The configuration of the service, ebof.toml(5).
.TP
.I /etc/ebof/connections.toml
What is connected at boot, ebof\\-connections.toml(5).
.TP
.I /run/ebof/nvmeN
State and log (\\fIholder.log\\fR) of a connected controller.
.TP
.I /run/ebof/tune
What \\fBtune \\-\\-apply\\fR has set since the machine was booted.
";

/// The page of the program itself.
pub(crate) fn main_page(program: &Program) -> std::io::Result<Vec<u8>> {
    let mut command = program.command();
    command.build();
    let mut page = of_command(command, None)?;
    let documents = DOCUMENTS.map(|document| format!("{}({})", document.name, document.section)).join(", ");
    see_also(&mut page, &documents);
    Ok(page)
}

/// The pages of a verb and of what is below it, with their names.
pub(crate) fn of_verb(program: &Program, verb: &Verb) -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut commands = program.command();
    commands.build();
    let mut pages = Vec::new();
    if let Some(command) = commands.find_subcommand(verb.name) {
        let others = program.verbs().filter(|other| other.group == verb.group && other.name != verb.name);
        let others: Vec<String> = std::iter::once("ebof(1)".to_owned())
            .chain(others.map(|other| format!("ebof-{}(1)", other.name)))
            .collect();
        tree(command, Some(verb), &others.join(", "), &mut pages)?;
    }
    Ok(pages)
}

fn tree(
    command: &Command,
    verb: Option<&Verb>,
    others: &str,
    pages: &mut Vec<(String, Vec<u8>)>,
) -> std::io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
        tree(below, None, others, pages)?;
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let mut page = of_command(command.clone(), verb)?;
    see_also(&mut page, others);
    pages.push((name, page));
    Ok(())
}

fn of_command(command: Command, verb: Option<&Verb>) -> std::io::Result<Vec<u8>> {
    let version = format!("ebof {}", env!("CARGO_PKG_VERSION"));
    let has_subcommands = command.has_subcommands();
    let man = Man::new(command).source(version).manual("ebof");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_subcommands {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(verb) = verb {
        let example = markdown::escaped(verb.example);
        page.extend(format!(".SH EXAMPLES\n.nf\n{example}\n.fi\n").bytes());
        page.extend(format!(".PP\nMore is in ebof\\-manual(7), {}.\n", verb.group.section()).bytes());
    }
    for section in [EXIT_STATUS, ENVIRONMENT, FILES] {
        page.extend(section.bytes());
    }
    Ok(page)
}

fn see_also(page: &mut Vec<u8>, others: &str) {
    page.extend(format!(".SH \"SEE ALSO\"\n{}\n", markdown::escaped(others)).bytes());
}

impl Document {
    /// The page.
    pub(crate) fn page(&self) -> Vec<u8> {
        let Self { name, section, about, text, see_also: others } = self;
        let version = env!("CARGO_PKG_VERSION");
        let mut page = format!(
            ".TH {name} {section} \"\" \"ebof {version}\" ebof\n.SH NAME\n{name} \\- {about}\n.SH DESCRIPTION\n{}",
            markdown::to_roff(text)
        )
        .into_bytes();
        see_also(&mut page, others);
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::program_with;

    #[test]
    fn every_verb_has_a_page_with_all_sections() {
        let program = program_with(&[]);
        for verb in program.verbs() {
            let pages = of_verb(&program, verb).unwrap();
            let (name, page) = pages.last().unwrap();
            assert_eq!(*name, format!("ebof-{}", verb.name));
            let page = String::from_utf8(page.clone()).unwrap();
            for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", "\"EXIT STATUS\"", "ENVIRONMENT", "FILES"] {
                assert!(page.contains(&format!(".SH {section}\n")), "{name}: {section}");
            }
            assert!(page.contains("ebof(1)") && page.contains(&markdown::escaped(verb.example)), "{name}");
        }
        let names = |pages: Vec<(String, Vec<u8>)>| pages.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        let target = program.verbs().find(|verb| verb.name == "target").unwrap();
        let names = names(of_verb(&program, target).unwrap());
        assert!(names.contains(&"ebof-target-show".to_owned()), "{names:?}");
    }

    /// Whoever has the program has its manual; the directory of the sources is elsewhere.
    #[test]
    fn help_names_no_file_that_only_the_sources_have() {
        let program = program_with(&[]);
        let mut pending: Vec<Command> = program.verbs().map(Verb::command).chain([program.command()]).collect();
        while let Some(mut command) = pending.pop() {
            let help = command.render_long_help().to_string();
            assert!(!help.contains("docs/"), "{help}");
            pending.extend(command.get_subcommands().cloned());
        }
        for (name, _) in DOCUMENTS.iter().map(|document| (document.name, document.section)) {
            let help = program.command().find_subcommand_mut("man").unwrap().render_long_help().to_string();
            assert!(help.replace(char::is_whitespace, " ").contains(name), "{name} is not in: {help}");
        }
    }

    #[test]
    fn documents_are_pages_without_markdown() {
        for document in &DOCUMENTS {
            let page = String::from_utf8(document.page()).unwrap();
            assert!(page.starts_with(&format!(".TH {}", document.name)));
            for rest in ["\n## ", "\n|", "```", "](", "<!--"] {
                assert!(!page.contains(rest), "{}: {rest:?}", document.name);
            }
        }
        let page = String::from_utf8(DOCUMENTS[0].page()).unwrap();
        assert!(page.contains(".TP\n\\fBmax_connections\\fR\n"), "{page}");
    }
}
