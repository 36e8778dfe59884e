//! Which examples serve which purpose: the certificate, the choice among answers, or learning.
//!
//! Every example has a key, a 64-bit hash `h` of the seed and its input `X`, and the input alone decides where it belongs. Without a causal mask a layer does
//! to a sequence in another order what it does to the sequence: then `h` is that of its tokens in any order, and such inputs count as one. Of `D` distinct inputs
//!
//! ```text
//! certificate   the c = min(held out, D/5) inputs of least h, each as the example of least key of input and output
//! choice        the next min(2000, (D − c)/10), likewise
//! learning      all others, in the order of h; the first of them if not all fit in memory
//! ```
//!
//! So copies of an input never stand on two sides, and none is counted twice by what judges. Neither the order of a file nor its copies make any
//! difference to what is held out. An example that is a copy of another in input and output alike teaches nothing new, and descent sees it once.
//!
//! # What is assumed
//!
//! The certificate takes its examples for independent draws, and for independent of what was learned. Inputs that are independent draws of a
//! distribution without atoms are all distinct; given their keys, any `c` of them chosen by a random function of the input alone are such draws too, and
//! independent of the others. `h` is no random function, but has nothing to do with how well a layer does, unless somebody has made the inputs for it.
//! Where inputs do repeat, the guarantee is about inputs that were not learned from, a repeated one weighing as much as any other. Inputs that are
//! nearly the same count as different.
//!
//! # Memory
//!
//! `D` is counted up to `5·held out + 20 000` by checkpointing so many least keys: beyond, all that depends on it is known. The sides of certificate and choice are kept, and
//! the bit of every example that tells whether it is to learn from.

use super::budget;
use super::parts::Parts;
use super::watch::{Event, Reader, Watch};
use crate::data::{Block, ExampleSource, Fill, Shape, Watched, scan};
use crate::engine::Batch;
use crate::hash::Key;
use crate::words::Setting;
use crate::{Error, Result};
use rayon::prelude::*;
use std::ops::Range;

/// Examples to choose by, at most.
const CHOICE: usize = 2000;
/// Fewest distinct inputs that can be divided.
const FEWEST: usize = 10;
/// Distinct inputs that are counted beside five for every one held out: a tenth of what is left is then enough to choose by.
const COUNTED: usize = 10 * CHOICE;

/// Examples side by side.
pub(super) struct Sides {
    /// In memory, if that was asked for.
    pub learn: Option<Batch<f64>>,
    pub choose: Batch<f64>,
    pub certify: Batch<f64>,
    pub parts: Parts,
    learning: Learning,
}

/// What is asked for.
pub(super) struct Division {
    pub held_out: u64,
    pub seed: u64,
    /// Whether the order of tokens means something.
    pub ordered: bool,
    /// Bytes that may be taken.
    pub memory: u64,
}

