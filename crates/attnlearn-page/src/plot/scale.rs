//! Axes: which numbers they show, where these are, and which of them are written out.
//!
//! An axis measures in its own unit `u`: `u = v` where it is linear, `u = log₁₀ v` where it is logarithmic. Measured values are all within its ends;
//! ends of error bars and what theory says are followed only so far, for a bar from two seeds can be a hundred times as long as all that was measured.
//!
//! Steps between ticks are `1, 2, 5 · 10ᵏ`: the smallest step with at most [`MOST`] ticks leaves at least three, since the one before it had more than
//! `MOST` and is at most 2.5 times smaller.

use super::Scale;
use super::svg::{Anchor, escape, num, text, width};

/// Ticks at most.
pub const MOST: usize = 8;

/// A number as it is written at an axis: `3·10` and, raised, `−4`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// On the line.
    pub base: String,
    /// Above it.
    pub raised: String,
}

/// How much smaller raised digits are.
const RAISED: f64 = 0.74;

impl Label {
    fn plain(base: impl Into<String>) -> Self {
        Self { base: base.into(), raised: String::new() }
    }

    /// `mantissa · 10^power`.
    fn power(mantissa: &str, power: i32) -> Self {
        let base = if mantissa == "1" { "10".into() } else { format!("{mantissa}·10") };
        Self { base, raised: minus(&power.to_string()) }
    }

    /// Width in a font of this size.
    pub fn width(&self, size: f64) -> f64 {
        width(&self.base, size) + width(&self.raised, RAISED * size)
    }

    /// As an element.
    pub fn draw(&self, class: &str, x: f64, y: f64, size: f64, anchor: Anchor) -> String {
        let mut content = escape(&self.base);
        if !self.raised.is_empty() {
            let (up, small) = (num(-0.38 * size), num(RAISED * size));
            content += &format!("<tspan dy=\"{up}\" font-size=\"{small}\">{}</tspan>", escape(&self.raised));
        }
        text(class, x, y, size, anchor, &content)
    }
}

/// A minus that is as wide as a plus.
fn minus(number: &str) -> String {
    number.replace('-', "−")
}

/// A number of at most three digits, or a whole one of at most five.
pub fn label(value: f64) -> Label {
    let size = value.abs();
    if size == 0.0 {
        return Label::plain("0");
    }
    if value.fract().abs() < 1e-9 * size && size < 99_999.5 {
        return Label::plain(minus(&format!("{value:.0}")));
    }
    let text = format!("{value:.2e}");
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let (mantissa, power) = (tidy(mantissa), power.parse::<i32>().unwrap_or(0));
    if (-3..5).contains(&power) {
        let digits = usize::try_from(2 - power).unwrap_or(0);
        Label::plain(tidy(&format!("{value:.digits$}")))
    } else {
        Label::power(&mantissa, power)
    }
}

/// Without zeros after the point that say nothing.
fn tidy(number: &str) -> String {
    minus(if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number })
}

/// A number that is written out.
#[derive(Clone, Debug)]
pub struct Tick {
    /// Which.
    pub value: f64,
    /// How it is written.
    pub label: Label,
}

/// The ends of an axis in its own unit.
#[derive(Clone, Debug)]
pub struct Ruler {
    low: f64,
    high: f64,
    log: bool,
    names: Vec<String>,
}

/// Values that an axis must show, and those that it follows so far.
#[derive(Clone, Debug, Default)]
pub struct Extent {
    /// Measured values.
    pub values: Vec<f64>,
    /// Error bars: both ends.
    pub bars: Vec<(f64, f64)>,
    /// What theory says.
    pub theory: Vec<f64>,
    /// Whether an axis that nearly begins at 0 is to do so.
    pub from_nothing: bool,
}

