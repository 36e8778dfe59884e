//! Example files.
