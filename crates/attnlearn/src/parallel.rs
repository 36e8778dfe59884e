//! Loops that all threads share.
//!
//! They go through one instance of the thread pool's machinery, which knows nothing of what the loop works on: each instance of its own costs as much
//! to compile as the arithmetic inside. Only loops whose threads keep something from item to item, such as blocks, have instances of their own. An item takes a lock that nobody else asks for, so items should be worth a microsecond.
//! Results stand in the order of the items, whichever thread came to them first.

use rayon::prelude::*;
use std::sync::{Mutex, PoisonError};

/// The one loop.
fn indices(n: usize, each: &(dyn Fn(usize) + Sync)) {
    (0..n).into_par_iter().for_each(each);
}

fn take<I>(place: &Mutex<Option<I>>) -> Option<I> {
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn shared<I>(items: impl IntoIterator<Item = I>) -> Vec<Mutex<Option<I>>> {
    items.into_iter().map(|item| Mutex::new(Some(item))).collect()
}

/// `work(item)` for every item.
pub(crate) fn each<I: Send>(items: impl IntoIterator<Item = I>, work: impl Fn(I) + Sync) {
    let items = shared(items);
    indices(items.len(), &|i| {
        if let Some(item) = take(&items[i]) {
            work(item);
        }
    });
}

/// `of(item)` of every item, in their order.
pub(crate) fn map<I: Send, R: Send>(items: impl IntoIterator<Item = I>, of: impl Fn(I) -> R + Sync) -> Vec<R> {
    let items = shared(items);
    let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    indices(items.len(), &|i| {
        if let Some(item) = take(&items[i]) {
            let result = of(item);
            *results[i].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        }
    });
    results.iter().filter_map(take).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_worked_on_once_and_results_keep_their_order() {
        let mut values = vec![0; 1000];
        each(values.chunks_mut(7).enumerate(), |(i, chunk)| chunk.iter_mut().for_each(|v| *v += i + 1));
        assert!(values.iter().enumerate().all(|(i, v)| *v == i / 7 + 1));
        assert_eq!(map(0..1000, |i| i * i), (0..1000).map(|i| i * i).collect::<Vec<_>>());
        assert!(map(Vec::<u8>::new(), |v| v).is_empty());
    }

    /// A panic in an item is the caller's panic, not a result that is missing.
    #[test]
    #[should_panic(expected = "item 3")]
    fn a_panic_comes_through() {
        let _ = map(0..10, |i| assert!(i != 3, "item 3"));
    }
}
