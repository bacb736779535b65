//! Whole calls over real files.
//!
//! They cover what the original's tests ask of the contract, as far as it belongs to it: recall
//! works, and a vault of any layout is accepted.
//!
//! Left out, and why:
//!
//! | asked of the original | why not here |
//! |---|---|
//! | recall is missing; the command is refused | pins a later generation, in which recall was taken out |
//! | recall is always empty | pins the generation in between, in which it had stopped working |
//! | an unknown phase is an error of the reader below | the reader below has no phases; the seam reads `work`, which is asked |
//! | reading an old setting rewrites the file once; a configured vault that is absent stops everything | a call that reads must not write, and absent memory must not stop any caller: both are tested the other way round |
//! | of a synced backend only the vault is read for a bound plan | the contract's generation reads the project too, and tells it |
//! | a device-local backend | there is none: its fixture has the memory in `.forge/` |
//! | writes land in the vault only; functions that write are trapped | there are none to trap: the types have no such function, and a hash over all folders is compared |
//! | unknown storage plugins, the resolution of plugins, which module may import which | there are no plugins and no modules to import; who depends on whom is tested over the whole workspace |
//! | commands, their output and exit codes | belong to the command line, and are tested there; here the codes of the errors are |
//! | saves, locks, the daemon, the search of the inbox | write, or are no part of the seam |

mod contract;
mod corrupt;
mod defects;
mod found;
mod hints;

mod fixture;
mod ports;
mod reads;
mod recalled;
mod related;
mod room;

mod traced;
