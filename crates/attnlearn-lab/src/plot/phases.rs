//! The six phases as pictures.
