//! Bar charts as SVG, readable on light and on dark pages, with the system's fonts.

use std::fmt::Write as _;

/// What is shown of each thing, in a column of its own.
pub(super) struct Panel<'a> {
    /// With the unit.
    pub(super) title: &'a str,
    /// One for each thing.
    pub(super) values: Vec<f64>,
    /// Digits after the point.
    pub(super) decimals: usize,
}

const NAMES_WIDTH: usize = 240;
const PANEL_WIDTH: usize = 205;
/// Between panels, for the number behind the longest bar, too.
const GAP: usize = 55;
const MARGIN: usize = 16;
const TOP: usize = 78;
const BAR_HEIGHT: usize = 22;
const ROW_HEIGHT: usize = 36;
const BOTTOM: usize = 40;
/// Parts of an axis, at most.
const TICKS_MAX: f64 = 5.0;

const STYLE: &str = "\
.page{fill:#ffffff}.text{fill:#1f2328}.dim{fill:#57606a}.bar{fill:#2f6f9f}.line{stroke:#d0d7de}\
@media(prefers-color-scheme:dark){\
.page{fill:#0d1117}.text{fill:#e6edf3}.dim{fill:#9198a1}.bar{fill:#4493c9}.line{stroke:#3d444d}}";

/// A chart with a row for each of `names`, and a column for each of `panels`.
pub(super) fn bars(title: &str, names: &[&str], panels: &[Panel<'_>]) -> String {
    let width = MARGIN + NAMES_WIDTH + panels.len() * (PANEL_WIDTH + GAP);
    let bottom = TOP + names.len() * ROW_HEIGHT;
    let height = bottom + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<rect class=\"page\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>\n\
         <text class=\"text\" x=\"{MARGIN}\" y=\"28\" font-size=\"15\" font-weight=\"600\">{title}</text>\n",
        title = escaped(title),
    );
    for (row, name) in names.iter().enumerate() {
        let y = middle(row);
        let _ = writeln!(svg, "<text class=\"text\" x=\"{MARGIN}\" y=\"{y}\">{}</text>", escaped(name));
    }
    for (column, panel) in panels.iter().enumerate() {
        let left = MARGIN + NAMES_WIDTH + column * (PANEL_WIDTH + GAP);
        draw(&mut svg, panel, left, bottom);
    }
    svg + "</svg>\n"
}

/// The base line of a row's text.
fn middle(row: usize) -> usize {
    TOP + row * ROW_HEIGHT + BAR_HEIGHT / 2 + 5
}

/// The axis, and the bars with their numbers.
fn draw(svg: &mut String, panel: &Panel<'_>, left: usize, bottom: usize) {
    let most = panel.values.iter().copied().fold(0.0, f64::max);
    let step = step(most);
    let top = step * (most / step).ceil().max(1.0);
    let x = |value: f64| float(left) + value / top * float(PANEL_WIDTH);
    let _ = writeln!(svg, "<text class=\"text\" x=\"{left}\" y=\"58\">{}</text>", escaped(panel.title));
    let mut tick = 0.0;
    while tick <= top * 1.001 {
        let at = x(tick);
        let _ = writeln!(
            svg,
            "<line class=\"line\" x1=\"{at:.1}\" y1=\"{}\" x2=\"{at:.1}\" y2=\"{bottom}\"/>\
             <text class=\"dim\" x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            TOP - 8,
            bottom + 18,
            plain(tick),
        );
        tick += step;
    }
    for (row, &value) in panel.values.iter().enumerate() {
        let y = TOP + row * ROW_HEIGHT;
        let bar = x(value) - float(left);
        let _ = writeln!(
            svg,
            "<rect class=\"bar\" x=\"{left}\" y=\"{y}\" width=\"{bar:.1}\" height=\"{BAR_HEIGHT}\"/>\
             <text class=\"text\" x=\"{:.1}\" y=\"{}\">{value:.*}</text>",
            x(value) + 5.0,
            middle(row),
            panel.decimals,
        );
    }
}

/// Between two ticks of an axis up to `most`: 1, 2 or 5 of a power of ten.
fn step(most: f64) -> f64 {
    if most <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf((most / TICKS_MAX).log10().floor());
    let wide_enough = |&step: &f64| most / step <= TICKS_MAX;
    [1.0, 2.0, 5.0].map(|factor| factor * power).into_iter().find(wide_enough).unwrap_or(10.0 * power)
}

/// Without zeros behind the point.
fn plain(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[expect(clippy::cast_precision_loss, reason = "coordinates are small")]
fn float(value: usize) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!([0.7, 5.0, 41.6, 126.0, 9500.0].map(step), [0.2, 1.0, 10.0, 50.0, 2000.0]);
        assert_eq!([0.2, 10.0, 0.0, 2000.0].map(plain), ["0.2", "10", "0", "2000"]);
        assert_eq!(step(0.0), 1.0);
    }

    #[test]
    fn the_longest_bar_is_within_its_panel_and_every_bar_has_its_number() {
        let panel = Panel { title: "a < b", values: vec![0.0, 7.25, 3.5], decimals: 2 };
        let svg = bars("x & y", &["one", "two", "three"], &[panel]);
        for part in ["x &amp; y", "a &lt; b", ">7.25</text>", ">0.00</text>", ">three</text>"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        let widths = svg.lines().filter(|line| line.contains("class=\"bar\""));
        let width =
            |line: &str| -> f64 { line.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap() };
        let widths: Vec<f64> = widths.map(width).collect();
        assert_eq!(widths.len(), 3);
        assert!(widths.iter().all(|&width| width <= float(PANEL_WIDTH)), "{widths:?}");
        assert!((widths[1] / widths[2] - 7.25 / 3.5).abs() < 0.01 && widths[0] == 0.0, "{widths:?}");
    }
}
