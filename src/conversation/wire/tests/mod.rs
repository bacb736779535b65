mod doors;
mod fixtures;
mod form;
mod random;
mod refusals;
