//! The worked examples, the properties of plans on random types, and the model of the rank rule.

mod examples;
mod files;
mod learn;
mod model;
mod outputs;
mod random;
mod random_outputs;
mod study;
mod support;
