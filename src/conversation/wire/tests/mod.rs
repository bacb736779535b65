mod fixtures;
mod form;
mod random;
mod refusals;
mod transport;