impl Division {
    /// Shares out the first `n` examples of a source; `most` of those to learn from come into memory, if any are to.
    pub fn of(&self, source: &dyn ExampleSource, n: u64, most: Option<usize>, watch: &dyn Watch) -> Result<Sides> {
        if n < FEWEST as u64 {
            return Err(Error::input("examples", format!("only {n} of them"), format!("give at least {FEWEST}")));
        }
        if self.held_out == 0 {
            return Err(Error::input(Setting::new("held_out"), "no examples held out", "a certificate needs at least one"));
        }
        let shape = source.shape();
        let held_out = usize::try_from(self.held_out.min(n / 5)).unwrap_or(usize::MAX);
        let counted = held_out.saturating_mul(5).saturating_add(COUNTED);
        // Keys wait in a list twice as long before it is put in order.
        let keys = 16_u64.saturating_mul((counted as u64).min(n))
            + if most.is_some() { 48 * n.min(most.unwrap_or(0) as u64) } else { 0 };
        let judges = budget::bytes(shape, held_out as u64 + CHOICE.min(held_out) as u64);
        budget::check(keys.saturating_add(judges).saturating_add(n / 8), self.memory, "sharing the examples out")?;

        watch.tell(Event::Pass { what: "examples counted", examples: n });
        let mut least = Least::new(counted);
        self.each(source, n, watch, |(x, _)| x, |x| least.push(x))?;
        watch.tell(Event::PassEnded);
        let (inputs, all) = least.finish();
        if inputs.len() < FEWEST {
            let problem = format!("only {} different inputs among {n}", inputs.len());
            return Err(Error::input(
                "examples",
                problem,
                format!("give at least {FEWEST}: copies cannot say how well the others are explained"),
            ));
        }
        let certify = held_out.min(inputs.len() / 5);
        let choose = ((inputs.len() - certify) / 10).clamp(1, CHOICE);
        let (certify, rest) = inputs.split_at(certify);
        let (choose, rest) = rest.split_at(choose);
        let bounds = (rest.first().copied().unwrap_or(u64::MAX), inputs.last().copied().unwrap_or(u64::MAX));

        let mut learn = Vec::new();
        if let Some(most) = most {
            watch.tell(Event::Pass { what: "examples drawn", examples: n });
            let mut least = Least::new(most);
            self.each(
                source,
                n,
                watch,
                |keys| keys,
                |keys| {
                    if keys.0 >= bounds.0 {
                        least.push(keys)
                    }
                },
            )?;
            watch.tell(Event::PassEnded);
            learn = least.finish().0;
        }
        let slots = Slots { certify, choose, learn: &learn, first: bounds.0 };
        let mut sides = Sides {
            learn: most.map(|_| room(shape, learn.len())).transpose()?,
            choose: room(shape, choose.len())?,
            certify: room(shape, certify.len())?,
            parts: Parts {
                learn: learn.len() as u64,
                choose: choose.len() as u64,
                certify: certify.len() as u64,
                of: n,
                repeats: 0,
                left_out: 0,
                shape,
            },
            learning: Learning::default(),
        };
        let counted = self.gather(source, n, watch, &slots, bounds.1, &mut sides)?;
        // All of those with a counted input, or as large a share of all as of those.
        let fresh = inputs.len() as f64 / counted.max(1) as f64;
        sides.parts.repeats = if all { n - inputs.len() as u64 } else { (n as f64 * (1.0 - fresh)).round() as u64 };
        if most.is_none() {
            sides.parts.learn = sides.learning.total();
        }
        Ok(sides)
    }

    /// Keys of every example, in order; found on all threads.
    fn each<T: Send>(
        &self,
        source: &dyn ExampleSource,
        n: u64,
        watch: &dyn Watch,
        of: impl Fn((u64, u64)) -> T + Sync,
        mut visit: impl FnMut(T),
    ) -> Result<()> {
        let reader = Reader(watch);
        let source = Watched::new(source, &reader).at_most(n);
        let of_block = |block: &Block<f64>| self.plain(block).2.into_iter().map(&of).collect::<Vec<T>>();
        scan(&source, 0..blocks(n), of_block, |keys| keys.into_iter().for_each(&mut visit))
    }

    /// Puts every example into its place; how many have an input of key at most `last`.
    fn gather(
        &self,
        source: &dyn ExampleSource,
        n: u64,
        watch: &dyn Watch,
        slots: &Slots<'_>,
        last: u64,
        sides: &mut Sides,
    ) -> Result<u64> {
        let shape = source.shape();
        watch.tell(Event::Pass { what: "examples read", examples: n });
        let reader = Reader(watch);
        let source = Watched::new(source, &reader).at_most(n);
        // So many blocks at a time, some tens of megabytes.
        let wave = ((1 << 25) / (budget::bytes(shape, Block::<f64>::CAPACITY as u64)).max(1)).clamp(1, 64);
        let (mut taken, mut counted) = ([vec![None; slots.certify.len()], vec![None; slots.choose.len()]], 0);
        let mut first = 0;
        while first < blocks(n) {
            let range = first..(first + wave).min(blocks(n));
            first = range.end;
            let read: Vec<Result<_>> = range
                .into_par_iter()
                .map(|index| {
                    let mut block = Block::<f64>::new(shape);
                    source.fill_f64(index, &mut block)?;
                    let (x, y, keys) = self.plain(&block);
                    let places: Vec<Place> = keys.iter().map(|keys| slots.of(*keys)).collect();
                    Ok((x, y, keys, places))
                })
                .collect();
            for block in read {
                let (x, y, keys, places) = block?;
                let (per_x, per_y) = (shape.k * shape.d, shape.k * shape.d_out);
                for (i, (place, (key, example))) in places.into_iter().zip(keys).enumerate() {
                    counted += u64::from(key <= last);
                    sides.learning.push(matches!(place, Place::Learn(_)));
                    let (batch, slot) = match place {
                        Place::Certify(slot) if is_least(&mut taken[0][slot], example) => (&mut sides.certify, slot),
                        Place::Choose(slot) if is_least(&mut taken[1][slot], example) => (&mut sides.choose, slot),
                        Place::Certify(_) | Place::Choose(_) => continue,
                        Place::Learn(slot) => match (&mut sides.learn, slot) {
                            (Some(batch), Some(slot)) => (batch, slot),
                            (Some(_), None) => {
                                sides.parts.left_out += 1;
                                continue;
                            }
                            (None, _) => continue,
                        },
                    };
                    batch.x[slot * per_x..(slot + 1) * per_x].copy_from_slice(&x[i * per_x..(i + 1) * per_x]);
                    batch.y[slot * per_y..(slot + 1) * per_y].copy_from_slice(&y[i * per_y..(i + 1) * per_y]);
                }
            }
        }
        watch.tell(Event::PassEnded);
        Ok(counted)
    }

