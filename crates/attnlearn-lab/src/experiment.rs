//! What an experiment is: points to measure, and what follows from all of them.
//!
//! ```text
//! configuration  →  points  →  rows of each point  →  findings, figures, tables
//! ```
//!
//! A point carries everything that its rows depend on, seed and sizes included: a point that was measured once need never be measured again, whatever
//! else changes in the configuration. Time is no part of rows, which are the same whenever they are measured; it is kept beside them.

use attnlearn::{Error, Result};
pub use attnlearn_page::Table;
use attnlearn_page::plot::Figure;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::marker::PhantomData;

/// How much to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// All experiments in some minutes.
    Quick,
    /// The papers' sizes, in hours.
    Full,
}

impl Scale {
    /// One of two.
    pub fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

/// One row of a point, and how long the point took.
#[derive(Clone, Debug)]
pub struct Measured<P, R> {
    /// The point.
    pub point: P,
    /// The row.
    pub row: R,
    /// Seconds that the whole point took.
    pub seconds: f64,
}

/// Those of an experiment.
pub type Measurements<E> = [Measured<<E as Experiment>::Point, <E as Experiment>::Row>];

/// A sentence computed from the data, with its uncertainty, beside what is claimed. What it comes to stands first; a colon may be followed by all that it is made up of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The sentence.
    pub text: String,
    /// How it stands to the claim.
    pub stance: Stance,
}

/// How a finding stands to what is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stance {
    /// It was seen as claimed.
    Agrees,
    /// Something else was seen.
    Differs,
    /// Nothing is claimed about it, or the data do not tell.
    Open,
}

impl Finding {
    /// What it comes to: the sentence as far as its colon.
    pub fn headline(&self) -> &str {
        self.text.split(": ").next().unwrap_or_default().trim_end_matches('.')
    }

    /// As claimed, or not as claimed, if the data tell either.
    pub fn judged(text: impl Into<String>, agrees: bool, differs: bool) -> Self {
        let stance = match (agrees, differs) {
            (true, false) => Stance::Agrees,
            (false, true) => Stance::Differs,
            _ => Stance::Open,
        };
        Self { text: text.into(), stance }
    }

    /// Seen as claimed.
    pub fn agrees(text: impl Into<String>) -> Self {
        Self { text: text.into(), stance: Stance::Agrees }
    }

    /// Something else was seen than is claimed.
    pub fn differs(text: impl Into<String>) -> Self {
        Self { text: text.into(), stance: Stance::Differs }
    }

    /// Nothing is claimed about it, or the data do not tell.
    pub fn open(text: impl Into<String>) -> Self {
        Self { text: text.into(), stance: Stance::Open }
    }
}

/// What follows from all rows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// What was found.
    pub findings: Vec<Finding>,
    /// Pictures.
    #[serde(skip)]
    pub figures: Vec<Figure>,
    /// Tables.
    pub tables: Vec<Table>,
}

/// A question and how it is answered. Points and rows are flat: every field a number, a text, or a yes or no.
pub trait Experiment: Sync + 'static {
    /// What the command line calls it.
    const NAME: &'static str;
    /// Its heading.
    const TITLE: &'static str;
    /// What is asked.
    const QUESTION: &'static str;
    /// What the papers claim about it, or that they leave it open.
    const CLAIM: &'static str;
    /// Whether several points may be measured at once: not where a point needs much memory, or its time is of interest.
    const TOGETHER: bool;
    /// Raised whenever the same point would give other rows: points that were kept before are then measured again.
    const REVISION: u32 = 0;
    /// What can be chosen.
    type Config: Serialize + DeserializeOwned;
    /// A point.
    type Point: Serialize + DeserializeOwned;
    /// A row.
    type Row: Serialize + DeserializeOwned;

    /// The defaults.
    fn config(scale: Scale) -> Self::Config;
    /// Puts lists in the order that findings rely on: a user may give them in any, and a number twice.
    fn tidy(_config: &mut Self::Config) {}
    /// Refuses before anything is measured what could not be measured, such as a file that is not there.
    fn check(_config: &Self::Config) -> Result<()> {
        Ok(())
    }
    /// The points, the cheap ones first where that says something early. `seed` is the user's.
    fn points(config: &Self::Config, seed: u64) -> Vec<Self::Point>;
    /// Measures one. What `stop` stops ends with [`Error::Interrupted`].
    fn measure(point: &Self::Point, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Self::Row>>;
    /// What follows.
    fn summarise(config: &Self::Config, rows: &Measurements<Self>) -> Result<Summary>
    where
        Self: Sized;
}