impl Ruler {
    /// An axis for these numbers, or `None` if there are none that it can show.
    pub fn new(scale: &Scale, extent: &Extent) -> Option<Self> {
        let log = *scale == Scale::Log;
        if let Scale::Names(names) = scale {
            let high = names.len() as f64 - 0.5;
            return (!names.is_empty()).then(|| Self { low: -0.5, high, log, names: names.clone() });
        }
        let own = |v: &f64| Some(*v).filter(|v| v.is_finite() && (!log || *v > 0.0)).map(|v| if log { v.log10() } else { v });
        let values: Vec<f64> = extent.values.iter().filter_map(own).collect();
        let theory: Vec<f64> = extent.theory.iter().filter_map(own).collect();
        let firm = if values.is_empty() { &theory } else { &values };
        let ends = |v: &[f64]| v.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), x| (l.min(*x), h.max(*x)));
        let (mut low, mut high) = ends(firm);
        if low > high {
            return None;
        }
        // How far beyond what was measured: as far as most bars reach, unless they dwarf everything.
        let span = high - low;
        let bars: Vec<(f64, f64)> = extent.bars.iter().filter_map(|(l, h)| Some((own(l)?, own(h)?))).collect();
        let mut lengths: Vec<f64> = bars.iter().map(|(l, h)| h - l).collect();
        lengths.sort_by(f64::total_cmp);
        let typical = lengths.get(lengths.len() / 2).copied().unwrap_or(0.0);
        let bearable = if log { (2.0 * span).max(1.0) } else { (4.0 * span).max(low.abs()).max(high.abs()) };
        let reach = (0.5 * span).max(typical.min(bearable));
        let soft = bars.iter().flat_map(|(l, h)| [*l, *h]).chain(theory.iter().copied());
        let (least, most) = (low - reach, high + reach);
        for x in soft {
            low = low.min(x.max(least));
            high = high.max(x.min(most));
        }
        if extent.from_nothing && !log && low >= 0.0 && low <= 0.4 * high {
            low = 0.0;
        }
        let tiny = 1e-6 * low.abs().max(high.abs());
        if high - low <= tiny {
            let half = if log {
                0.3
            } else if high.abs() > 0.0 {
                0.5 * high.abs()
            } else {
                1.0
            };
            (low, high) = (low - half, high + half);
        }
        let margin = 0.04 * (high - low);
        Some(Self { low: low - margin, high: high + margin, log, names: Vec::new() })
    }

    /// Where a number is: 0 at the lower end, 1 at the upper one, and beyond.
    pub fn place(&self, value: f64) -> Option<f64> {
        if !value.is_finite() || (self.log && value <= 0.0) {
            return None;
        }
        let own = if self.log { value.log10() } else { value };
        Some((own - self.low) / (self.high - self.low))
    }

    /// Whether the numbers are names.
    pub fn named(&self) -> bool {
        !self.names.is_empty()
    }

    /// The ticks: all names, or three to [`MOST`] numbers.
    pub fn ticks(&self) -> Vec<Tick> {
        if self.named() {
            return self.names.iter().enumerate().map(|(i, name)| Tick { value: i as f64, label: Label::plain(name) }).collect();
        }
        if self.log { self.log_ticks() } else { linear_ticks(self.low, self.high) }
    }

    /// Ticks at these numbers, if they are few and can be told apart.
    pub fn ticks_at(&self, values: &[f64]) -> Option<Vec<Tick>> {
        let mut own: Vec<f64> =
            values.iter().copied().filter(|v| self.place(*v).is_some_and(|at| (0.0..=1.0).contains(&at))).collect();
        own.sort_by(f64::total_cmp);
        own.dedup_by(|a, b| a.total_cmp(b).is_eq());
        let ticks: Vec<Tick> = own.into_iter().map(|value| Tick { value, label: label(value) }).collect();
        let distinct = ticks.windows(2).all(|pair| pair[0].label != pair[1].label);
        ((1..=MOST).contains(&ticks.len()) && distinct).then_some(ticks)
    }

    /// Marks between the ticks of a logarithmic axis: 2, 3, … 9 times the powers of ten.
    pub fn small_ticks(&self) -> Vec<f64> {
        if !self.log || self.high - self.low > 6.0 {
            return Vec::new();
        }
        self.times(&[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
    }

    /// Those of `m · 10ᵏ` within the ends.
    fn times(&self, mantissas: &[f64]) -> Vec<f64> {
        let powers = self.low.floor() as i32..=self.high.ceil() as i32;
        let all = powers.flat_map(|power| mantissas.iter().map(move |m| m * 10_f64.powi(power)));
        all.filter(|v| self.place(*v).is_some_and(|at| (0.0..=1.0).contains(&at))).collect()
    }

    fn log_ticks(&self) -> Vec<Tick> {
        let powers: Vec<i32> = (self.low.ceil() as i32..=self.high.floor() as i32).collect();
        if powers.len() >= 3 {
            let kept = |stride: &i32| powers.iter().filter(|power| **power % stride == 0).count() <= MOST;
            let stride = (1..).find(kept).unwrap_or(1);
            let plain = powers.iter().all(|power| (-2..=4).contains(power));
            let tick = |power: &i32| {
                let value = 10_f64.powi(*power);
                Tick { value, label: if plain { label(value) } else { Label::power("1", *power) } }
            };
            return powers.iter().filter(|power| **power % stride == 0).map(tick).collect();
        }
        // Equal steps come last: over more than a factor of two they crowd at the upper end.
        for mantissas in [&[1.0, 3.0][..], &[1.0, 2.0, 5.0], &[1.0, 2.0, 3.0, 5.0], &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0]] {
            let values = self.times(mantissas);
            if (3..=MOST).contains(&values.len()) {
                return values.into_iter().map(|value| Tick { value, label: label(value) }).collect();
            }
        }
        linear_ticks(10_f64.powf(self.low), 10_f64.powf(self.high))
    }
}

