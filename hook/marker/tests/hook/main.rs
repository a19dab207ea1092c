//! libinflight as an engine meets it: the shared library, a C program on it (`engine.c`), and
//! its table read from outside, as the agent does.
//!
//! Needs root: `/proc/PID/map_files` and uprobes are not for others.

mod elf;
mod engine;
mod fork;
mod kill;
mod probe;
mod setup;
mod threads;
