//! The assignment problem: match every row of a cost matrix with a column of its own at the least total cost.
//!
//! The Hungarian method in its shortest-augmenting-path form, `O(r² c)` for `r ≤ c`. It keeps dual prices `u_i`, `v_j` with
//!
//! ```text
//! cost_ij − u_i − v_j ≥ 0 everywhere,      = 0 on the pairs matched so far,
//! ```
//!
//! which proves the matching optimal. Each row enters by a Dijkstra search over these reduced costs.

use super::MatRef;

/// Sum-minimal assignment of `min(rows, columns)` pairs `(row, column)`, sorted by row. Costs that are not finite count as
/// `1e300`.
pub(crate) fn assign(cost: MatRef<'_, f64>) -> Vec<(usize, usize)> {
    if cost.nrows() > cost.ncols() {
        let mut pairs: Vec<_> = assign(cost.transpose()).into_iter().map(|(j, i)| (i, j)).collect();
        pairs.sort_unstable();
        return pairs;
    }
    let (rows, columns) = (cost.nrows(), cost.ncols());
    let cost = |i: usize, j: usize| if cost[(i, j)].is_finite() { cost[(i, j)] } else { 1e300 };
    let (mut u, mut v) = (vec![0.0; rows], vec![0.0; columns]);
    let mut row_of: Vec<Option<usize>> = vec![None; columns];

    for start in 0..rows {
        // Shortest distances from row `start` to every column, over reduced costs, along alternating paths.
        let mut distance = vec![f64::INFINITY; columns];
        let mut previous: Vec<Option<usize>> = vec![None; columns];
        let mut done = vec![false; columns];
        let (mut row, mut via, mut reached) = (start, None, 0.0);
        let end = loop {
            for j in 0..columns {
                let through = reached + cost(row, j) - u[row] - v[j];
                if !done[j] && through < distance[j] {
                    (distance[j], previous[j]) = (through, via);
                }
            }
            let Some(next) = (0..columns).filter(|&j| !done[j]).min_by(|&a, &b| distance[a].total_cmp(&distance[b])) else {
                return vec![]; // unreachable: there are as many columns as rows
            };
            (done[next], reached, via) = (true, distance[next], Some(next));
            match row_of[next] {
                Some(matched) => row = matched,
                None => break next,
            }
        };

        // New prices: everything nearer than the free column moves by what it is nearer.
        u[start] += reached;
        for j in (0..columns).filter(|&j| done[j]) {
            v[j] -= reached - distance[j];
            if let Some(i) = row_of[j] {
                u[i] += reached - distance[j];
            }
        }

        // Flip the path from the free column back to `start`.
        let mut column = end;
        while let Some(before) = previous[column] {
            row_of[column] = row_of[before];
            column = before;
        }
        row_of[column] = Some(start);
    }
    let mut pairs: Vec<_> = row_of.into_iter().enumerate().filter_map(|(j, i)| Some((i?, j))).collect();
    pairs.sort_unstable();
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::from_row_major;
    use proptest::prelude::*;

    /// Least total over all ways to give the rows from `i` on a column outside `used`.
    fn brute_force(cost: MatRef<'_, f64>, i: usize, used: u32) -> f64 {
        if i == cost.nrows() {
            return 0.0;
        }
        let free = (0..cost.ncols()).filter(|j| used >> j & 1 == 0);
        free.map(|j| cost[(i, j)] + brute_force(cost, i + 1, used | 1 << j)).fold(f64::INFINITY, f64::min)
    }

    proptest! {
        #[test]
        fn optimal(rows in 1usize..7, columns in 1usize..8, values in prop::collection::vec(-10i32..10, 56), real: bool) {
            // Whole numbers have many ties.
            let value = |i: usize| f64::from(values[i]) * if real { 1.0 + 0.1 * (i as f64).sin() } else { 1.0 };
            let cost = from_row_major(rows, columns, &(0..rows * columns).map(value).collect::<Vec<_>>());
            let pairs = assign(cost.as_ref());
            prop_assert_eq!(pairs.len(), rows.min(columns));
            prop_assert!(pairs.is_sorted_by(|a, b| a.0 < b.0), "a row once");
            let used: std::collections::HashSet<_> = pairs.iter().map(|p| p.1).collect();
            prop_assert_eq!(used.len(), pairs.len(), "a column once");
            let total: f64 = pairs.iter().map(|&p| cost[p]).sum();
            let wide = if rows <= columns { cost.clone() } else { cost.transpose().to_owned() };
            prop_assert!((total - brute_force(wide.as_ref(), 0, 0)).abs() < 1e-9);
        }

        #[test]
        fn a_hidden_permutation_is_found(n in 1usize..40, shift in 0usize..40) {
            let cost = super::super::Mat::from_fn(n, n, |i, j| if (i + shift) % n == j { 0.0 } else { 1.0 + (i * j % 7) as f64 });
            prop_assert_eq!(assign(cost.as_ref()), (0..n).map(|i| (i, (i + shift) % n)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn bad_costs_still_give_a_matching() {
        let cost = from_row_major(2, 2, &[f64::NAN, 1.0, f64::INFINITY, f64::NAN]);
        assert_eq!(assign(cost.as_ref()).len(), 2);
        assert!(assign(from_row_major(0, 3, &[]).as_ref()).is_empty());
    }
}