    /// Numbers of a block in plain order, and the keys of every example: of its input, and of input and output as they stand.
    fn plain(&self, block: &Block<f64>) -> (Vec<f64>, Vec<f64>, Vec<(u64, u64)>) {
        let Shape { k, d, d_out } = block.shape();
        let (mut x, mut y) = (vec![0.0; block.len() * k * d], vec![0.0; block.len() * k * d_out]);
        block.copy_inputs(&mut x);
        block.copy_outputs(&mut y);
        let keys = x.chunks_exact(k * d).zip(y.chunks_exact(k * d_out)).map(|(x, y)| {
            let key = Key::new(self.seed).with(x);
            let of_input = if self.ordered { key } else { Key::new(self.seed).with_unordered(x, d) };
            (of_input.value(), key.with(y).value())
        });
        let keys = keys.collect();
        (x, y, keys)
    }
}

impl Sides {
    /// What chooses, for a while.
    pub fn take_choose(&mut self) -> Batch<f64> {
        let none = Batch { shape: self.choose.shape, x: Vec::new(), y: Vec::new() };
        std::mem::replace(&mut self.choose, none)
    }

    /// The examples to learn from as a source, in the order of the one that was shared out.
    pub fn learning<'a>(&'a self, source: &'a dyn ExampleSource) -> Gathered<'a> {
        Gathered { source, learning: &self.learning }
    }
}

/// Where the examples go, by their keys, all in order.
struct Slots<'a> {
    certify: &'a [u64],
    choose: &'a [u64],
    learn: &'a [(u64, u64)],
    /// The least key of an input to learn from.
    first: u64,
}

/// Where an example goes.
enum Place {
    Certify(usize),
    Choose(usize),
    /// Nowhere in memory, if it is not kept there.
    Learn(Option<usize>),
}

impl Slots<'_> {
    fn of(&self, keys: (u64, u64)) -> Place {
        if keys.0 >= self.first {
            return Place::Learn(self.learn.binary_search(&keys).ok());
        }
        match (self.certify.binary_search(&keys.0), self.choose.binary_search(&keys.0)) {
            (Ok(slot), _) => Place::Certify(slot),
            (_, Ok(slot)) => Place::Choose(slot),
            // Only if the examples have changed meanwhile.
            _ => Place::Learn(None),
        }
    }
}

/// Whether a key is the least of those that there have been, which it then is.
fn is_least(least: &mut Option<u64>, key: u64) -> bool {
    let so = least.is_none_or(|least| key < least);
    if so {
        *least = Some(key);
    }
    so
}

/// Room for so many examples, or word that there is none.
fn room(shape: Shape, n: usize) -> Result<Batch<f64>> {
    let numbers = |per: usize| {
        let mut numbers = Vec::new();
        n.checked_mul(per).filter(|len| numbers.try_reserve_exact(*len).is_ok()).map(|len| {
            numbers.resize(len, 0.0);
            numbers
        })
    };
    match (numbers(shape.k * shape.d), numbers(shape.k * shape.d_out)) {
        (Some(x), Some(y)) => Ok(Batch { shape, x, y }),
        _ => Err(budget::refused(budget::bytes(shape, n as u64), "the examples")),
    }
}

fn blocks(n: u64) -> u64 {
    n.div_ceil(Block::<f64>::CAPACITY as u64)
}

/// The least of many values, each once.
struct Least<T> {
    most: usize,
    values: Vec<T>,
    /// The greatest of as many as are kept: nothing from here on is.
    bound: Option<T>,
    all: bool,
}

