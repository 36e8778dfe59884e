//! The page of all experiments.

use crate::experiment::{Finding, Scale, Stance};
use crate::run::Finished;
use attnlearn::Result;
use attnlearn_page::page::{FigureView, TableView, duration, render};
use minijinja::value::Serde;
use minijinja::{Value, context};
use serde::Serialize;
use std::collections::BTreeSet;

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
        ("lab.html", include_str!("report/lab.html")),
        context! { title => "Attention layers, learned: the lab’s report", subtitle, contents, facts, experiments, rest },
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::experiment::Summary;
    use attnlearn_page::plot::{Axis, Chart, Figure, Panel, Series};
    use attnlearn_page::{Estimate, Table};

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
}
