//! Made-up experiments with everything that a page may have to bear, and a real run of the six phases.

use attnlearn::data::InputDistribution;
use attnlearn::linalg::Mat;
use attnlearn::teacher::{TeacherSpec, TeacherStream};
use attnlearn_lab::recovery;
use attnlearn_lab::{Finding, Finished, Scale, Summary, Table};
use attnlearn_page::Estimate;
use attnlearn_page::RunPage;
use attnlearn_page::plot::{Axis, Chart, Figure, Heat, Look, Panel, Series, phases};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

fn bar(value: f64, factor: f64) -> Estimate {
    Estimate { value, low: value / factor, high: value * factor }
}

fn curve(label: &str, size: f64, power: f64, many: i32) -> Series {
    let n = |i: i32| 100.0 * 2_f64.powi(i);
    let wiggle = |i: i32| 1.0 + 0.2 * f64::from(i * i % 5) / 5.0;
    Series::new(label, (0..many).map(|i| (n(i), bar(size * wiggle(i) * n(i).powf(power), 1.15 + 0.04 * f64::from(i)))))
}

fn chart(title: &str, x: Axis, y: Axis, series: Vec<Series>) -> Panel {
    Panel::Chart(Chart { title: title.into(), x, y, series })
}

fn figure(name: &str, title: &str, panels: Vec<Panel>) -> Figure {
    let caption = "Error against the number of examples, on axes where powers are straight lines: the curves keep the order of the theory. \
                   Bars are 95 % intervals over seeds.";
    Figure { name: name.into(), title: title.into(), caption: caption.into(), panels }
}

fn learning_curves() -> Figure {
    let panel = |target: &str, shift: f64| {
        let rate = Series::theory("RFA: n⁻¹", [(100.0, 0.9 * shift), (12_800.0, 0.9 * shift / 128.0)]);
        let series = vec![
            curve("RFA", 60.0 * shift, -0.95, 8),
            curve("BRFA", 40.0 * shift, -0.7, 8),
            curve("RFMLP", 3.0, -0.12, 8),
            curve("kernel limit of RFA", 20.0 * shift, -0.9, 8),
            rate,
            Series::theory("n⁻¹ᐟ²", [(100.0, shift), (12_800.0, shift / 128_f64.sqrt())]),
        ];
        chart(target, Axis::log("training examples n"), Axis::log("test error, relative to the variance of the target"), series)
    };
    figure(
        "learning-curves",
        "Test error against n",
        vec![panel("average", 1.0), panel("correlation", 2.0), panel("mixed, γ = ½", 0.5)],
    )
}

fn names() -> Figure {
    let kinds = ["dense", "diagonal", "block-diagonal", "low rank, r = 2", "permutation-like"];
    let rates = |label: &str, base: f64| {
        let rate = |i: usize| base - 0.15 * i as f64;
        let points = (0..5)
            .map(|i| (i as f64, Estimate { value: rate(i), low: (rate(i) - 0.25).max(0.0), high: (rate(i) + 0.2).min(1.0) }));
        Series { look: Look::Dots, ..Series::new(label, points) }
    };
    let series = vec![rates("six phases", 0.9), rates("practical learner, effort 10", 1.0), rates("with a mask", 0.7)];
    figure(
        "structures",
        "Success by structure of the teacher",
        vec![chart("", Axis::names("structure of Θ", &kinds), Axis::linear("success rate"), series)],
    )
}

fn many() -> Figure {
    let label = |i: i32| format!("a series with rather a long name, number {i} of twelve");
    let series = (0..12).map(|i| curve(&label(i), 1.0 + f64::from(i), -0.3, 5)).collect();
    let tiny =
        |label: &str, power: i32| Series::new(label, (1..7).map(move |m| (f64::from(m), bar(10_f64.powi(power * m), 1.5))));
    let panels = vec![
        chart("twelve of them", Axis::log("n"), Axis::log("seconds"), series),
        chart("powers of ten", Axis::linear("heads m"), Axis::log("‖Θ̂ − Θ‖/‖Θ‖"), vec![tiny("found", -4), tiny("missed", 0)]),
        chart("nothing", Axis::linear("m"), Axis::linear("y"), vec![Series::new("empty", [(1.0, Estimate::exact(f64::NAN))])]),
        chart("one point", Axis::linear("m"), Axis::linear("rate"), vec![Series::new("alone", [(3.0, Estimate::exact(0.5))])]),
    ];
    figure("many", "Many series, few points, none at all", panels)
}