fn linear_ticks(low: f64, high: f64) -> Vec<Tick> {
    // The smallest step that leaves few enough.
    let mut power = ((high - low) / 100.0).log10().floor() as i32;
    let inside = |step: f64| ((low / step).ceil() as i64, (high / step).floor() as i64);
    let (step, first, last, digits) = loop {
        let found = [1.0, 2.0, 5.0].into_iter().find_map(|m| {
            let step = if power < 0 { m / 10_f64.powi(-power) } else { m * 10_f64.powi(power) };
            let (first, last) = inside(step);
            (last - first < MOST as i64).then_some((step, first, last, power))
        });
        match found {
            Some(found) => break found,
            None => power += 1,
        }
    };
    let largest = low.abs().max(high.abs());
    let plain = largest < 99_999.5 && digits > -5;
    let write = |value: f64| {
        if value == 0.0 {
            Label::plain("0")
        } else if plain {
            let digits = usize::try_from(-digits).unwrap_or(0);
            Label::plain(minus(&format!("{value:.digits$}")))
        } else {
            // As many digits as tell a step from the next.
            let top = value.abs().log10().floor() as i32;
            let digits = usize::try_from(top - digits).unwrap_or(0);
            let text = format!("{value:.digits$e}");
            let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
            Label::power(&tidy(mantissa), power.parse().unwrap_or(0))
        }
    };
    (first..=last).map(|i| i as f64 * step).map(|value| Tick { value, label: write(value) }).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn ruler(scale: &Scale, values: &[f64]) -> Ruler {
        Ruler::new(scale, &Extent { values: values.to_vec(), ..Extent::default() }).unwrap()
    }

    fn written(ticks: &[Tick]) -> Vec<String> {
        let one =
            |label: &Label| if label.raised.is_empty() { label.base.clone() } else { format!("{}^{}", label.base, label.raised) };
        ticks.iter().map(|tick| one(&tick.label)).collect()
    }

    /// Over ranges of all sizes and places, near 0 and far from it.
    #[test]
    fn ticks_are_few_inside_and_told_apart() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for case in 0..20_000 {
            let size = 10_f64.powf(rng.random_range(-12.0..12.0));
            let low: f64 = size * rng.random_range(-1.0..1.0);
            let high = low + size * 10_f64.powf(rng.random_range(-3.0..3.0));
            let sets =
                [(Scale::Linear, low, high), (Scale::Log, size, size * 10_f64.powf(10_f64.powf(rng.random_range(-2.5..1.5))))];
            for (scale, low, high) in sets {
                let ruler = ruler(&scale, &[low, high]);
                let ticks = ruler.ticks();
                assert!((3..=MOST).contains(&ticks.len()), "{case} {scale:?} {low} {high}: {:?}", written(&ticks));
                let places: Vec<f64> = ticks.iter().map(|tick| ruler.place(tick.value).unwrap()).collect();
                assert!(places.iter().all(|at| (-1e-9..=1.0 + 1e-9).contains(at)), "{case} {scale:?} {low} {high}: {places:?}");
                assert!(places.windows(2).all(|pair| pair[0] < pair[1]));
                let mut labels = written(&ticks);
                labels.sort();
                labels.dedup();
                assert_eq!(labels.len(), ticks.len(), "{case} {scale:?} {low} {high}: {:?}", written(&ticks));
            }
        }
    }

    #[test]
    fn labels_are_as_people_write_them() {
        let of = |scale, values: &[f64]| written(&ruler(&scale, values).ticks());
        assert_eq!(of(Scale::Linear, &[0.0, 1.0]), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(of(Scale::Log, &[1e-6, 1.0]), ["10^−6", "10^−5", "10^−4", "10^−3", "10^−2", "10^−1", "10^0"]);
        assert_eq!(of(Scale::Log, &[1.0, 1000.0]), ["1", "10", "100", "1000"]);
        assert_eq!(of(Scale::Log, &[0.67, 4.44]), ["1", "2", "3"]);
        assert_eq!(of(Scale::Log, &[0.67, 1.9]), ["0.7", "1", "1.5"]);
        assert_eq!(of(Scale::Log, &[1e-30, 1e-2]), ["10^−28", "10^−24", "10^−20", "10^−16", "10^−12", "10^−8", "10^−4"]);
        assert_eq!(of(Scale::Names(vec!["a".into(), "b".into()]), &[]), ["a", "b"]);
        let at = |values: &[f64]| written(&ruler(&Scale::Log, values).ticks_at(values).unwrap());
        assert_eq!(at(&[16.0, 64.0, 768.0, 64.0]), ["16", "64", "768"]);
        assert_eq!(at(&[0.25, 1.5, 200_000.0]), ["0.25", "1.5", "2·10^5"]);
    }

    /// Equal numbers have an axis too; no numbers have none.
    #[test]
    fn an_axis_needs_something_to_show() {
        for value in [0.0, -3.0, 1e-9, 1e300] {
            assert!(ruler(&Scale::Linear, &[value; 3]).ticks().len() >= 3);
        }
        for extent in [vec![], vec![f64::NAN, f64::INFINITY], vec![0.0, -1.0]] {
            assert!(Ruler::new(&Scale::Log, &Extent { values: extent, ..Extent::default() }).is_none());
        }
    }

    /// One bar from two seeds does not flatten a curve, and theory is not followed for ever.
    #[test]
    fn long_bars_do_not_hide_what_was_measured() {
        let values: Vec<f64> = (1..=8).map(f64::from).collect();
        let mut bars: Vec<(f64, f64)> = values.iter().map(|v| (v - 0.5, v + 0.5)).collect();
        bars[0] = (-1000.0, 1000.0);
        let ruler = Ruler::new(&Scale::Linear, &Extent { values, bars, theory: vec![1e9], from_nothing: true }).unwrap();
        assert!(ruler.place(8.0).unwrap() - ruler.place(1.0).unwrap() > 0.4);
        assert!(ruler.place(-1000.0).unwrap() < 0.0 && ruler.place(1e9).unwrap() > 1.0);
    }
}
