//! Pictures of a run of the six phases, from its records alone, and of the attention matrices that it found.
//!
//! Phases 2 and 4 sculpt the body `K = {Θ : |⟨Θ, v_r⟩ − ℓ_r| ≤ ξ_r for every accepted row r}`. Its slabs have half-widths `η_r = ξ_r/‖v_r‖`, which sink as
//! more rows are accepted and the best are kept. Phase 5 knows how wide K is: by linear programs along the directions of the heads' hull, where it
//! stays wide as long as all heads are in it, along the hull's centre, and across both, where it should be narrow; and by the eigenvalues `λ_j` of the slabs' normals, for the ellipsoid of mean slab `η`,
//!
//! ```text
//! {Θ̃ : Σ_r w_r ⟨ṽ_r, Θ̃⟩² ≤ η² Σ_r w_r},     half-axes η/√λ_j:     the m of the heads' span stay long.
//! ```

use super::{Axis, Chart, Figure, Heat, Look, Panel, Point, Series, largest};
use crate::estimate::{Estimate, short};
use attnlearn::layer::AttentionLayer;
use attnlearn::linalg::Mat;
use attnlearn::sculpt::{Phase, Quantiles, Record, Widths};

/// Everything that the records show: the body being sculpted, and how errors sank.
pub fn figures(records: &[Record]) -> Vec<Figure> {
    [body(records), errors(records)].into_iter().flatten().collect()
}

/// The state of the body after a phase.
struct Stage<'a> {
    record: &'a Record,
    /// Rows accepted so far.
    accepted: u64,
    /// Median half-width of the slabs.
    eta: f64,
    /// Whether rows were certified head by head: the body is then begun anew.
    apart: bool,
}

/// The phases that have to do with the body, in order.
fn stages(records: &[Record]) -> Vec<Stage<'_>> {
    let (mut accepted, mut eta, mut apart) = (0, 0.0, false);
    let mut stages = Vec::new();
    for (i, record) in records.iter().enumerate() {
        match record.phase {
            // A search without a span comes before rows are certified head by head.
            Phase::Search if i > 0 && records[i - 1].phase != Phase::Span => (accepted, apart) = (0, true),
            Phase::Sculpt => stages.push(Stage { record, accepted: record.rows_accepted, eta: record.residuals.median, apart }),
            Phase::Resculpt => {
                accepted += record.rows_accepted;
                eta = record.residuals.median;
                stages.push(Stage { record, accepted, eta, apart });
            }
            Phase::Span => stages.push(Stage { record, accepted, eta, apart }),
            _ => {}
        }
    }
    stages
}

fn quartiles(q: Quantiles) -> Estimate {
    Estimate { value: q.median, low: q.lower, high: q.upper }
}

/// The body being sculpted.
pub fn body(records: &[Record]) -> Option<Figure> {
    let stages = stages(records);
    let mut panels = Vec::new();

    let phases = [
        (Phase::Sculpt, false, "phase 2"),
        (Phase::Resculpt, false, "phase 4"),
        (Phase::Resculpt, true, "phase 4, head by head"),
    ];
    let slabs = phases.map(|(phase, apart, label)| {
        let of = stages.iter().filter(|stage| stage.record.phase == phase && stage.apart == apart && stage.accepted > 0);
        let point = |stage: &Stage<'_>| Point {
            x: stage.accepted as f64,
            y: quartiles(stage.record.residuals),
            note: format!("bar: quartiles; {} rows seen in this phase", stage.record.rows_seen),
        };
        Series { label: label.into(), look: Look::Line, points: of.map(point).collect() }
    });
    let rows = || Axis::log("accepted rows");
    push(&mut panels, "Slabs", rows(), Axis::log("half-width η of the slabs kept"), slabs.into());

    let spans: Vec<&Stage<'_>> = stages.iter().filter(|stage| stage.record.phase == Phase::Span).collect();
    let sculpture = spans.iter().rev().map(|stage| &stage.record.sculpture).find(|widths| !widths.is_empty());
    let (of, widths) = match sculpture {
        Some(widths) => (Axis::log("slabs, the best rows accepted"), sculpted(widths)),
        None => (rows(), [false, true].into_iter().flat_map(|apart| widths(&spans, apart)).collect()),
    };
    push(&mut panels, "Widths of the body", of, Axis::log("width by linear programs"), widths);

    let axes = |stage: &&&Stage<'_>| !stage.record.spectrum.is_empty() && stage.eta > 0.0;
    let series = |stage: &&Stage<'_>| {
        let axis = |(j, eigenvalue): (usize, &f64)| ((j + 1) as f64, Estimate::exact(stage.eta / eigenvalue.sqrt()));
        let label = format!("{} rows{}", stage.accepted, head_by_head(stage.apart));
        Series::new(label, stage.record.spectrum.iter().enumerate().map(axis).collect::<Vec<_>>())
    };
    let spectra = spans.iter().filter(axes).map(series).collect();
    push(&mut panels, "The widest directions", Axis::linear("direction, the widest first"), Axis::log("half-axis η/√λ"), spectra);

    let mut caption = String::from(
        "Slabs: half-widths of the slabs that are kept, medians and quartiles, against the rows accepted so far. Widths: along the directions of \
         the heads’ hull the body should stay wide, elsewhere it should shrink; linear programs measure it with what is known after phase 5, and slabs without a point in \
         common are widened alike until they have one. Widest directions: as many half-axes as there are heads should stand out.",
    );
    caption += &sculpture.and_then(|widths| widths.last()).map_or_else(String::new, last_widths);
    caption += &spans.iter().rev().find_map(|stage| largest_step(&stage.record.spectrum)).unwrap_or_default();
    figure("phases-body", "The body being sculpted", &caption, panels)
}

