//! A picture of a terminal: commands and their output, as SVG.

use std::fmt::Write as _;

/// Tenths of a pixel that a character is wide, and pixels that a line is high.
const COLUMN_TENTHS: usize = 78;
const LINE: usize = 17;
const MARGIN: usize = 16;
/// Longer lines are truncated.
const COLUMNS: usize = 112;
/// The most lines of output that are shown for a command.
const LINES_MAX: usize = 9;
/// The number of commands that are shown.
const COMMANDS_MAX: usize = 5;
/// A command and its output.
const TYPED: &str = "#7ee787";
const PRINTED: &str = "#c9d1d9";

/// The first commands, each with the beginning of its output.
pub(crate) fn svg(screen: &[(String, Vec<String>)]) -> String {
    let mut lines: Vec<(&str, String)> = Vec::new();
    for (command, printed) in screen.iter().take(COMMANDS_MAX) {
        lines.push((TYPED, format!("# {command}")));
        lines.extend(printed.iter().take(LINES_MAX).map(|line| (PRINTED, line.clone())));
        if printed.len() > LINES_MAX {
            lines.push((PRINTED, "...".to_owned()));
        }
        lines.push((PRINTED, String::new()));
    }
    lines.pop();
    let width = COLUMNS * COLUMN_TENTHS / 10 + 2 * MARGIN;
    let height = lines.len() * LINE + 2 * MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"13\">\n\
         <title>A terminal: ebof serves a file and attaches it as a block device</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#161b22\"/>\n"
    );
    for (index, (colour, line)) in lines.iter().enumerate().filter(|(_, (_, line))| !line.is_empty()) {
        let y = MARGIN + index * LINE + 13;
        let text: String = line.chars().take(COLUMNS).collect();
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _infallible =
            writeln!(out, "<text x=\"{MARGIN}\" y=\"{y}\" fill=\"{colour}\" xml:space=\"preserve\">{text}</text>");
    }
    out.push_str("</svg>\n");
    out
}

/// The commands that such a picture shows, truncated to a line.
pub(crate) fn commands(svg: &str) -> Vec<String> {
    let typed = svg.lines().filter(|line| line.contains(TYPED));
    let texts = typed.filter_map(|line| line.split_once("\"preserve\">")?.1.strip_suffix("</text>"));
    texts
        .map(|text| text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
        .map(|text| text.trim_start_matches("# ").to_owned())
        .collect()
}

/// How a picture shows this command.
pub(crate) fn shown(command: &str) -> String {
    command.chars().take(COLUMNS - "# ".len()).collect()
}

/// How many commands a picture shows.
pub(crate) fn shown_commands() -> usize {
    COMMANDS_MAX
}
