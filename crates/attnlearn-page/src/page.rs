//! Pages: one file each that needs no network: style sheet, script and drawings are in it. A page is read on a phone as on a wide screen, in light
//! and dark, and on paper. [`RunPage`] is that of one run of a learner; others bring a template of their own ([`render`]).

use crate::plot::{Figure, Inline};
use attnlearn::{Error, Result};
use minijinja::value::Serde;
use minijinja::{Environment, context};
use serde::Serialize;

pub use minijinja::Value;

/// The parts of all pages.
const TEMPLATES: [(&str, &str); 2] =
    [("layout.html", include_str!("page/layout.html")), ("parts.html", include_str!("page/parts.html"))];

/// Colours of all pages: what they are called in the style sheet, on light paper and on dark.
const COLOURS: [(&str, &str, &str); 21] = [
    ("paper", "#ffffff", "#14171a"),
    ("shade", "#f5f6f8", "#1d2125"),
    ("text", "#1c1e21", "#e6e8ea"),
    ("muted", "#55595f", "#a9afb6"),
    ("rule", "#d8dbe0", "#3a4047"),
    ("grid", "#e4e6ea", "#2c3238"),
    ("axis", "#777b80", "#868d95"),
    ("link", "#0b5cad", "#7db8f5"),
    ("good", "#00704f", "#35cfa0"),
    ("bad", "#a83200", "#ff9350"),
    ("pos", "#b2182b", "#ff7a6b"),
    ("neg", "#2166ac", "#6ab0ff"),
    ("seq", "#3b2e8c", "#b9a7ff"),
    ("c0", "#0072b2", "#5ab4f0"),
    ("c1", "#d55e00", "#ff9350"),
    ("c2", "#00815d", "#35cfa0"),
    ("c3", "#c2488f", "#f08fcb"),
    ("c4", "#8a6a00", "#e0c04a"),
    ("c5", "#26307a", "#b9c4ff"),
    ("c6", "#5a5a5a", "#b5b9be"),
    ("c7", "#7a3010", "#d69a78"),
];

/// The part of the style sheet that chooses the colours. Browsers that know no `light-dark()` are in use; paper is always light.
fn colours() -> String {
    let all = |pick: &dyn Fn(&(&str, &'static str, &'static str)) -> &'static str| -> String {
        COLOURS.iter().map(|colour| format!(" --{}: {};", colour.0, pick(colour))).collect()
    };
    let (light, dark) = (all(&|colour| colour.1), all(&|colour| colour.2));
    format!(
        ":root {{ color-scheme: light;{light} }}\n\
         @media screen and (prefers-color-scheme: dark) {{ :root:not([data-theme=\"light\"]) {{ color-scheme: dark;{dark} }} }}\n\
         @media screen {{ :root[data-theme=\"dark\"] {{ color-scheme: dark;{dark} }} }}\n"
    )
}

/// A table for people.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// Heads of columns.
    pub columns: Vec<String>,
    /// Cells, row by row.
    pub rows: Vec<Vec<String>>,
}

/// A figure as the templates have it.
#[derive(Serialize)]
pub struct FigureView {
    id: String,
    title: String,
    caption: String,
    /// Where its file is.
    file: Option<String>,
    #[serde(flatten)]
    drawn: Inline,
}

impl FigureView {
    /// Of an experiment, whose folder has the file, or of none.
    pub fn new(figure: &Figure, of: Option<&str>) -> Self {
        let id = of.map_or_else(|| figure.name.clone(), |of| format!("{of}--{}", figure.name));
        let file = of.map(|of| format!("{of}/{}.svg", figure.name));
        Self { id, title: figure.title.clone(), caption: figure.caption.clone(), file, drawn: figure.inline() }
    }
}

/// A table as the templates have it.
#[derive(Serialize)]
pub struct TableView<'a> {
    #[serde(flatten)]
    table: &'a Table,
    /// Classes of the columns: numbers stand to the right, and long texts are broken.
    kinds: Vec<&'static str>,
}

impl<'a> TableView<'a> {
    /// With the kinds of its columns.
    pub fn new(table: &'a Table) -> Self {
        let kind = |column: usize| {
            let mut cells = table.rows.iter().filter_map(|row| row.get(column));
            let number =
                |cell: &String| cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || "−-–∞<>≤≥±".contains(c));
            if cells.clone().all(number) {
                "num"
            } else if cells.any(|cell| cell.chars().count() > 40) {
                "long"
            } else {
                ""
            }
        };
        let most = table.rows.iter().map(Vec::len).chain([table.columns.len()]).max().unwrap_or(0);
        Self { table, kinds: (0..most).map(kind).collect() }
    }
}

