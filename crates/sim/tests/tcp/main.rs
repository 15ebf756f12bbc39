//! TCP, two ends and a pipe, in virtual time.

mod loss;
mod pair;
mod property;
mod steady;
mod tso;