/// `count` seeds, others for every seed of the user's.
pub fn seeds(seed: u64, count: u64) -> impl Iterator<Item = u64> + Clone {
    (0..count).map(move |s| seed.wrapping_mul(1000).wrapping_add(s))
}

/// From the least to the largest, each once.
pub fn ascending<T: PartialOrd>(list: &mut Vec<T>) {
    list.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
    list.dedup();
}

/// A measured point as it is kept: also how it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// The point.
    pub point: Value,
    /// Its rows.
    pub rows: Vec<Value>,
    /// Seconds that it took.
    pub seconds: f64,
    /// [`Experiment::REVISION`] when it was measured.
    #[serde(default)]
    pub revision: u32,
    /// Version of the program that measured it.
    #[serde(default = "first_version")]
    pub version: String,
}

/// The version that did not write its name.
fn first_version() -> String {
    "0.1.0".into()
}

/// An [`Experiment`] whose types are hidden, as the registry has them.
pub trait Entry: Sync {
    /// [`Experiment::NAME`].
    fn name(&self) -> &'static str;
    /// [`Experiment::TITLE`].
    fn title(&self) -> &'static str;
    /// [`Experiment::QUESTION`].
    fn question(&self) -> &'static str;
    /// [`Experiment::CLAIM`].
    fn claim(&self) -> &'static str;
    /// [`Experiment::TOGETHER`].
    fn together(&self) -> bool;
    /// [`Experiment::REVISION`].
    fn revision(&self) -> u32;
    /// The defaults with some of them replaced.
    fn config(&self, scale: Scale, replaced: &toml::Table) -> Result<toml::Table>;
    /// [`Experiment::check`].
    fn check(&self, config: &toml::Table) -> Result<()>;
    /// [`Experiment::points`].
    fn points(&self, config: &toml::Table, seed: u64) -> Result<Vec<Value>>;
    /// [`Experiment::measure`].
    fn measure(&self, point: &Value, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Value>>;
    /// [`Experiment::summarise`].
    fn summarise(&self, config: &toml::Table, done: &[Done]) -> Result<Summary>;
}

/// The [`Entry`] of an experiment.
pub struct Of<E>(PhantomData<E>);

impl<E> Of<E> {
    /// It has no state.
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<E> Default for Of<E> {
    fn default() -> Self {
        Self::new()
    }
}

fn settings<E: Experiment>(config: &toml::Table) -> Result<E::Config> {
    let mut config = config.clone().try_into().map_err(|e: toml::de::Error| {
        let problem = e.message().to_owned();
        Error::input(format!("configuration of {}", E::NAME), problem, "`attnlearn lab list --config` shows what there is")
    })?;
    E::tidy(&mut config);
    Ok(config)
}

/// Numbers of a value or of a list.
fn numbers(value: &toml::Value) -> Vec<&toml::Value> {
    value.as_array().map_or_else(|| vec![value], |list| list.iter().flat_map(numbers).collect())
}

/// Refuses numbers that are none, sizes that no machine holds, and sizes of 0 where the default is not 0; without seeds a part of an experiment is left out.
fn sensible(key: &str, value: &toml::Value, default: &toml::Value) -> std::result::Result<(), (String, &'static str)> {
    let zero = |one: &&toml::Value| one.as_integer() == Some(0);
    if numbers(value).iter().any(|one| one.as_float().is_some_and(|number| !number.is_finite())) {
        return Err((format!("`{key}` holds what is no number"), "give finite numbers"));
    }
    if !key.ends_with("seeds") && numbers(value).iter().any(zero) && !numbers(default).iter().any(zero) {
        return Err((format!("`{key}` may not be 0"), "give 1 or more"));
    }
    // Every seed is a point in a list, and more points than this nobody waits for.
    let most = if key.ends_with("seeds") { 100_000 } else { 1_000_000_000 };
    if numbers(value).iter().any(|one| one.as_integer().is_some_and(|number| number > most)) {
        return Err((format!("`{key}` is above {most}"), "give less"));
    }
    Ok(())
}

fn kept(what: &str) -> impl Fn(serde_json::Error) -> Error {
    move |e| Error::input(format!("{what} that was kept"), e.to_string(), "use another folder, or remove this experiment's")
}

impl<E: Experiment + Send> Entry for Of<E> {
    fn name(&self) -> &'static str {
        E::NAME
    }