fn heats() -> Figure {
    let matrix = |n: usize, shift: f64| Mat::from_fn(n, n, move |i, j| ((i * 7 + j * 3) as f64 + shift).sin() * 2.3);
    let heat = |title: &str, values| {
        Panel::Heat(Heat { title: title.into(), values, rows: "query".into(), columns: "key".into(), full: 2.3 })
    };
    let panels = vec![
        heat("head 1: true", matrix(8, 0.0)),
        heat("head 1: found, error 3.1e−9", matrix(8, 0.0)),
        heat("head 2: true", matrix(8, 2.0)),
        heat("head 2: found, error 0.21", matrix(8, 2.2)),
        heat("large", matrix(100, 0.5)),
        heat("wide", Mat::from_fn(3, 24, |i, j| (i as f64 - 1.0) * (j as f64).cos())),
    ];
    figure("matrices", "Attention matrices", panels)
}

fn table() -> Table {
    let columns = ["model", "target", "exponent b of n^b", "interval", "R²", "points", "seconds a point", "remark"];
    let row = |i: i32| {
        let number = |x: f64| format!("{x:.3}");
        vec![
            format!("model {i}"),
            "correlation".into(),
            number(-0.9 - 0.01 * f64::from(i)),
            "−1.02 to −0.81".into(),
            number(0.99),
            "24".into(),
            number(1.25 * f64::from(i)),
            "the slope is that of the middle of the curve, without its first point".into(),
        ]
    };
    Table { caption: "Fitted exponents".into(), columns: columns.map(String::from).into(), rows: (0..6).map(row).collect() }
}

fn finished(name: &'static str, title: &'static str, figures: Vec<Figure>) -> Finished {
    let findings = vec![
        Finding::differs(
            "RFA beats BRFA on the correlation target by a factor of 2.31 (1.92 to 2.78) in test error at n = 12800.",
        ),
        Finding::agrees("No difference seen between the kernel limit and M = 4000 heads: ratio 1.02 (0.94 to 1.11)."),
    ];
    Finished {
        name,
        title,
        question: "How fast does the test error of frozen random heads fall with the number of examples? Theory says n⁻¹ for RFA once n exceeds d.",
        claim: "Theory says n⁻¹ for RFA once n exceeds d, √B(f*)(√(1/n) + √(d²/M)) in general.",
        scale: Scale::Quick,
        seed: 20_240_207,
        version: "0.1.0".into(),
        points: 240,
        rows: 1920,
        seconds: 431.0,
        config: toml::Table::from_iter([("sizes".into(), vec![100_i64; 48].into()), ("name".into(), "long, ".repeat(40).into())]),
        by_default: true,
        together: true,
        overtaken: true,
        summary: Summary { findings, figures, tables: vec![table()] },
    }
}

/// All of them.
pub fn experiments() -> Vec<Finished> {
    vec![
        finished("learning-curves", "Test error of frozen random heads against the number of examples", vec![learning_curves()]),
        finished("structures", "Structured teachers", vec![names(), heats()]),
        finished("many", "A-very-long-title-without-any-space-in-it-that-a-phone-has-to-break-somewhere", vec![many()]),
    ]
}

/// A layer that was learned.
pub fn run() -> RunPage {
    let teacher = TeacherSpec::dense(8, 2, 6.0).draw(&mut ChaCha8Rng::seed_from_u64(2)).unwrap();
    let source = TeacherStream::new(&teacher, 4, InputDistribution::Boolean, 7, None);
    let learned = recovery::sculpt(&source, 2, 1 << 20, 0, &|| false).unwrap();
    let mut figures = phases::figures(&learned.phases().expect("the six phases were asked for").records);
    figures.extend(learned.layer.as_ref().map(|layer| phases::matrices(Some(&teacher), layer)));
    RunPage {
        title: "A layer with two heads".into(),
        subtitle: "d = 8, sequences of four tokens of ±1".into(),
        facts: vec![("examples".into(), learned.examples.to_string())],
        outcome: learned.outcome.to_string(),
        good: true,
        notes: learned.certificate.iter().filter_map(|c| Some(c.to_string().lines().next()?.to_owned())).collect(),
        tables: vec![table()],
        figures,
        links: vec![("examples a/rather/long/path/to/a-file-with-a-long-name.safetensors".into(), "e.safetensors".into())],
        config: "attnlearn learn e.safetensors --heads 2 -o layer.safetensors --report run.html --json result.json\n".repeat(3),
    }
}