fn head_by_head(apart: bool) -> &'static str {
    if apart { ", head by head" } else { "" }
}

/// Widths after every phase 5 of one body, a series a direction; the last of a record's widths is along the hull's centre.
fn widths(spans: &[&Stage<'_>], apart: bool) -> Vec<Series> {
    let of: Vec<_> = spans.iter().filter(|stage| stage.apart == apart && !stage.record.widths.is_empty()).collect();
    let along = of.iter().map(|stage| stage.record.widths.len() - 1).max().unwrap_or(0);
    let series = |label: String, pick: &dyn Fn(&[f64]) -> Option<f64>| {
        let point = |stage: &&&Stage<'_>| Some((stage.accepted as f64, Estimate::exact(pick(&stage.record.widths)?)));
        Series::new(label + head_by_head(apart), of.iter().filter_map(point).collect::<Vec<_>>())
    };
    let mut all: Vec<Series> = (0..along)
        .map(|i| series(format!("direction {}", i + 1), &|widths| widths[..widths.len() - 1].get(i).copied()))
        .collect();
    all.push(series("the centre".into(), &|widths| widths.last().copied()));
    all
}

/// How wide the body is in the end.
fn last_widths(widths: &Widths) -> String {
    let narrowest = widths.hull.iter().copied().fold(f64::INFINITY, f64::min);
    let across = Quantiles::of(widths.others.iter().copied()).median;
    if !(narrowest.is_finite() && across > 0.0) {
        return String::new();
    }
    format!(
        " With {} slabs the body is {} wide across the hull, in the median, and at least {} along it, a ratio of {}.",
        widths.rows,
        short(across),
        short(narrowest),
        short(narrowest / across)
    )
}

/// Where the half-axes part.
fn largest_step(spectrum: &[f64]) -> Option<String> {
    let jump = |j: usize| (spectrum[j] / spectrum[j - 1]).sqrt();
    let at = (1..spectrum.len()).max_by(|a, b| jump(*a).total_cmp(&jump(*b)))?;
    Some(format!(" The largest step between half-axes, by a factor of {}, follows direction {at}.", short(jump(at))))
}

/// Widths of the body of ever more rows: along every direction of the hull, along its centre, and the median of those across, with their range.
pub fn sculpted(widths: &[Widths]) -> Vec<Series> {
    let line = |label: String, of: &dyn Fn(&Widths) -> Option<Estimate>| {
        Series::new(label, widths.iter().filter_map(|widths| Some((widths.rows as f64, of(widths)?))))
    };
    let most = widths.iter().map(|widths| widths.hull.len()).max().unwrap_or(0);
    let mut series: Vec<Series> = (0..most)
        .map(|i| line(format!("direction {} of the hull", i + 1), &|widths| widths.hull.get(i).copied().map(Estimate::exact)))
        .collect();
    series.push(line("its centre".into(), &|widths| Some(Estimate::exact(widths.centre))));
    series.push(line("across it".into(), &|widths| {
        let range = Quantiles::of(widths.others.iter().copied());
        Some(Estimate { value: range.median, low: range.min, high: range.max })
    }));
    series
}

/// How errors sank: in the sharpening of phase 3, the search of phase 6 and the polish.
pub fn errors(records: &[Record]) -> Option<Figure> {
    let mut panels = Vec::new();
    let last =
        |phase: Phase, has: &dyn Fn(&Record) -> bool| records.iter().rev().find(|record| record.phase == phase && has(record));
    if let Some(proxy) = last(Phase::Proxy, &|record| !record.rounds.is_empty()) {
        let of = |f: &dyn Fn(usize) -> f64| {
            (0..proxy.rounds.len()).map(|i| ((i + 1) as f64, Estimate::exact(f(i)))).collect::<Vec<_>>()
        };
        let series = vec![
            Series::new("distance of rows from their tokens", of(&|i| proxy.rounds[i].residual)),
            Series::new("change of Ŝ, relative", of(&|i| proxy.rounds[i].change)),
        ];
        push(&mut panels, "Phase 3: sharpening", Axis::linear("round"), Axis::log("distance, or relative change"), series);
    }
    let history = |phase: Phase, label: &str| {
        let record = last(phase, &|record| !record.history.is_empty())?;
        Some(Series::new(label, record.history.iter().enumerate().map(|(i, nmse)| (i as f64, Estimate::exact(*nmse)))))
    };
    let series: Vec<Series> =
        [history(Phase::Search, "phase 6"), history(Phase::Polish, "polish")].into_iter().flatten().collect();
    push(&mut panels, "Phase 6 and polish", Axis::linear("iteration"), Axis::log("NMSE on the examples searched with"), series);
    let caption = "Phase 3 sharpens the sum Ŝ of the projections on rows that are attended at one token, ever more strictly. Phase 6 searches in the span \
                   of the heads; the polish, which is not part of the paper’s algorithm, goes on over all parameters.";
    figure("phases-errors", "Errors, phase by phase", caption, panels)
}

/// A panel, unless it would be empty.
fn push(panels: &mut Vec<Panel>, title: &str, x: Axis, y: Axis, mut series: Vec<Series>) {
    series.retain(|series| !series.points.is_empty());
    if !series.is_empty() {
        panels.push(Panel::Chart(Chart { title: title.into(), x, y, series }));
    }
}

fn figure(name: &str, title: &str, caption: &str, panels: Vec<Panel>) -> Option<Figure> {
    (!panels.is_empty()).then(|| Figure { name: name.into(), title: title.into(), caption: caption.into(), panels })
}

/// The attention matrices found, each beside the true one that it matches where the truth is known, all in the same colours.
pub fn matrices(truth: Option<&AttentionLayer>, found: &AttentionLayer) -> Figure {
    let theta = |layer: &AttentionLayer, head: usize| layer.heads()[head].theta.to_dense();
    let mut shown: Vec<(String, Mat<f64>)> = Vec::new();
    match truth.and_then(|truth| Some((truth, truth.distance(found).ok()?))) {
        Some((truth, distance)) => {
            for head in &distance.heads {
                let number = head.reference + 1;
                shown.push((format!("head {number}: true"), theta(truth, head.reference)));
                shown.push((format!("head {number}: found, error {}", short(head.theta)), theta(found, head.other)));
            }
            shown
                .extend(distance.missing.iter().map(|head| (format!("head {}: true, not found", head + 1), theta(truth, *head))));
            shown.extend(distance.extra.iter().map(|head| ("found, without a match".into(), theta(found, *head))));
        }
        None => shown.extend((0..found.heads().len()).map(|head| (format!("head {}: found", head + 1), theta(found, head)))),
    }
    let full = shown.iter().map(|(_, values)| largest(values)).fold(0.0, f64::max);
    let panel = |(title, values): (String, Mat<f64>)| {
        Panel::Heat(Heat { title, values, rows: "query".into(), columns: "key".into(), full })
    };
    let caption = if truth.is_some() {
        "Entries of the attention matrices Θ, true and found side by side, in the same colours. Errors are ‖Θ̂ − Θ‖/‖Θ‖, in Frobenius norms."
    } else {
        "Entries of the attention matrices Θ that were found, all in the same colours."
    };
    let panels = shown.into_iter().map(panel).collect();
    Figure { name: "matrices".into(), title: "Attention matrices".into(), caption: caption.into(), panels }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use attnlearn::data::InputDistribution;
    use attnlearn::layer::{Head, Mask};
    use attnlearn::sculpt::{self, Heads, Settings, Unwatched};
    use attnlearn::teacher::{TeacherSpec, TeacherStream};
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    fn record(phase: Phase, change: impl FnOnce(&mut Record)) -> Record {
        let mut record = Record::new(phase);
        change(&mut record);
        record
    }

    fn chart<'a>(figure: &'a Figure, title: &str) -> &'a Chart {
        let of = |panel: &'a Panel| match panel {
            Panel::Chart(chart) if chart.title == title => Some(chart),
            _ => None,
        };
        figure.panels.iter().find_map(of).unwrap()
    }

    fn xs(series: &Series) -> Vec<f64> {
        series.points.iter().map(|point| point.x).collect()
    }

    /// Rows add up from round to round, and begin anew where rows are certified head by head.
    #[test]
    fn widths_stand_above_the_rows_accepted_so_far() {
        let dig =
            |accepted| record(Phase::Resculpt, |r| (r.rows_accepted, r.residuals) = (accepted, Quantiles::of([0.1, 0.2, 0.3])));
        let span = |wide: f64, narrow: f64| {
            record(Phase::Span, |r| (r.widths, r.spectrum) = (vec![wide, narrow], vec![0.01, 0.04, 1.0]))
        };
        let records = [
            record(Phase::Sculpt, |r| r.rows_accepted = 50),
            dig(100),
            span(9.0, 1.0),
            record(Phase::Search, |_| ()),
            dig(300),
            span(9.5, 0.1),
            record(Phase::Search, |_| ()),
            record(Phase::Search, |_| ()),
            dig(70),
            span(9.7, 0.05),
        ];
        let figure = body(&records).unwrap();
        let widths = chart(&figure, "Widths of the body");
        let labels: Vec<&str> = widths.series.iter().map(|series| series.label.as_str()).collect();
        assert_eq!(labels, ["direction 1", "the centre", "direction 1, head by head", "the centre, head by head"]);
        assert_eq!(xs(&widths.series[1]), [100.0, 400.0]);
        assert_eq!(xs(&widths.series[3]), [70.0]);
        assert!(figure.caption.ends_with(" The largest step between half-axes, by a factor of 5.00, follows direction 2."));
        let last = last_widths(&Widths { rows: 64, hull: vec![9.7, 12.0], centre: 0.7, others: vec![0.01, 0.05, 0.3] });
        assert_eq!(
            last,
            " With 64 slabs the body is 0.0500 wide across the hull, in the median, and at least 9.70 along it, a ratio of 194."
        );
        let axes = &chart(&figure, "The widest directions").series;
        assert_eq!(axes.len(), 3);
        assert!((axes[0].points[0].y.value - 2.0).abs() < 1e-12 && (axes[0].points[2].y.value - 0.2).abs() < 1e-12);
        let slabs = &chart(&figure, "Slabs").series;
        assert_eq!(slabs.iter().map(xs).collect::<Vec<_>>(), [vec![50.0], vec![100.0, 400.0], vec![70.0]]);
        assert!(figures(&[]).is_empty());
    }

    /// The records of a real run have all panels, and its picture says what the phases promise: wide along the hull, narrow across.
    #[test]
    fn a_run_is_shown() {
        let teacher = TeacherSpec::dense(8, 2, 6.0).draw(&mut ChaCha8Rng::seed_from_u64(1)).unwrap();
        let source = TeacherStream::new(&teacher, 4, InputDistribution::Boolean, 5, None);
        let settings = Settings { heads: Heads::Given(2), most_examples: 1 << 20, ..Settings::default() };
        let learned = sculpt::learn(&source, &settings.check(&source).unwrap(), &Unwatched).unwrap();
        let figures = figures(&learned.records);
        assert_eq!(figures.iter().map(|figure| figure.panels.len()).collect::<Vec<_>>(), [3, 2]);
        let widths = chart(&figures[0], "Widths of the body");
        assert!(widths.series[0].points[0].y.value > 3.0 * widths.series[1].points[0].y.value);
        let figure = matrices(Some(&teacher), learned.layer().unwrap());
        assert_eq!(figure.panels.len(), 4);
    }

    #[test]
    fn matrices_stand_beside_their_match() {
        let head = |scale: f64| {
            Head::dense(
                Mat::from_fn(2, 2, |i, j| scale * (i as f64 - 2.0 * j as f64)),
                Mat::from_fn(2, 2, |i, _| scale + i as f64),
            )
        };
        let layer = |scales: &[f64]| AttentionLayer::new(scales.iter().map(|s| head(*s)).collect(), None, Mask::None).unwrap();
        let titles = |figure: &Figure| figure.panels.iter().map(Panel::heading).collect::<Vec<_>>();
        let figure = matrices(Some(&layer(&[1.0, -3.0])), &layer(&[-3.0, 1.0, 7.0]));
        assert_eq!(
            titles(&figure),
            ["head 1: true", "head 1: found, error 0", "head 2: true", "head 2: found, error 0", "found, without a match"]
        );
        let fulls = figure.panels.iter().map(|panel| if let Panel::Heat(heat) = panel { heat.full } else { 0.0 });
        assert!(fulls.into_iter().all(|full| (full - 14.0).abs() < 1e-12));
        assert_eq!(titles(&matrices(None, &layer(&[1.0]))), ["head 1: found"]);
    }
}
