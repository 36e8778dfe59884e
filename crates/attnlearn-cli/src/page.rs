//! `--report FILE`: one run of a learner as a page that opens in a browser.

use crate::console::{duration, error, grouped};
use crate::values::flag;
use attnlearn::Result;
use attnlearn::certify::{Bound, Certificate};
use attnlearn::data::Shape;
use attnlearn::descend::{Learner, Try};
use attnlearn::files::write_atomically;
use attnlearn::layer::AttentionLayer;
use attnlearn::learn::{Answer, Details, Search};
use attnlearn::linalg::frobenius;
use attnlearn::sculpt::Record;
use attnlearn_page::Estimate;
use attnlearn_page::RunPage;
use attnlearn_page::Table;
use attnlearn_page::plot::{Axis, Chart, Figure, Look, Panel, Series, phases};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Component, Path};

/// Entries of all attention matrices that are drawn one by one; more would make a page that no browser likes.
const MOST_ENTRIES: usize = 20_000;

/// What a page has beside the answer.
pub struct Run<'a> {
    /// What was learned, in a few words.
    pub title: &'a str,
    /// The true layer, where it is known.
    pub truth: Option<&'a AttentionLayer>,
    /// Where the page goes.
    pub page: &'a Path,
    /// Files of the run: what they are, and where.
    pub files: Vec<(&'static str, &'a Path)>,
    /// What the learner was set to.
    pub settings: Value,
}

/// The command that was run, as a shell takes it.
fn command() -> String {
    let plain = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "-_./:=,+@%".contains(c));
    let quoted = |word: String| if plain(&word) { word } else { format!("'{}'", word.replace('\'', "'\\''")) };
    let words = std::env::args_os().skip(1).map(|word| quoted(word.to_string_lossy().into_owned()));
    ["attnlearn".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

/// A file as a page links to it: from the page's folder to the file's.
fn link(page: &Path, file: &Path) -> String {
    let folder = |path: &Path| {
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        parent.canonicalize().unwrap_or_else(|_| parent.to_owned())
    };
    let (from, to) = (folder(page), folder(file));
    let shared = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(shared).map(|_| OsStr::new(".."));
    let down = to.components().skip(shared).map(Component::as_os_str).chain(file.file_name());
    // What means something in an address is written by its number.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let part = |name: &OsStr| -> String {
        let bytes = name.to_string_lossy().into_owned().into_bytes();
        bytes.into_iter().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
    };
    up.chain(down).map(part).collect::<Vec<_>>().join("/")
}

impl Run<'_> {
    /// The page of a run.
    pub fn page(&self, answer: &Answer) -> RunPage {
        let mut page = self.common(answer);
        for (when, nmse) in [
            ("Before", answer.before_polish.as_ref().map(|own| own.nmse)),
            ("After", answer.after_polish().map(|(_, nmse)| nmse)),
        ] {
            page.notes.extend(nmse.map(|nmse| format!("{when} the polish: held-out NMSE {}.", error(nmse))));
        }
        page.notes.extend(answer.parts.map(|parts| format!("{}.", parts.text().told(&flag))));
        match &answer.details {
            Details::Search(search) => {
                page.tables.insert(0, try_table(search));
                page.figures.splice(0..0, size_figure(search));
            }
            Details::Phases(found) => {
                page.tables.insert(0, phase_table(&found.records));
                page.figures.splice(0..0, phases::figures(&found.records));
            }
        }
        page
    }

    /// What pages of both learners have.
    fn common(&self, answer: &Answer) -> RunPage {
        let Shape { k, d, d_out } = answer.shape;
        let fact = |name: &str, value: String| (name.to_owned(), value);
        let method = match &answer.details {
            Details::Search(_) => "descent from random starts",
            Details::Phases(_) => "the six phases, then a polish",
        };
        let mut page = RunPage {
            title: self.title.to_owned(),
            subtitle: format!("F(X) = Σ_i softmax(X Θ_i Xᵀ) X W_i, learned from examples by {method}."),
            outcome: answer.outcome.told(&flag),
            good: answer.recovered,
            facts: vec![
                fact("attnlearn", env!("CARGO_PKG_VERSION").into()),
                fact("examples", grouped(answer.examples)),
                fact("k", k.to_string()),
                fact("d", d.to_string()),
                fact("d_out", d_out.to_string()),
                fact("seed", answer.seed.to_string()),
                fact("time", duration(answer.seconds)),
            ],
            links: self.files.iter().map(|(what, file)| (format!("{what} {}", file.display()), link(self.page, file))).collect(),
            config: format!("{}\n\n{:#}\n", command(), self.settings),
            ..RunPage::default()
        };
        if let Some(certificate) = &answer.certificate {
            let text = certificate.to_string();
            page.notes.push(format!("Certificate: {}.", text.lines().next().unwrap_or_default()));
            page.figures.push(certificate_figure(certificate));
        }
        if let Some(layer) = &answer.layer {
            page.facts.insert(1, fact("heads", layer.heads().len().to_string()));
            page.tables.push(head_table(layer));
            if layer.heads().len() * layer.d() * layer.d() <= MOST_ENTRIES {
                page.figures.push(phases::matrices(self.truth, layer));
            } else {
                page.notes.push("The attention matrices are too large to be drawn here; `attnlearn inspect` shows them.".into());
            }
        }
        page
    }
}

