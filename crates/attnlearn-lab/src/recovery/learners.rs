//! Learners that see examples and nothing else, and stop after so much work: never after so much time, which would be another result on another day.

use attnlearn::Result;
use attnlearn::data::ExampleSource;
use attnlearn::descend::{Choice, HeadCount, Learner, Prepared, Rank, StrategySettings, Wanted};
use attnlearn::engine::Batch;
use attnlearn::layer::{AttentionLayer, Mask};
use attnlearn::scores::Scores;
use attnlearn::sculpt::{self, Heads, Learned, Settings};

/// How hard to try.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Of the practical learner: 1 is its least, 10 its default.
    pub descend: f64,
    /// Seed of its starts.
    pub seed: u64,
}

/// What the practical learner answers.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The layer, in canonical form.
    pub layer: AttentionLayer,
    /// Share of the variance of the examples that it leaves unexplained.
    pub nmse: f64,
    /// Starts that it took.
    pub starts: usize,
}

/// The practical learner, told the number of heads (of full rank unless `rank` says otherwise) and the mask.
pub fn descend(
    examples: &Batch<f64>,
    heads: usize,
    rank: Option<usize>,
    mask: Mask,
    effort: Effort,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Answer> {
    search(examples, heads, rank, mask, effort, usize::MAX, stop)
}

/// The same without a mask, for so many starts: effort is a number of operations, which are more starts of a small layer than of a large one.
pub fn descend_starts(
    examples: &Batch<f64>,
    heads: usize,
    rank: Option<usize>,
    starts: usize,
    seed: u64,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Answer> {
    search(examples, heads, rank, Mask::None, Effort { descend: ENOUGH, seed }, starts, stop)
}

/// More effort than any search is to make.
const ENOUGH: f64 = 1e6;

fn search(
    examples: &Batch<f64>,
    heads: usize,
    rank: Option<usize>,
    mask: Mask,
    effort: Effort,
    most_starts: usize,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Answer> {
    let (train, none) = examples.clone().split_at(examples.len());
    let prepared = Prepared::new(train, none)?;
    let wanted = Wanted {
        heads: HeadCount::Given(heads),
        rank: rank.map_or(Rank::Full, Rank::Given),
        value_rank: Rank::Full,
        biases: Choice::No,
        scores: Scores::of(mask),
        groups: None,
        relative: false,
        strategy: StrategySettings { seed: effort.seed, effort: effort.descend, ..StrategySettings::default() },
    };
    let mut learner = Learner::new(&prepared, wanted)?;
    let mut starts = 0;
    while !learner.advance(stop)? {
        let state = &learner.run.state;
        if state.end.is_none() && state.refined >= most_starts {
            // Those of the next round have been drawn, and come to nothing.
            starts = state.refined;
            break;
        }
    }
    if starts == 0 {
        starts = learner.run.state.starts;
    }
    let (layer, nmse) = learner.best_so_far()?;
    Ok(Answer { layer: layer.canonical(1e-7).layer, nmse, starts })
}

/// The six phases, told the number of heads.
pub fn sculpt(
    source: &dyn ExampleSource,
    heads: usize,
    most_examples: u64,
    seed: u64,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Learned> {
    phases(source, Settings { heads: Heads::Given(heads), most_examples, seed, ..Settings::default() }, stop)
}

/// The six phases as the paper has them, told the number of heads: rows are certified by agreement alone, and nothing is polished.
pub fn agreement(
    source: &dyn ExampleSource,
    heads: usize,
    most_examples: u64,
    seed: u64,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Learned> {
    let heads = Heads::Given(heads);
    phases(source, Settings { heads, most_examples, seed, separate: false, polish: false, ..Settings::default() }, stop)
}

fn phases(source: &dyn ExampleSource, settings: Settings, stop: &(dyn Fn() -> bool + Sync)) -> Result<Learned> {
    sculpt::learn(source, &settings.check(source)?, &Stopped(stop))
}

/// Nobody watches, but it can be stopped.
struct Stopped<'a>(&'a (dyn Fn() -> bool + Sync));

impl sculpt::Watch for Stopped<'_> {
    fn interrupted(&self) -> bool {
        self.0()
    }
}
