//! How fast do frozen heads learn? Test error against the number of sets `n`, learner by learner and target by target.
//!
//! Theory bounds the excess risk by `√B(f*) (√(1/n) + √(d²/M))` up to logarithms, `B` the squared norm of the target in the space of the kernel:
//!
//! | target | RFA | RFMLP | BRFA |
//! |---|---|---|---|
//! | average | `4^{p−1}` | `(N+2)^p/N` | about RFA |
//! | correlation | `d^p` | `d^p (N+2)^{2p+q}/N` | no `d^p` |
//!
//! so attention should beat the perceptron on averages, and biased heads should be best on correlations with the query. Errors are `MSE/Var` on fresh sets, every
//! fit with the ridge of its own least leave-one-out error.

use crate::experiment::{Experiment, Finding, Measurements, Scale, Summary, Table, ascending, seeds};
use crate::features::{
    Errors, Kind, NOTHING, Named, Ratio, Scored, Task, Verdict, capital, column_texts, compare, joined, parse_targets, points,
    title,
};
use crate::stats::{Estimate, short};
use attnlearn::Result;
use attnlearn::features::{KernelSpec, Precision, SetInputs, Target, TargetSpec};
use attnlearn_page::plot::{Axis, Chart, Figure, Panel, Series};
use serde::{Deserialize, Serialize};

/// The experiment.
pub struct Samples;

/// What can be chosen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// Dimension of query and keys.
    pub d: usize,
    /// Keys, N.
    pub keys: usize,
    /// Heads, M; the perceptron has M(d+1) neurons.
    pub heads: usize,
    /// Sets to learn from.
    pub n: Vec<u64>,
    /// Kernels are fitted to this many sets at most.
    pub kernel_most: u64,
    /// Fresh sets.
    pub n_test: u64,
    /// Seeds.
    pub seeds: u64,
    /// Precision of features; kernels have double.
    pub precision: Precision,
    /// Learners.
    pub learners: Vec<Named>,
    /// Targets.
    pub targets: Vec<String>,
}

/// A learner and a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    learner: Named,
    d: usize,
    keys: usize,
    /// 0 where there are infinitely many.
    heads: usize,
    n: u64,
    n_test: u64,
    precision: Precision,
    targets: String,
    seed: u64,
}

/// What an error belongs to.
type Key = (String, Named, u64);

impl Experiment for Samples {
    const NAME: &'static str = "samples";
    const TITLE: &'static str = "Test error against sample size";
    const QUESTION: &'static str = "How many examples do frozen attention heads need on averages, correlations and mixtures of them, beside a perceptron with as many trained numbers and the limits of infinitely many heads?";
    const CLAIM: &'static str = "Attention beats the perceptron on averages over keys, biased heads are as good there and best on correlations with the query; the excess risk falls as √(B(f*)/n) for infinitely many heads.";
    const TOGETHER: bool = false;
    type Config = Config;
    type Point = Point;
    type Row = Scored;

    fn config(scale: Scale) -> Config {
        let (easy, hard) = (
            "mixed:gamma=0.5,simple=average:p=2,hard=correlation:p=1,q=1",
            "mixed:gamma=0.5,simple=average:p=5,hard=correlation:p=4,q=2",
        );
        let targets = [
            "average:p=2",
            "average:p=3",
            "average:p=5",
            "correlation:p=1,q=0",
            "correlation:p=1,q=1",
            "correlation:p=2,q=1",
            "correlation:p=4,q=2",
            easy,
            hard,
        ];
        Config {
            d: scale.pick(8, 16),
            keys: scale.pick(8, 16),
            heads: scale.pick(100, 1000),
            n: scale.pick(vec![64, 128, 256, 512, 1024, 2048], vec![128, 256, 512, 1024, 2048, 4096, 8192]),
            kernel_most: scale.pick(1024, 4096),
            n_test: scale.pick(1000, 4000),
            seeds: 5,
            precision: scale.pick(Precision::F64, Precision::F32),
            learners: vec![Named::Rfa, Named::Brfa, Named::Rfmlp, Named::KernelRfa, Named::KernelBrfa, Named::KernelRfmlp],
            targets: targets.map(str::to_owned).to_vec(),
        }
    }