/// Writes a page.
pub fn write(page: &RunPage, path: &Path) -> Result<()> {
    write_atomically(path, page.html()?.as_bytes())
}

fn phase_table(records: &[Record]) -> Table {
    let count = |n: u64| if n == 0 { "–".into() } else { grouped(n) };
    let row = |record: &Record| {
        vec![
            format!("{} {}", record.phase.label(), record.phase.title()),
            count(record.rows_seen),
            count(record.rows_accepted),
            duration(record.seconds),
            record.note.clone(),
        ]
    };
    let columns = ["phase", "rows seen", "accepted", "time", ""].map(String::from).into();
    Table { caption: "The phases.".into(), columns, rows: records.iter().map(row).collect() }
}

fn try_table(search: &Search) -> Table {
    let full = |rank: Option<usize>| rank.map_or("full".into(), |rank| rank.to_string());
    let row = |(i, one): (usize, &Try)| {
        vec![
            one.form.heads.to_string(),
            full(one.form.rank),
            if one.form.bias { "yes" } else { "no" }.into(),
            grouped(Learner::unknowns(&one.form) as u64),
            error(one.nmse),
            error(one.held_out),
            if i == search.chosen { "chosen" } else { "" }.into(),
        ]
    };
    let columns = ["heads", "rank", "biases", "unknowns", "NMSE", "NMSE, choosing", ""].map(String::from).into();
    Table {
        caption: "Forms that were tried, in their order.".into(),
        columns,
        rows: search.tries.iter().enumerate().map(row).collect(),
    }
}

fn head_table(layer: &AttentionLayer) -> Table {
    let row = |(i, head): (usize, &attnlearn::layer::Head)| {
        let norm = |matrix: attnlearn::linalg::MatRef<'_, f64>| format!("{:.3}", frobenius(matrix));
        vec![(i + 1).to_string(), norm(head.theta.to_dense().as_ref()), norm(head.w.as_ref())]
    };
    let columns = ["head", "‖Θ‖_F", "‖W‖_F"].map(String::from).into();
    Table { caption: "The heads that were found.".into(), columns, rows: layer.heads().iter().enumerate().map(row).collect() }
}

/// What is guaranteed: `P[e > ε]` against ε.
fn certificate_figure(certificate: &Certificate) -> Figure {
    let bounds = |of: &dyn Fn(&Bound) -> f64| -> Vec<(f64, Estimate)> {
        certificate.bounds.iter().map(|bound| (bound.epsilon, Estimate::exact(of(bound)))).collect()
    };
    let seen = Series::new("seen", bounds(&|bound| bound.exceedances as f64 / certificate.n.max(1) as f64));
    let chart = Chart {
        title: String::new(),
        x: Axis::log("ε, in units of the outputs"),
        y: Axis::log("P[‖F − F̂‖∞ > ε]"),
        series: vec![
            Series::new("at most, for all ε at once", bounds(&|bound| bound.together)),
            Series::new("at most, for one ε", bounds(&|bound| bound.alone)),
            Series { look: Look::Dots, ..seen },
        ],
    };
    Figure {
        name: "certificate".into(),
        title: "What is guaranteed".into(),
        caption: format!(
            "With confidence {} %: how likely an output is to be off by more than ε, at most, from {} held-out examples; and the share of them that was, where one was.",
            100.0 * (1.0 - certificate.delta),
            grouped(certificate.n)
        ),
        panels: vec![Panel::Chart(chart)],
    }
}

/// Error against size, where several forms were tried.
fn size_figure(search: &Search) -> Option<Figure> {
    let points = |biases: bool| {
        let of = search.tries.iter().filter(move |one| one.form.bias == biases);
        let mut points: Vec<(f64, Estimate)> =
            of.map(|one| (Learner::unknowns(&one.form) as f64, Estimate::exact(one.held_out))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let series = [(false, "without biases"), (true, "with biases")].map(|(biases, label)| Series::new(label, points(biases)));
    let series: Vec<Series> = series.into_iter().filter(|series| !series.points.is_empty()).collect();
    let chart = Chart { title: String::new(), x: Axis::log("unknowns"), y: Axis::log("NMSE, choosing"), series };
    (search.tries.len() > 1).then(|| Figure {
        name: "size".into(),
        title: "Error against size".into(),
        caption: "Every form that was tried. Where the error stops falling the layer has as many heads as it needs.".into(),
        panels: vec![Panel::Chart(chart)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_from_the_page_to_the_file() {
        for (page, file, leads) in [
            ("p.html", "l.safetensors", "l.safetensors"),
            ("./src/p.html", "e.npz", "../e.npz"),
            ("p.html", "src/a b#1.npz", "src/a%20b%231.npz"),
        ] {
            assert_eq!(link(Path::new(page), Path::new(file)), leads);
        }
    }
}
