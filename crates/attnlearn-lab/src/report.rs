//! Pages: one of all experiments, and one of a single run of a learner. A page is one file that needs no network: style sheet, script and drawings are
//! in it. It is read on a phone as on a wide screen, in light and dark, and on paper.

use crate::experiment::{Finding, Scale, Stance, Table};
use crate::plot::{Figure, Inline};
use crate::run::Finished;
use attnlearn::{Error, Result};
use minijinja::value::Serde;
use minijinja::{Environment, Value, context};
use serde::Serialize;
use std::collections::BTreeSet;

/// The parts of all pages.
const TEMPLATES: [(&str, &str); 4] = [
    ("layout.html", include_str!("report/layout.html")),
    ("parts.html", include_str!("report/parts.html")),
    ("lab.html", include_str!("report/lab.html")),
    ("run.html", include_str!("report/run.html")),
];

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

/// A figure as the templates have it.
#[derive(Serialize)]
struct FigureView {
    id: String,
    title: String,
    caption: String,
    /// Where its file is.
    file: Option<String>,
    #[serde(flatten)]
    drawn: Inline,
}

impl FigureView {
    /// `of`: the experiment, whose folder has the file.
    fn new(figure: &Figure, of: Option<&str>) -> Self {
        let id = of.map_or_else(|| figure.name.clone(), |of| format!("{of}--{}", figure.name));
        let file = of.map(|of| format!("{of}/{}.svg", figure.name));
        Self { id, title: figure.title.clone(), caption: figure.caption.clone(), file, drawn: figure.inline() }
    }
}

/// A table as the templates have it.
#[derive(Serialize)]
struct TableView<'a> {
    #[serde(flatten)]
    table: &'a Table,
    /// Classes of the columns: numbers stand to the right, and long texts are broken.
    kinds: Vec<&'static str>,
}

impl<'a> TableView<'a> {
    fn new(table: &'a Table) -> Self {
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

/// Something and how much of it.
type Fact = (String, String);

/// What a finding comes to.
#[derive(Serialize)]
struct Headline<'a> {
    text: &'a str,
    stance: Stance,
}

/// An experiment as the templates have it.
#[derive(Serialize)]
struct ExperimentView<'a> {
    name: &'a str,
    title: &'a str,
    question: &'a str,
    claim: &'a str,
    findings: &'a [Finding],
    /// The findings in short.
    headlines: Vec<Headline<'a>>,
    figures: Vec<FigureView>,
    tables: Vec<TableView<'a>>,
    facts: Vec<Fact>,
    /// What they are called, and where they lead.
    links: Vec<(String, String)>,
    overtaken: bool,
    config: String,
}

impl<'a> ExperimentView<'a> {
    fn new(of: &'a Finished) -> Result<Self> {
        let parquet = if cfg!(feature = "parquet") { &["rows.parquet"][..] } else { &[] };
        let files = ["rows.csv"].iter().chain(parquet).chain(&["points.jsonl", "timing.csv", "summary.json", "config.toml"]);
        Ok(Self {
            name: of.name,
            title: of.title,
            question: of.question,
            claim: of.claim,
            findings: &of.summary.findings,
            headlines: of.summary.findings.iter().map(|one| Headline { text: one.headline(), stance: one.stance }).collect(),
            figures: of.summary.figures.iter().map(|figure| FigureView::new(figure, Some(of.name))).collect(),
            tables: of.summary.tables.iter().map(TableView::new).collect(),
            facts: vec![
                fact("scale", word(of.scale)),
                fact("seed", of.seed),
                fact("version", &of.version),
                fact("points", of.points),
                fact("rows", of.rows),
                fact("time, added up", duration(of.seconds)),
            ],
            links: files.map(|file| format!("{}/{file}", of.name)).map(|file| (file.clone(), file)).collect(),
            overtaken: of.overtaken,
            config: of.configuration()?,
        })
    }
}

fn fact(name: &str, value: impl ToString) -> Fact {
    (name.into(), value.to_string())
}

/// What the command line calls it.
pub(crate) fn word(scale: Scale) -> &'static str {
    scale.pick("quick", "full")
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

/// What a page says of experiments that the run has not finished.
#[derive(Default, Serialize)]
pub struct Rest<'a> {
    /// Titles of those that are still to come.
    pub waiting: Vec<&'a str>,
    /// Likewise, but an earlier result of theirs is shown.
    pub earlier: Vec<&'a str>,
    /// Those of which an earlier result is there and cannot be shown: which, and why.
    pub hidden: Vec<String>,
}

/// Versions of the program that measured these, each once.
pub(crate) fn versions(finished: &[&Finished]) -> String {
    let each: BTreeSet<&str> = finished.iter().flat_map(|one| one.version.split(", ")).collect();
    Vec::from_iter(each).join(", ")
}

