//! The node agent: sources of facts on one side, lines for people and machines on the other, and
//! the pure machine of `inflightd-core` between them.
//!
//! * sources: [`discover`] and [`table`] (the workers and their tables), [`probe`] through
//!   [`hits`] (ring records), [`meters`] (sockets and processes);
//! * [`worker`]: the table and the marks of one worker made one;
//! * [`agent`]: everything together, in one thread; [`run`]: the loop around it;
//! * [`journal`]: what was told, across the agent's lives; [`tap`] and [`replay`]: captures;
//! * [`sink`]: what the ledger says, as lines; [`names`]: what its numbers stand for;
//! * [`fail`]: failing a room on purpose; [`failing`]: asking the agent for it;
//! * [`shown`]: what of that people may be shown;
//! * [`heap`]: memory goes back to the system after a flood;
//! * [`log`]: the agent's own log, which holds up nobody;
//! * [`telemetry`]: the same for collectors and scrapers, in a thread of its own.
//!
//! Only [`clock`] reads time, only [`probe`] knows aya, only [`table`] maps memory,
//! only [`telemetry`] knows OpenTelemetry.

pub mod agent;
pub mod check_config;
pub mod cli;
pub mod clock;
pub mod config;
pub mod desk;
pub mod discover;
pub mod doctor;
pub mod error;
pub mod fail;
pub mod failing;
pub mod glance;
pub mod health;
pub mod heap;
pub mod hits;
pub mod http;
pub mod identity;
pub mod journal;
pub mod log;
pub mod meters;
pub mod names;
pub mod probe;
pub mod proc;
pub mod reload;
pub mod replay;
pub mod rooms;
pub mod run;
pub mod runbook;
pub mod shown;
pub mod sink;
pub mod subject;
pub mod table;
pub mod tap;
pub mod telemetry;
pub mod views;
pub mod worker;
