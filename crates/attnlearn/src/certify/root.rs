//! Bisection over the floating-point numbers themselves.

/// The two neighbouring numbers between which a monotone condition turns true: `(last false, first true)`.
///
/// `0 ≤ from < to`; the condition is taken to be false at `from` and true at `to`. Non-negative doubles are ordered like their bit
/// patterns, so at most 64 halvings end at neighbours, whatever the magnitude of the root.
pub(super) fn turning_point(from: f64, to: f64, holds: impl Fn(f64) -> bool) -> (f64, f64) {
    let (mut last_false, mut first_true) = (from.to_bits(), to.to_bits());
    while first_true - last_false > 1 {
        let middle = last_false + (first_true - last_false) / 2;
        if holds(f64::from_bits(middle)) {
            first_true = middle;
        } else {
            last_false = middle;
        }
    }
    (f64::from_bits(last_false), f64::from_bits(first_true))
}

#[cfg(test)]
mod tests {
    use super::turning_point;

    #[test]
    fn neighbours_of_the_root() {
        for root in [1e-300, 1e-8, 0.5, 0.999_999_9] {
            let (below, above) = turning_point(0.0, 1.0, |x| x >= root);
            assert_eq!((below.to_bits() + 1, above.to_bits()), (root.to_bits(), root.to_bits()));
        }
    }
}