/// The page of these experiments, in their order.
pub fn page(finished: &[&Finished], rest: &Rest<'_>) -> Result<String> {
    let experiments: Vec<ExperimentView<'_>> = finished.iter().map(|one| ExperimentView::new(one)).collect::<Result<_>>()?;
    let mut contents: Vec<(&str, &str)> = vec![("findings", "Findings")];
    contents.extend(finished.iter().map(|one| (one.name, one.title)));
    let mut facts = vec![fact("attnlearn", versions(finished)), fact("experiments", finished.len())];
    // Of the page only where it holds of all.
    let mut shared = |name: &str, of: &dyn Fn(&Finished) -> String| {
        let first = finished.first().map(|one| of(one));
        if let Some(first) = first.filter(|first| finished.iter().all(|one| of(one) == *first)) {
            facts.push(fact(name, first));
        }
    };
    shared("scale", &|one| word(one.scale).into());
    shared("seed", &|one| one.seed.to_string());
    facts.push(fact("points", finished.iter().map(|one| one.points).sum::<usize>()));
    facts.push(fact("rows", finished.iter().map(|one| one.rows).sum::<usize>()));
    facts.push(fact("time, added up", duration(finished.iter().map(|one| one.seconds).sum())));
    let subtitle = "Every sentence under “Findings” is computed from the data. Intervals have confidence 95\u{a0}%. \
                    Point at a mark, touch it, or move with the arrow keys to see its value.";
    let experiments = Value::from(Serde(experiments));
    let rest = Value::from(Serde(rest));
    render(
        "lab.html",
        context! { title => "Attention layers, learned: the lab’s report", subtitle, contents, facts, experiments, rest },
    )
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
        render("run.html", context! { title, subtitle, facts, outcome, good, notes, tables, figures, links, config })
    }
}

fn render(name: &str, values: Value) -> Result<String> {
    let fault =
        |e: minijinja::Error| Error::input("report", format!("{e:#}"), "report it: this is a mistake in the page's template");
    let mut pages = Environment::new();
    for (name, source) in TEMPLATES {
        pages.add_template(name, source).map_err(fault)?;
    }
    let (css, script) = (colours() + include_str!("report/page.css"), include_str!("report/page.js"));
    pages.get_template(name).and_then(|page| page.render(context! { css, script, ..values })).map_err(fault)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::experiment::Summary;
    use crate::plot::{Axis, Chart, Panel, Series};
    use crate::stats::Estimate;

    fn finished(name: &'static str) -> Finished {
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
        Finished {
            name,
            title: "A title",
            question: "Is a < b?",
            claim: "a < b.",
            scale: Scale::Quick,
            seed: 7,
            version: "0.0.0".into(),
            points: 3,
            rows: 9,
            seconds: 200.0,
            config: "n = [1, 2]\nname = \"<x>\"\n".parse().unwrap(),
            by_default: false,
            together: true,
            overtaken: false,
            summary: Summary {
                findings: vec![Finding::agrees("a < b by 3 (2 to 4)"), Finding::differs("a > c")],
                figures: vec![figure],
                tables: vec![table],
            },
        }
    }

    fn rest() -> Rest<'static> {
        Rest { waiting: vec!["Three"], earlier: vec!["Four"], hidden: vec!["five: a < b".into()] }
    }

    /// Values of an attribute.
    fn attributes<'a>(page: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
        page.match_indices(&format!(" {name}=\""))
            .map(move |(at, lead)| page[at + lead.len()..].split('"').next().unwrap())
            .collect::<Vec<_>>()
            .into_iter()
    }

    #[test]
    fn a_page_needs_nothing_but_itself() {
        let page = page(&[&finished("one"), &finished("two")], &rest()).unwrap();
        assert!(!page.contains("http") && !page.contains("@import") && !page.contains("url(") && !page.contains("light-dark("));
        assert_eq!(attributes(&page, "src").count(), 0);
        let ids: Vec<&str> = attributes(&page, "id").collect();
        for link in attributes(&page, "href") {
            let within = link.strip_prefix('#').is_some_and(|id| ids.contains(&id));
            let beside = ["one/", "two/"].iter().any(|folder| link.replace("&#x2f;", "/").starts_with(folder));
            assert!(within || beside || link == "data:,", "{link}");
        }
        let mut once = ids.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), ids.len(), "{ids:?}");
    }

    #[test]
    fn everything_is_there_and_escaped() {
        let page = page(&[&finished("one")], &rest()).unwrap();
        for part in [
            "a &lt; b by 3 (2 to 4)",
            "Is a &lt; b?",
            "Curve &amp; more",
            "See &lt;it&gt;.",
            "time, added up <b>3 min 20 s",
            "quick",
            "attnlearn <b>0.0.0",
            "written: Three.",
            "left it: Four.",
            "shown: five: a &lt; b.",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("<script>alert") && page.matches("<script>").count() == 1);
        assert!(page.contains("<td class=\"num\">−2</td>"));
        assert_eq!(page, super::page(&[&finished("one")], &rest()).unwrap());
        // Headings come in order.
        let levels: Vec<u32> =
            page.match_indices("<h").filter_map(|(at, _)| page[at + 2..].chars().next()?.to_digit(10)).collect();
        assert!(levels[0] == 1 && levels.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{levels:?}");
    }

    #[test]
    fn a_run_has_the_same_kind_of_page() {
        let one = finished("one");
        let page = RunPage {
            title: "A layer".into(),
            facts: vec![("seed".into(), "1".into())],
            outcome: "recovered".into(),
            good: true,
            notes: vec!["All <heads> found.".into()],
            tables: one.summary.tables,
            figures: one.summary.figures,
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