impl<T: Ord + Copy> Least<T> {
    fn new(most: usize) -> Self {
        Self { most, values: Vec::new(), bound: None, all: true }
    }

    fn push(&mut self, value: T) {
        match self.bound {
            Some(bound) if value > bound => self.all = false,
            Some(bound) if value == bound => {}
            _ => {
                self.values.push(value);
                if self.values.len() >= self.most.saturating_mul(2).max(1024) {
                    self.sort();
                }
            }
        }
    }

    fn sort(&mut self) {
        self.values.sort_unstable();
        self.values.dedup();
        self.all &= self.values.len() <= self.most;
        self.values.truncate(self.most);
        if self.values.len() == self.most {
            self.bound = self.values.last().copied();
        }
    }

    /// In order, and whether there were no others.
    fn finish(mut self) -> (Vec<T>, bool) {
        self.sort();
        self.values.shrink_to_fit();
        (self.values, self.all)
    }
}

/// Which examples of a source are to learn from: a bit each, and how many there are before every block.
#[derive(Default)]
struct Learning {
    n: u64,
    bits: Vec<u64>,
    before: Vec<u64>,
    count: u64,
}

impl Learning {
    fn push(&mut self, learn: bool) {
        if self.n.is_multiple_of(64) {
            self.bits.push(0);
        }
        if self.n.is_multiple_of(Block::<f64>::CAPACITY as u64) {
            self.before.push(self.count);
        }
        if let Some(last) = self.bits.last_mut() {
            *last |= u64::from(learn) << (self.n % 64);
        }
        self.count += u64::from(learn);
        self.n += 1;
    }

    fn total(&self) -> u64 {
        self.count
    }

    /// The block of the source that holds the `rank`-th of them.
    fn block_of(&self, rank: u64) -> usize {
        self.before.partition_point(|before| *before <= rank).saturating_sub(1)
    }

    /// Places within a block of the source.
    fn places(&self, block: usize) -> impl Iterator<Item = usize> {
        let words = Block::<f64>::CAPACITY / 64;
        let bits = &self.bits[(block * words).min(self.bits.len())..((block + 1) * words).min(self.bits.len())];
        bits.iter().enumerate().flat_map(|(i, word)| (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| 64 * i + bit))
    }
}

/// The examples to learn from as a source: block by block in the order of the source that they come from, without the others.
pub(super) struct Gathered<'a> {
    source: &'a dyn ExampleSource,
    learning: &'a Learning,
}

impl Gathered<'_> {
    fn fill<T: Fill>(&self, index: u64, block: &mut Block<T>) -> Result<()> {
        let (shape, capacity) = (self.shape(), Block::<T>::CAPACITY as u64);
        let total = self.learning.total();
        let ranks = index.saturating_mul(capacity).min(total)..index.saturating_add(1).saturating_mul(capacity).min(total);
        let (per_x, per_y) = (shape.k * shape.d, shape.k * shape.d_out);
        let len = (ranks.end - ranks.start) as usize;
        let (mut x, mut y) = (Vec::with_capacity(len * per_x), Vec::with_capacity(len * per_y));
        let (mut xs, mut ys) = (Vec::new(), Vec::new());
        let Range { mut start, end } = ranks;
        while start < end {
            let from = self.learning.block_of(start);
            T::fill(self.source, from as u64, block)?;
            xs.resize(block.len() * per_x, T::ZERO);
            ys.resize(block.len() * per_y, T::ZERO);
            block.copy_inputs(&mut xs);
            block.copy_outputs(&mut ys);
            let skipped = (start - self.learning.before[from]) as usize;
            for place in self.learning.places(from).skip(skipped).take((end - start) as usize) {
                x.extend_from_slice(&xs[place * per_x..(place + 1) * per_x]);
                y.extend_from_slice(&ys[place * per_y..(place + 1) * per_y]);
                start += 1;
            }
        }
        block.set_inputs(&x);
        block.set_outputs(&y);
        Ok(())
    }
}