    fn title(&self) -> &'static str {
        E::TITLE
    }

    fn question(&self) -> &'static str {
        E::QUESTION
    }

    fn claim(&self) -> &'static str {
        E::CLAIM
    }

    fn together(&self) -> bool {
        E::TOGETHER
    }

    fn revision(&self) -> u32 {
        E::REVISION
    }

    fn config(&self, scale: Scale, replaced: &toml::Table) -> Result<toml::Table> {
        let place = format!("configuration of {}", E::NAME);
        let mut config = toml::Table::try_from(E::config(scale))
            .map_err(|e| Error::input(&place, e.to_string(), "leave it at its defaults"))?;
        for (key, value) in replaced {
            let Some(default) = config.get(key) else {
                let known: Vec<&str> = config.keys().map(String::as_str).collect();
                return Err(Error::input(place, format!("there is no `{key}`"), format!("choose among {}", known.join(", "))));
            };
            sensible(key, value, default).map_err(|(problem, remedy)| Error::input(&place, problem, remedy))?;
            config.insert(key.clone(), value.clone());
        }
        settings::<E>(&config)?;
        Ok(config)
    }

    fn check(&self, config: &toml::Table) -> Result<()> {
        E::check(&settings::<E>(config)?)
    }

    fn points(&self, config: &toml::Table, seed: u64) -> Result<Vec<Value>> {
        let points: Vec<Value> = E::points(&settings::<E>(config)?, seed)
            .iter()
            .map(|point| serde_json::to_value(point).map_err(kept("a point")))
            .collect::<Result<_>>()?;
        // What is asked for twice is measured once.
        let mut met = HashSet::new();
        Ok(points.into_iter().filter(|point| met.insert(point.to_string())).collect())
    }

    fn measure(&self, point: &Value, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Value>> {
        let point = E::Point::deserialize(point).map_err(kept("a point"))?;
        E::measure(&point, stop)?.iter().map(|row| serde_json::to_value(row).map_err(kept("a row"))).collect()
    }

    fn summarise(&self, config: &toml::Table, done: &[Done]) -> Result<Summary> {
        let mut rows = Vec::new();
        for done in done {
            for row in &done.rows {
                rows.push(Measured {
                    point: E::Point::deserialize(&done.point).map_err(kept("a point"))?,
                    row: E::Row::deserialize(row).map_err(kept("a row"))?,
                    seconds: done.seconds,
                });
            }
        }
        E::summarise(&settings::<E>(config)?, &rows)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;

    #[test]
    fn lists_come_in_order_and_seeds_apart() {
        let mut list = vec![0.3, 0.1, 0.3, 0.2];
        ascending(&mut list);
        assert_eq!(list, [0.1, 0.2, 0.3]);
        let all: HashSet<u64> = (0..3).flat_map(|seed| seeds(seed, 5)).collect();
        assert_eq!(all.len(), 15);
        assert_eq!(seeds(u64::MAX, 2).count(), 2);
    }

    #[test]
    fn senseless_numbers_are_refused() {
        let table: toml::Table =
            "size = 3\nlist = [1, 2]\nnone = 0\nseeds = 4\nlevel = 0.5\nzeros = [0, 1]\nname = \"a\"".parse().unwrap();
        let told = |key: &str, value: &str| {
            let value: toml::Table = format!("value = {value}").parse().unwrap();
            sensible(key, &value["value"], &table[key]).err().map(|(problem, _)| problem)
        };
        for (key, value) in [("size", "0"), ("list", "[4, 0]"), ("level", "nan"), ("level", "inf"), ("list", "[1, -inf]")] {
            assert!(told(key, value).unwrap().contains(key), "{key} = {value}");
        }
        for (key, value) in [("size", "1"), ("none", "0"), ("seeds", "0"), ("level", "0.0"), ("zeros", "[0]"), ("name", "'b'")] {
            assert_eq!(told(key, value), None, "{key} = {value}");
        }
    }
}