/// Time for people.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..10 => format!("{seconds:.1} s"),
        10..120 => format!("{whole} s"),
        120..7200 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// The page of one run of a learner.
#[derive(Clone, Debug, Default)]
pub struct RunPage {
    /// Heading.
    pub title: String,
    /// What was learned from what; may be empty.
    pub subtitle: String,
    /// Names and values: sizes, seed, time.
    pub facts: Vec<(String, String)>,
    /// How it ended, in words.
    pub outcome: String,
    /// Whether it ended well.
    pub good: bool,
    /// Sentences below the outcome.
    pub notes: Vec<String>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Pictures.
    pub figures: Vec<Figure>,
    /// Files of the run: what they are called, and where they are.
    pub links: Vec<(String, String)>,
    /// What was run, and with what settings; may be empty.
    pub config: String,
}

impl RunPage {
    /// The page.
    pub fn html(&self) -> Result<String> {
        let figures: Vec<FigureView> = self.figures.iter().map(|figure| FigureView::new(figure, None)).collect();
        let tables: Vec<TableView<'_>> = self.tables.iter().map(TableView::new).collect();
        let (figures, tables) = (Value::from(Serde(figures)), Value::from(Serde(tables)));
        let Self { title, subtitle, facts, outcome, good, notes, links, config, .. } = self;
        render(
            ("run.html", include_str!("page/run.html")),
            context! { title, subtitle, facts, outcome, good, notes, tables, figures, links, config },
        )
    }
}

/// A page from a template that may extend `layout.html` and import `parts.html`.
pub fn render((name, source): (&str, &str), values: Value) -> Result<String> {
    let fault =
        |e: minijinja::Error| Error::input("report", format!("{e:#}"), "report it: this is a mistake in the page's template");
    let mut pages = Environment::new();
    for (name, source) in TEMPLATES.into_iter().chain([(name, source)]) {
        pages.add_template(name, source).map_err(fault)?;
    }
    let (css, script) = (colours() + include_str!("page/page.css"), include_str!("page/page.js"));
    pages.get_template(name).and_then(|page| page.render(context! { css, script, ..values })).map_err(fault)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::estimate::Estimate;
    use crate::plot::{Axis, Chart, Panel, Series};

    #[test]
    fn a_run_has_a_page() {
        let series = vec![Series::new("a<b>", (1..4).map(|i| (f64::from(i), Estimate::exact(f64::from(i)))))];
        let chart = Chart { title: String::new(), x: Axis::linear("n"), y: Axis::linear("error"), series };
        let figure = Figure {
            name: "curve".into(),
            title: "Curve & more".into(),
            caption: "See <it>.".into(),
            panels: vec![Panel::Chart(chart)],
        };
        let rows = vec![vec!["RFA".into(), "1.5".into()], vec!["<script>alert(1)</script>".into(), "−2".into()]];
        let table = Table { caption: "Numbers".into(), columns: vec!["model".into(), "slope".into()], rows };
        let page = RunPage {
            title: "A layer".into(),
            facts: vec![("seed".into(), "1".into())],
            outcome: "recovered".into(),
            good: true,
            notes: vec!["All <heads> found.".into()],
            tables: vec![table],
            figures: vec![figure],
            links: vec![("the layer".into(), "a/l.safetensors".into())],
            config: "learn <x>".into(),
            ..RunPage::default()
        };
        let html = page.html().unwrap();
        assert!(
            html.contains("outcome good") && html.contains("All &lt;heads&gt; found.") && html.contains("<svg class=\"panel\"")
        );
        assert!(!html.contains("http") && !html.contains("SVG</a>"));
        assert!(
            html.contains("learn &lt;x&gt;</pre>")
                && html.replace("&#x2f;", "/").contains("<a href=\"a/l.safetensors\">the layer</a>")
        );
        assert!(!RunPage::default().html().unwrap().contains("Configuration"));
    }

    #[test]
    fn time_is_short() {
        for (seconds, text) in [(0.26, "0.3 s"), (59.6, "60 s"), (130.0, "2 min 10 s"), (7300.0, "2 h 1 min")] {
            assert_eq!(duration(seconds), text);
        }
    }
}
