//! One page of everything.