impl ExampleSource for Gathered<'_> {
    fn shape(&self) -> Shape {
        self.source.shape()
    }

    fn len(&self) -> Option<u64> {
        Some(self.learning.total())
    }

    fn fill_f32(&self, index: u64, block: &mut Block<f32>) -> Result<()> {
        self.fill(index, block)
    }

    fn fill_f64(&self, index: u64, block: &mut Block<f64>) -> Result<()> {
        self.fill(index, block)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::super::watch::Unwatched;
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;
    use std::collections::HashSet;

    const SHAPE: Shape = Shape { k: 2, d: 2, d_out: 1 };
    const MEMORY: u64 = 1 << 32;

    /// Examples without two of the same input, and the seed's own outputs.
    fn examples(n: usize, seed: u64) -> Batch<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut normals = |len: usize| (0..len).map(|_| rng.sample(StandardNormal)).collect();
        Batch { shape: SHAPE, x: normals(4 * n), y: normals(2 * n) }
    }

    fn divided(batch: &Batch<f64>, held_out: u64, seed: u64, most: Option<usize>) -> Result<Sides> {
        Division { held_out, seed, ordered: false, memory: MEMORY }.of(batch, batch.len() as u64, most, &Unwatched)
    }

    /// Bits of every input, in order.
    fn inputs(batch: &Batch<f64>) -> Vec<Vec<u64>> {
        batch.x.chunks(4).map(|x| x.iter().map(|v| v.to_bits()).collect()).collect()
    }

    fn set(batch: &Batch<f64>) -> HashSet<Vec<u64>> {
        inputs(batch).into_iter().collect()
    }

    /// Sorted by the first number, as files often are.
    fn sorted(batch: &Batch<f64>) -> Batch<f64> {
        let mut order: Vec<usize> = (0..batch.len()).collect();
        order.sort_by(|a, b| batch.x[4 * a].total_cmp(&batch.x[4 * b]));
        batch.select(&order)
    }

    #[test]
    fn every_example_serves_one_purpose() {
        for (n, held_out, sizes) in
            [(600, 20_000, (432, 48, 120)), (600, 30, (513, 57, 30)), (10, 5, (7, 1, 2)), (1300, 1, (1170, 129, 1))]
        {
            let batch = examples(n, 1);
            let sides = divided(&batch, held_out, 0, Some(n)).unwrap();
            let learn = sides.learn.as_ref().unwrap();
            assert_eq!((learn.len(), sides.choose.len(), sides.certify.len()), sizes, "{n}");
            let mut all = [learn, &sides.choose, &sides.certify].map(inputs).concat();
            let mut given = inputs(&batch);
            all.sort();
            given.sort();
            assert_eq!(all, given);
            let Parts { learn, choose, certify, of, repeats, left_out, .. } = sides.parts;
            assert_eq!((learn, choose, certify), (sizes.0 as u64, sizes.1 as u64, sizes.2 as u64));
            assert_eq!((of, repeats, left_out), (n as u64, 0, 0));
        }
    }

    /// Inputs go with their outputs.
    #[test]
    fn outputs_stay_with_their_inputs() {
        let mut batch = examples(700, 2);
        for i in 0..700 {
            (batch.y[2 * i], batch.y[2 * i + 1]) = (batch.x[4 * i] + 1.0, batch.x[4 * i + 3]);
        }
        let sides = divided(&batch, 100, 3, Some(700)).unwrap();
        for part in [sides.learn.as_ref().unwrap(), &sides.choose, &sides.certify] {
            for (x, y) in part.x.chunks(4).zip(part.y.chunks(2)) {
                assert_eq!([(x[0] + 1.0).to_bits(), x[3].to_bits()], [y[0].to_bits(), y[1].to_bits()]);
            }
        }
    }

    /// The order of a file makes no difference at all; another seed does. Of a sorted file the held-out part is spread over the whole: the mean rank of 240
    /// of 1200 is within four standard deviations of the middle, for each of ten seeds.
    #[test]
    fn order_does_not_matter_and_the_seed_does() {
        let shuffled = examples(1200, 3);
        let sorted = sorted(&shuffled);
        let ranks: std::collections::HashMap<_, _> = inputs(&sorted).into_iter().zip(0..).collect();
        let mut seen = HashSet::new();
        for seed in 0..10 {
            let (one, other) =
                (divided(&shuffled, 20_000, seed, Some(1200)).unwrap(), divided(&sorted, 20_000, seed, Some(1200)).unwrap());
            assert!(one.learn == other.learn && one.choose == other.choose && one.certify == other.certify, "seed {seed}");
            for part in [&one.certify, one.learn.as_ref().unwrap()] {
                let mean = inputs(part).iter().map(|x| f64::from(ranks[x])).sum::<f64>() / part.len() as f64;
                let deviation = 1200.0 / 12.0_f64.sqrt() / (part.len() as f64).sqrt();
                assert!((mean - 599.5).abs() < 4.0 * deviation, "seed {seed}: {mean}");
            }
            seen.insert(inputs(&one.certify));
        }
        assert_eq!(seen.len(), 10);
    }

    /// Two of each side by side, two files behind one another, one input most of the time, copies with outputs of their own: no input is on two sides, and none
    /// is counted twice.
    #[test]
    fn copies_stay_on_one_side_and_count_once() {
        let batch = examples(300, 4);
        let behind: Vec<usize> = (0..600).map(|i| i % 300).collect();
        let beside: Vec<usize> = (0..600).map(|i| i / 2).collect();
        let mostly: Vec<usize> = (0..1300).map(|i| if i % 13 == 0 { i / 13 } else { 0 }).collect();
        for seed in 0..5 {
            for (indices, distinct) in [(&behind, 300), (&beside, 300), (&mostly, 100)] {
                let mut copies = batch.select(indices);
                for relabelled in [false, true] {
                    if relabelled {
                        copies.y.iter_mut().enumerate().for_each(|(i, y)| *y = i as f64);
                    }
                    let sides = divided(&copies, 20_000, seed, Some(5000)).unwrap();
                    let learn = sides.learn.as_ref().unwrap();
                    assert_eq!((sides.certify.len(), sides.choose.len()), (distinct / 5, distinct * 4 / 5 / 10));
                    let parts = [learn, &sides.choose, &sides.certify].map(set);
                    assert_eq!(parts.iter().map(HashSet::len).sum::<usize>(), distinct);
                    assert!(parts[1].len() == sides.choose.len() && parts[2].len() == sides.certify.len());
                    // The same example twice says nothing new; the same input with another output does.
                    let kept = indices.iter().filter(|i| parts[0].contains(&inputs(&batch)[**i])).count();
                    assert_eq!(learn.len(), if relabelled { kept } else { parts[0].len() });
                    assert_eq!(sides.parts.repeats, (indices.len() - distinct) as u64);
                    assert!(sides.parts.to_string().contains("repeat the input of another"), "{}", sides.parts);
                }
            }
        }
    }

    /// All orders of three tokens are one input, unless order means something.
    #[test]
    fn orders_of_tokens_stay_on_one_side_and_count_once() {
        let shape = Shape { k: 3, d: 2, d_out: 1 };
        for seed in 0..5 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
            let (mut x, mut y) = (Vec::new(), Vec::new());
            for _ in 0..30 {
                let tokens: [[f64; 2]; 3] = std::array::from_fn(|_| [rng.sample(StandardNormal), rng.sample(StandardNormal)]);
                for order in orders {
                    x.extend(order.iter().flat_map(|i| tokens[*i]));
                    y.extend(order.iter().map(|i| tokens[*i][0]));
                }
            }
            let batch = Batch { shape, x, y };
            let of = |ordered| {
                let division = Division { held_out: 20_000, seed, ordered, memory: MEMORY };
                division.of(&batch, 180, Some(180), &Unwatched).unwrap()
            };
            let (one, all) = (of(false), of(true));
            assert_eq!((one.certify.len(), one.choose.len(), one.parts.learn, one.parts.repeats), (6, 2, 22 * 6, 150));
            assert_eq!((all.certify.len(), all.choose.len(), all.parts.learn, all.parts.repeats), (36, 14, 130, 0));
            let multiset = |x: &[f64]| {
                let mut bits: Vec<u64> = x.iter().map(|v| v.to_bits()).collect();
                bits.sort_unstable();
                bits
            };
            let sets = [one.learn.as_ref().unwrap(), &one.choose, &one.certify]
                .map(|side| side.x.chunks(6).map(multiset).collect::<HashSet<_>>());
            assert_eq!(sets.iter().map(HashSet::len).collect::<Vec<_>>(), [22, 2, 6]);
            assert_eq!(sets.iter().flatten().collect::<HashSet<_>>().len(), 30);
        }
    }

    /// Without ten inputs that differ there is nothing to certify with, however often they come.
    #[test]
    fn too_few_inputs_are_refused() {
        for (n, distinct, said) in
            [(9, 9, "only 9 of them"), (160, 8, "only 8 different inputs among 160"), (1000, 1, "only 1 different")]
        {
            let copies = examples(distinct, 5).select(&(0..n).map(|i| i % distinct).collect::<Vec<_>>());
            let refused = divided(&copies, 20_000, 0, Some(n)).err().unwrap().to_string();
            assert!(refused.contains(said), "{refused}");
        }
        assert!(divided(&examples(50, 5), 0, 0, None).err().unwrap().to_string().contains("no examples held out"));
    }

    /// What does not fit is left out at random, whatever the order, and said. The sides that judge are the same.
    #[test]
    fn what_does_not_fit_is_sampled() {
        let batch = examples(2000, 6);
        let whole = divided(&batch, 200, 1, Some(2000)).unwrap();
        let sides = divided(&batch, 200, 1, Some(100)).unwrap();
        let learn = sides.learn.as_ref().unwrap();
        assert!(*learn == whole.learn.as_ref().unwrap().select(&(0..100).collect::<Vec<_>>()));
        assert!(sides.certify == whole.certify && sides.choose == whole.choose);
        assert_eq!((sides.parts.learn, sides.parts.left_out), (100, 2000 - 200 - 180 - 100));
        assert!(sides.parts.to_string().contains("1 520 of 2 000, drawn at random, do not fit in memory"), "{}", sides.parts);
        assert!(divided(&sorted(&batch), 200, 1, Some(100)).unwrap().learn.as_ref() == Some(learn));
    }

    /// The source of examples to learn from holds them all, in their order, in both precisions, with copies.
    #[test]
    fn the_others_are_gathered() {
        let batch = examples(1500, 7).select(&(0..2300).map(|i| i % 1500).collect::<Vec<_>>());
        let sides = divided(&batch, 400, 2, None).unwrap();
        let judged: HashSet<_> = set(&sides.certify).union(&set(&sides.choose)).cloned().collect();
        let rest: Vec<usize> = inputs(&batch).iter().enumerate().filter(|(_, x)| !judged.contains(*x)).map(|(i, _)| i).collect();
        let (wanted, learning) = (batch.select(&rest), sides.learning(&batch));
        assert_eq!((learning.len(), sides.parts.learn), (Some(rest.len() as u64), rest.len() as u64));
        let read = Batch::<f64>::read(&learning, 0..9, usize::MAX).unwrap();
        assert!(read == wanted);
        let (mut given, mut same) = (Block::<f32>::new(SHAPE), Block::<f32>::new(SHAPE));
        for index in [3, 0, 1, 2, 7] {
            learning.fill_f32(index, &mut given).unwrap();
            wanted.fill_f32(index, &mut same).unwrap();
            assert!(given.len() == same.len() && given.panels().zip(same.panels()).all(|(a, b)| a == b), "block {index}");
        }
    }

    #[test]
    fn the_least_are_kept() {
        let mut rng = ChaCha8Rng::seed_from_u64(8);
        for (n, most) in [(0, 5), (3, 5), (5, 5), (5000, 5), (5000, 700), (5000, 5000)] {
            let values: Vec<u64> = (0..n).map(|_| rng.random_range(0..4000)).collect();
            let mut least = Least::new(most);
            values.iter().for_each(|v| least.push(*v));
            let mut wanted = values.clone();
            wanted.sort_unstable();
            wanted.dedup();
            let all = wanted.len() <= most;
            wanted.truncate(most);
            assert_eq!(least.finish(), (wanted, all), "{n}, {most}");
        }
    }

    /// Where there are more distinct inputs than are counted, their number is estimated: half of these examples repeat another.
    #[test]
    fn repeats_are_estimated_where_they_are_many() {
        let n = 2 * (COUNTED + 5 + 20_000);
        let copies = examples(n / 2, 9).select(&(0..n).map(|i| i / 2).collect::<Vec<_>>());
        let sides = divided(&copies, 1, 0, None).unwrap();
        assert_eq!((sides.certify.len(), sides.choose.len(), sides.parts.of), (1, CHOICE, n as u64));
        assert_eq!(sides.parts.repeats, n as u64 / 2);
    }

    #[test]
    fn sides_do_not_depend_on_threads() {
        let batch = examples(3000, 10).select(&(0..4000).map(|i| i % 3000).collect::<Vec<_>>());
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let sides = pool.install(|| divided(&batch, 300, 1, Some(1000)).unwrap());
            (sides.learn, sides.choose, sides.certify, sides.parts)
        };
        let one = on(1);
        assert!([2, 5].into_iter().all(|threads| on(threads) == one));
    }
}