    fn tidy(config: &mut Config) {
        ascending(&mut config.n);
    }

    fn points(config: &Config, seed: u64) -> Vec<Point> {
        let targets = column_texts(&config.targets);
        let mut all = Vec::new();
        for &n in &config.n {
            for seed in seeds(seed, config.seeds) {
                for &learner in config.learners.iter().filter(|learner| !learner.infinite() || n <= config.kernel_most) {
                    let (heads, precision) =
                        if learner.infinite() { (0, Precision::F64) } else { (config.heads, config.precision) };
                    let (d, keys, n_test, targets) = (config.d, config.keys, config.n_test, targets.clone());
                    all.push(Point { learner, d, keys, heads, n, n_test, precision, targets, seed });
                }
            }
        }
        all
    }

    fn measure(point: &Point, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Scored>> {
        let &Point { learner, d, keys, heads, n, n_test, precision, seed, .. } = point;
        let task = Task { d, keys, n, n_test, columns: parse_targets(&point.targets)?, seed };
        task.score(&learner.learner(d, keys, heads, precision, task.stream()), stop)
    }

    fn summarise(config: &Config, rows: &Measurements<Self>) -> Result<Summary> {
        let all = rows.iter().map(|m| ((m.row.target.clone(), m.point.learner, m.point.n), m.point.seed, m.row.error));
        let seen = Seen { config, errors: Errors::new(all) };
        let mut findings = Vec::new();
        for (family, of) in FAMILIES {
            findings.extend(seen.finding(family, of)?);
        }
        findings.extend(seen.rates()?.map(Finding::open));
        let figures = FAMILIES.iter().filter_map(|(family, of)| seen.figure(family, of)).collect();
        Ok(Summary { findings, figures, tables: vec![seen.errors_table(), seen.bounds()?] })
    }
}

/// Kinds of targets that theory tells apart.
const FAMILIES: [Kind; 3] = [
    ("averages", |target| target.starts_with("average")),
    ("correlations", |target| target.starts_with("correlation")),
    ("mixtures", |target| target.starts_with("mixed")),
];

/// What theory says of two learners on a kind of targets: that the first errs less, or that they err about alike, within a quarter.
const CLAIMS: [(&str, Named, Named, Verdict); 6] = [
    ("averages", Named::Rfa, Named::Rfmlp, Verdict::First),
    ("averages", Named::Brfa, Named::Rfmlp, Verdict::First),
    ("averages", Named::Rfa, Named::Brfa, Verdict::Alike),
    ("correlations", Named::Brfa, Named::Rfa, Verdict::First),
    ("correlations", Named::Brfa, Named::Rfmlp, Verdict::First),
    ("correlations", Named::Rfa, Named::Rfmlp, Verdict::First),
];

/// Whether errors are as expected; nothing where they do not tell.
fn holds(ratio: &Ratio, expected: Verdict) -> Option<bool> {
    match ratio.verdict() {
        Verdict::Unclear | Verdict::TooFew => None,
        verdict => Some(verdict == expected || expected == Verdict::Alike && ratio.close()),
    }
}

/// An ordering of theory that was not seen.
struct Failed<'a> {
    target: &'a str,
    a: Named,
    b: Named,
    expected: Verdict,
}

impl Failed<'_> {
    fn name(&self) -> String {
        let than = if self.expected == Verdict::Alike { "about as good as" } else { "better than" };
        format!("{} {than} {} on {}", self.a.name(), self.b.name(), title(self.target))
    }
}

struct Seen<'a> {
    config: &'a Config,
    errors: Errors<Key>,
}

impl Seen<'_> {
    fn mean(&self, target: &str, learner: Named, n: u64) -> Option<Estimate> {
        self.errors.mean(&(target.to_owned(), learner, n))
    }

    /// The largest n that has been measured.
    fn most(&self) -> u64 {
        self.errors.keys().map(|key| key.2).max().unwrap_or(0)
    }

    /// Errors of two learners from n sets.
    fn ratio(&self, target: &str, a: Named, b: Named, n: u64) -> Option<Ratio> {
        let key = |learner| (target.to_owned(), learner, n);
        self.errors.ratio(&key(a), &key(b))
    }

    /// The largest n that kernels were fitted on.
    fn most_of_kernels(&self) -> Option<u64> {
        self.errors.keys().filter(|key| key.1.infinite()).map(|key| key.2).max()
    }

    /// Targets of a kind of which somebody has learnt something at the largest n, and the others; those that nobody was fitted on there are neither.
    fn learnt(&self, of: fn(&str) -> bool) -> (Vec<&String>, Vec<&String>) {
        let errors = |target: &String| -> Vec<f64> {
            let error = |&learner: &Named| Some(self.mean(target, learner, self.most())?.value);
            self.config.learners.iter().filter_map(error).collect()
        };
        let measured = self.config.targets.iter().filter(|target| of(target) && !errors(target).is_empty());
        measured.partition(|target| errors(target).iter().any(|error| *error <= NOTHING))
    }

    /// Who beats whom on a kind of targets, at the largest n.
    fn finding(&self, family: &str, of: fn(&str) -> bool) -> Result<Option<Finding>> {
        let n = self.most();
        let (learnt, hopeless) = self.learnt(of);
        let (mut parts, mut asked, mut held, mut failed) = (Vec::new(), 0, 0, Vec::new());
        let known: Vec<_> = CLAIMS.iter().filter(|claim| claim.0 == family).copied().collect();
        let open = [("", Named::Rfa, Named::Rfmlp, Verdict::First), ("", Named::Brfa, Named::Rfa, Verdict::First)];
        for &(_, a, b, expected) in if known.is_empty() { &open[..] } else { &known[..] } {
            let mut on = Vec::new();
            for &target in &learnt {
                let Some(ratio) = self.ratio(target, a, b, n) else { continue };
                asked += 1;
                match holds(&ratio, expected) {
                    Some(true) => held += 1,
                    Some(false) => failed.push(Failed { target, a, b, expected }),
                    None => {}
                }
                on.push((title(target), ratio));
            }
            parts.extend((!on.is_empty()).then(|| compare(a.name(), b.name(), &on)));
        }
        if !hopeless.is_empty() {
            let names: Vec<String> = hopeless.iter().map(|target| title(target)).collect();
            parts.push(format!("nobody learns {} (errors above {NOTHING})", joined(&names)));
        }
        let verdict = match () {
            () if known.is_empty() => format!(", of which theory orders nothing, {}", self.winners(&learnt)),
            () if asked == 0 => String::new(),
            () if held == asked => ", all as theory has it".into(),
            () => format!(", {held} of {asked} orderings as theory has them"),
        };
        let told = !known.is_empty() && asked > 0;
        if parts.is_empty() {
            return Ok(None);
        }
        let why = if told && !failed.is_empty() { self.why(&failed)? } else { String::new() };
        let text = format!("{} at n = {n}{verdict}: {}.{why}", capital(family), parts.join("; "));
        Ok(Some(Finding::judged(text, told && held == asked, told && !failed.is_empty())))
    }

    /// Why orderings may fail: because heads are finitely many, unless their kernels fail too; because sets are too few for the bounds to say anything.
    fn why(&self, failed: &[Failed<'_>]) -> Result<String> {
        let (n, kernels_n) = (self.most() as f64, self.most_of_kernels().unwrap_or(0));
        let (mut compared, mut alike, mut early) = (0, 0, 0);
        for of in failed {
            // Heads and kernels from as many sets; where heads do as theory says with those, nothing is to be explained.
            let fails = |a, b| Some(!holds(&self.ratio(of.target, a, b, kernels_n)?, of.expected)?);
            if fails(of.a, of.b) == Some(true)
                && let Some(fail) = of.a.limit().zip(of.b.limit()).and_then(|(a, b)| fails(a, b))
            {
                compared += 1;
                alike += usize::from(fail);
            }
            // No bound is known for biased heads.
            let known = [of.a, of.b].into_iter().filter(|learner| *learner != Named::Brfa).filter_map(Named::kernel);
            let mut least = f64::INFINITY;
            for kernel in known {
                least = self.bound(of.target, &kernel)?.map_or(least, |b| least.min(b));
            }
            early += usize::from(least.is_finite() && least >= n);
        }
        let all = failed.len();
        let kernels = match compared {
            0 => String::new(),
            _ if alike == 0 => format!(" With infinitely many heads (n = {kernels_n}) it is seen: heads are too few."),
            _ if alike == compared && compared == failed.len() => {
                format!(" It is not seen with infinitely many heads either (n = {kernels_n}), so the number of heads is not why.")
            }
            _ => format!(
                " With infinitely many heads (n = {kernels_n}) {alike} of {compared} are not seen either: there the number of heads is not why."
            ),
        };
        let bounds = match early {
            0 => String::new(),
            _ if early == all => " Theory's B exceeds n there: upper bounds that large order nothing yet.".into(),
            _ => format!(" In {early} of {all} cases theory's B exceeds n: upper bounds that large order nothing yet."),
        };
        Ok(format!(" Not seen: {}.{kernels}{bounds}", joined(&failed.iter().map(Failed::name).collect::<Vec<_>>())))
    }

    /// How often each learner with frozen heads errs least at the largest n.
    fn winners(&self, targets: &[&String]) -> String {
        let frozen = [Named::Rfa, Named::Brfa, Named::Rfmlp];
        let best = |target: &&String| {
            let errors = frozen.iter().filter_map(|&learner| Some((learner, self.mean(target, learner, self.most())?.value)));
            errors.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(learner, _)| learner)
        };
        let winners: Vec<Named> = targets.iter().filter_map(best).collect();
        let wins = |learner: &Named| (learner.name(), winners.iter().filter(|winner| *winner == learner).count());
        let parts = frozen.iter().map(wins).filter(|(_, wins)| *wins > 0);
        let parts: Vec<String> = parts.map(|(name, wins)| format!("{name} on {wins} of {}", targets.len())).collect();
        if parts.is_empty() { "nothing is learnt".into() } else { format!("the least error has {}", joined(&parts)) }
    }

    /// The upper half of the sizes that a learner was fitted on, and its errors' exponent there.
    fn exponent(&self, target: &str, learner: Named) -> Option<Estimate> {
        let sizes: Vec<u64> =
            self.config.n.iter().copied().filter(|n| self.errors.of(&(target.to_owned(), learner, *n)).is_some()).collect();
        let upper: Vec<(f64, Key)> =
            sizes[sizes.len() / 2..].iter().map(|&n| (n as f64, (target.to_owned(), learner, n))).collect();
        self.errors.exponent(&upper)
    }

    /// How errors fall, beside the rate of the bound.
    fn rates(&self) -> Result<Option<String>> {
        let n = self.most();
        let mut rates: Vec<(Estimate, String)> = Vec::new();
        for target in &self.config.targets {
            for learner in [Named::Rfa, Named::Brfa, Named::Rfmlp] {
                let learnt = self.mean(target, learner, n).is_some_and(|error| error.value <= NOTHING);
                if let Some(rate) = self.exponent(target, learner).filter(|_| learnt) {
                    rates.push((rate, format!("{rate} for {} on {}", learner.name(), title(target))));
                }
            }
        }
        rates.sort_by(|a, b| a.0.value.total_cmp(&b.0.value));
        let (Some(first), Some(last)) = (rates.first(), rates.last()) else { return Ok(None) };
        let slower = rates.iter().filter(|(rate, _)| rate.above(-0.5)).count();
        let mut telling = Vec::new();
        for target in &self.config.targets {
            telling.extend(self.bound(target, &KernelSpec::Rfa)?.filter(|b| b / (n as f64) < 1.0).map(|_| title(target)));
        }
        let telling = if telling.is_empty() { "no target".into() } else { joined(&telling) };
        Ok(Some(format!(
            "Over the upper half of the sizes errors fall as n^b, b from {} to {}; {slower} of {} curves where something is learnt fall more slowly than \
             the n^−0.5 of theory's bound for infinitely many heads, whose √(B/n) is below 1 for {telling} at n = {n}.",
            first.1,
            last.1,
            rates.len(),
        )))
    }

    fn figure(&self, family: &str, of: &fn(&str) -> bool) -> Option<Figure> {
        let panels: Vec<Panel> =
            self.config.targets.iter().filter(|target| of(target)).map(|target| self.panel(target)).collect();
        (!panels.is_empty()).then(|| Figure {
            name: format!("error-on-{family}"),
            title: format!("Error on {family} against the number of sets"),
            caption: format!(
                "Lower is better, 1 is what a constant reaches. d = {}, N = {}, M = {} heads, or as many trained numbers; kernels have infinitely many. Bars are 95 % \
                 intervals over {} seeds. The dashed line has the slope of theory's bound, √(B/n), put through RFA's last point: only its slope means something.",
                self.config.d, self.config.keys, self.config.heads, self.config.seeds
            ),
            panels,
        })
    }

    fn panel(&self, target: &str) -> Panel {
        let line = |&learner: &Named| {
            points(learner.name(), &self.errors, self.config.n.iter().map(|&n| (n as f64, (target.to_owned(), learner, n))))
        };
        let mut series: Vec<Series> = self.config.learners.iter().map(line).filter(|series| !series.points.is_empty()).collect();
        if let Some(end) = self.mean(target, Named::Rfa, self.most()) {
            let rate = |&n: &u64| (n as f64, end.value * (self.most() as f64 / n as f64).sqrt());
            series.push(Series::theory("slope of √(B/n)", self.config.n.iter().map(rate)));
        }
        Panel::Chart(Chart {
            title: title(target),
            x: Axis::log("sets to learn from, n"),
            y: Axis::log("test error, MSE / Var"),
            series,
        })
    }

    fn errors_table(&self) -> Table {
        let n = self.most();
        let kernels = self.most_of_kernels().filter(|most| *most < n);
        let kernels = kernels.map_or_else(String::new, |most| format!("; {most} for kernels"));
        let mut rows = Vec::new();
        for target in &self.config.targets {
            for &learner in &self.config.learners {
                let mut sizes = self.config.n.iter().filter_map(|&n| Some((n, self.mean(target, learner, n)?)));
                if let Some((n, error)) = sizes.next_back() {
                    let rate = self.exponent(target, learner).map_or_else(|| "–".into(), |rate| rate.to_string());
                    rows.push(vec![title(target), learner.name().into(), n.to_string(), error.to_string(), rate]);
                }
            }
        }
        Table {
            caption: format!(
                "Errors at the largest n ({n}{kernels}) and exponents b of n^b over the upper half of the sizes of each learner."
            ),
            columns: ["target", "learner", "n", "MSE / Var", "exponent"].map(str::to_owned).to_vec(),
            rows,
        }
    }

    /// `B` of a target of variance 1.
    fn bound(&self, target: &str, kernel: &KernelSpec) -> Result<Option<f64>> {
        let (target, inputs): (TargetSpec, _) = (target.parse()?, SetInputs::new(self.config.keys, self.config.d));
        let variance = Target::new(&target, inputs, 0)?.variance();
        Ok(target.complexity(kernel, &inputs).map(|bound| bound.sharp / variance))
    }

    /// What theory's bound comes to.
    fn bounds(&self) -> Result<Table> {
        let n = self.most();
        let mut rows = Vec::new();
        for target in &self.config.targets {
            let mut row = vec![title(target)];
            for kernel in [KernelSpec::Rfa, KernelSpec::Rfmlp] {
                let b = self.bound(target, &kernel)?;
                row.push(b.map_or_else(|| "–".into(), short));
                row.push(b.map_or_else(|| "–".into(), |b| short((b / n as f64).sqrt())));
            }
            rows.push(row);
        }
        Ok(Table {
            caption: format!(
                "Theory's bounds, constants and logarithms left out: B is the squared norm of the target scaled to variance 1, √(B/n) the term for \
                 n = {n} sets, which says something where it is below 1. No bound is known for BRFA."
            ),
            columns: ["target", "B, RFA", "√(B/n), RFA", "B, RFMLP", "√(B/n), RFMLP"].map(str::to_owned).to_vec(),
            rows,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::experiment::{Measured, Stance};

    fn config() -> Config {
        let targets = ["average:p=2", "correlation:p=1,q=1"].map(str::to_owned).to_vec();
        Config {
            d: 4,
            keys: 3,
            heads: 5,
            n: vec![5, 10, 20, 40, 80, 160],
            n_test: 100,
            seeds: 3,
            targets,
            ..Samples::config(Scale::Quick)
        }
    }

    #[test]
    fn points_are_measured_alike_every_time() {
        let points = Samples::points(&config(), 1);
        assert_eq!(points.len(), 6 * 3 * 6);
        for point in points.iter().filter(|point| point.n == 80 && point.seed == 1000) {
            let rows = Samples::measure(point, &|| false).unwrap();
            assert_eq!(rows, Samples::measure(point, &|| false).unwrap());
            assert!(rows.len() == 2 && rows.iter().all(|row| row.error > 0.0 && row.error < 2.0), "{point:?} {rows:?}");
        }
    }

    /// Errors `factor · n^−½`, by learner; a little different from seed to seed.
    fn made(factor: fn(Named, &str) -> f64) -> Summary {
        Samples::summarise(&config(), &made_rows(factor)).unwrap()
    }

    fn made_rows(factor: fn(Named, &str) -> f64) -> Vec<Measured<Point, Scored>> {
        Samples::points(&config(), 1)
            .into_iter()
            .flat_map(|point| {
                config().targets.into_iter().map(move |target| {
                    let wobble = 1.0 + 0.02 * (point.seed % 3) as f64 * if point.learner == Named::Rfa { 1.0 } else { 0.5 };
                    let error = factor(point.learner, &target) * wobble / (point.n as f64).sqrt();
                    Measured { point: point.clone(), row: Scored { target, error, ridge: 0.1 }, seconds: 0.0 }
                })
            })
            .collect()
    }

    /// The sentences say who is better, whoever it is.
    #[test]
    fn findings_follow_the_data() {
        let theory = made(|learner, target| match (learner, target.starts_with("average")) {
            (Named::Rfmlp, _) => 3.0,
            (Named::Brfa, false) => 0.5,
            _ => 1.0,
        });
        assert!(
            theory.findings[0]
                .text
                .starts_with("Averages at n = 160, all as theory has it: RFA beats RFMLP on average p=2 (ratio of errors 0.33")
        );
        assert!(
            theory.findings[1].text.starts_with("Correlations at n = 160, all as theory has it: BRFA beats RFA"),
            "{}",
            theory.findings[1].text
        );
        let stance = |summary: &Summary| [0, 1].map(|i| summary.findings[i].stance);
        assert!(stance(&theory) == [Stance::Agrees; 2] && !theory.findings[0].text.contains("Not seen"));
        assert!(theory.findings[2].text.contains("b from −0.500"), "{}", theory.findings[2].text);
        assert!(theory.figures.len() == 2 && theory.tables[0].rows.len() == 12);
        let other = made(|learner, _| if learner == Named::Rfmlp { 1.0 } else { 3.0 });
        assert!(
            other.findings[0].text.starts_with("Averages at n = 160, 1 of 3 orderings as theory has them: RFMLP beats RFA"),
            "{}",
            other.findings[0].text
        );
        assert!(
            other.findings[0]
                .text
                .contains("Not seen: RFA better than RFMLP on average p=2 and BRFA better than RFMLP on average p=2.")
                && other.findings[0].text.contains("It is not seen with infinitely many heads either"),
            "{}",
            other.findings[0].text
        );
        assert_eq!(stance(&other), [Stance::Differs; 2]);
        let few = made(|learner, _| match learner {
            Named::Rfmlp => 1.0,
            Named::KernelRfmlp => 9.0,
            _ => 3.0,
        });
        assert!(few.findings[0].text.contains("With infinitely many heads (n = 160) it is seen"), "{}", few.findings[0].text);
        // Who was not asked has not failed.
        let alone: Vec<_> = made_rows(|_, _| 1.0).into_iter().filter(|one| one.point.learner == Named::KernelRfa).collect();
        let alone = Samples::summarise(&config(), &alone).unwrap();
        assert!(!alone.findings.iter().any(|one| one.text.contains("nobody")), "{:?}", alone.findings);
        let nothing = made(|_, _| 20.0);
        assert!(nothing.findings[0].text.contains("nobody learns average p=2"), "{}", nothing.findings[0].text);
    }
}
